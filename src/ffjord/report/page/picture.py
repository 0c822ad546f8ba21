"""The picture of a run: a player in one or two dimensions and of images, pairs of columns of a table."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ffjord.data.pictures import image_set, is_image
from ffjord.data.source import Conditioned
from ffjord.errors import InputError, SolveError
from ffjord.flow import Flow
from ffjord.report.check_points import test_points
from ffjord.report.page.autoencoder import autoencoder_figures
from ffjord.report.page.image_player import SAMPLES, image_figure
from ffjord.report.page.markup import notice, section
from ffjord.report.page.motion import motion_figure
from ffjord.report.page.pairs import pairs_figure
from ffjord.report.page.view import view_of
from ffjord.runs import Run

_MOST_DATA = 20_000
_TITLE = "The flow"


def picture(run: Run, *, seed: int, progress: Callable[[int, int], None] | None = None) -> str:
    """The section with the picture, or with the reason why there is none."""
    if not run.weights.is_file():
        return without_picture("There are no weights yet, and so no picture: they are written at the first validation.")
    try:
        data, missing = _test_points(run, seed)
        if run.is_autoencoder:
            drawn = autoencoder_figures(run.model(), None if data is None else data.x, key=jax.random.key(seed))
            return section("picture", "The autoencoder", drawn + missing)
        flow = run.flow()
        drawn = _figure(run, flow, data, seed, progress)
    except (InputError, SolveError) as error:
        return without_picture(f"The flow cannot be drawn: {error}")
    return section("picture", _TITLE, drawn + missing)


def without_picture(why: str) -> str:
    """The section that says why there is no picture."""
    return section("picture", _TITLE, notice(why))


def _figure(run: Run, flow: Flow, data: Conditioned | None, seed: int, progress: Any) -> str:
    key, x = jax.random.key(seed), None if data is None else data.x
    if is_image(run.experiment.data.name):
        levels = image_set(run.experiment.data.name).levels
        return image_figure(flow, x, levels=levels, progress=progress, key=key)
    if data is None and flow.condition_shape is not None:
        raise InputError("it is a density given conditions, and there are no data to take them from.")
    view = view_of(run, flow.event_shape[0])
    if flow.event_shape in ((1,), (2,)) and flow.condition_shape is None:
        points = None if x is None else np.asarray(x)
        return motion_figure(flow, points, view, progress=progress, key=key)
    return pairs_figure(flow, data, view, key=key)


def _test_points(run: Run, seed: int) -> tuple[Conditioned | None, str]:
    """Test points, or None and a notice that says why there are none."""
    images = is_image(run.experiment.data.name) or run.is_autoencoder
    n, source = SAMPLES if images else _MOST_DATA, run.source()
    try:
        return test_points(source, min(n, source.num_test), seed=seed), ""
    except InputError as error:
        return None, notice(f"Samples alone are shown, because the data are not here: {error}")
