"""Two columns at a time of a table: data against samples."""

import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ffjord.data.source import Conditioned
from ffjord.flow import Flow
from ffjord.report.evaluate import for_pictures
from ffjord.report.grid import extent_of
from ffjord.report.page.markup import figure, packed, rounded
from ffjord.report.page.template import asset
from ffjord.report.page.view import View
from ffjord.scoring import sample_blocks

COLUMNS, POINTS = 5, 1000


def pairs_figure(flow: Flow, data: Conditioned | None, view: View, *, key: PRNGKeyArray) -> str:
    """The first few columns: the data above the diagonal, samples below it, both along it."""
    x, condition = (None, None) if data is None else data
    given = None if condition is None else np.resize(condition, (POINTS, *condition.shape[1:]))
    clouds = {"samples": np.concatenate([*sample_blocks(for_pictures(flow), POINTS, conditions=given, key=key)])}
    clouds |= {} if x is None else {"data": x[:POINTS]}
    shown = {name: _shown(cloud, view) for name, cloud in clouds.items()}
    extents = [extent_of(*(cloud[:, [j]] for cloud in shown.values()), outside=0.002) for j in range(_columns(flow))]
    values = {
        "names": [*view.names[: _columns(flow)]],
        "low": rounded((extent.low[0] for extent in extents), 9),
        "high": rounded((extent.high[0] for extent in extents), 9),
        **{name: packed(cloud, "f4") for name, cloud in shown.items()},
    }
    return figure("pairs", values, asset("pairs.html"), _caption(flow, data))


def _columns(flow: Flow) -> int:
    return min(COLUMNS, flow.event_shape[0])


def _shown(rows: Float[Array | np.ndarray, "n d"], view: View) -> Float[np.ndarray, "n k"]:
    return view.points(np.asarray(rows, np.float64))[:, :COLUMNS]


def _caption(flow: Flow, data: Conditioned | None) -> str:
    dim, shown = flow.event_shape[0], _columns(flow)
    which = f"The first {shown} of {dim} columns" if dim > shown else f"All {dim} columns"
    if data is None:
        return f"{which}, two at a time: {POINTS:,} samples."
    rows = f"{min(len(data.x), POINTS):,} test rows"
    given = "" if data.condition is None else " Samples are given the test rows' conditions, in turns."
    return f"{which}, two at a time: above the diagonal {rows}, below it {POINTS:,} samples, both along it.{given}"
