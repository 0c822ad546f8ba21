"""What the page plays of a flow over images: samples on their way from noise, beside images of the data."""

from collections.abc import Callable

import numpy as np
from jaxtyping import PRNGKeyArray

from ffjord.flow import Flow
from ffjord.report.evaluate import at_all, check_data, for_pictures
from ffjord.report.field import moves
from ffjord.report.images import images_at
from ffjord.report.mosaic import Images, in_levels
from ffjord.report.page.markup import figure, packed, rounded
from ffjord.report.page.template import asset

SAMPLES, TIMES = 20, 21


def image_figure(
    flow: Flow,
    data: Images | None,
    *,
    levels: int,
    progress: Callable[[int, int], None] | None = None,
    key: PRNGKeyArray,
) -> str:
    """Test images beside as many samples, as pixels at every time from the base (t = 0) to the data (t = 1)."""
    quick, times, samples = for_pictures(flow), np.linspace(0, 1, TIMES) if moves(flow) else np.ones(1), []
    for x in at_all(times, lambda t: images_at(quick, SAMPLES, time=t, key=key)):
        samples.append(in_levels(x, levels))
        if progress is not None:
            progress(len(samples), len(times))
    values = {"times": rounded(times), "levels": levels, "samples": packed(np.stack(samples), "u1")}
    if data is not None:
        values["data"] = packed(in_levels(check_data(flow, data)[:SAMPLES], levels), "u1")
    controls = asset("controls.html") if len(times) > 1 else ""
    return figure("images", values, controls + asset("images.html"), _caption(data is not None, len(times)))


def _caption(beside: bool, times: int) -> str:
    path = f" on their way from noise (t = 0) to images (t = 1), at {times} times" if times > 1 else ""
    return f"{SAMPLES} samples{path}, at temperature 1{'; beside them as many test images' if beside else ''}."
