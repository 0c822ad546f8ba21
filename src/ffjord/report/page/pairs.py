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
    x, conditions = (None, None) if data is None else (None if part is None else part[:POINTS] for part in data)
    n = POINTS if x is None else len(x)
    samples = np.concatenate([*sample_blocks(for_pictures(flow), n, conditions=conditions, key=key)])
    clouds = {"samples": _shown(samples, view)} | ({} if x is None else {"data": _shown(x, view)})
    extents = [extent_of(*(cloud[:, [j]] for cloud in clouds.values()), outside=0.002) for j in range(_columns(flow))]
    values = {
        "names": [*view.names[: _columns(flow)]],
        "low": rounded((extent.low[0] for extent in extents), 9),
        "high": rounded((extent.high[0] for extent in extents), 9),
        **{name: packed(cloud, "f4") for name, cloud in clouds.items()},
    }
    return figure("pairs", values, asset("pairs.html"), _caption(flow, data, n))


def _columns(flow: Flow) -> int:
    return min(COLUMNS, flow.event_shape[0])


def _shown(rows: Float[Array | np.ndarray, "n d"], view: View) -> Float[np.ndarray, "n k"]:
    return view.points(np.asarray(rows, np.float64))[:, :COLUMNS]


def _caption(flow: Flow, data: Conditioned | None, n: int) -> str:
    dim, shown = flow.event_shape[0], _columns(flow)
    which = f"The first {shown} of {dim} columns" if dim > shown else f"All {dim} columns"
    rows = "above the diagonal test rows, below it samples, both along it" if data is not None else "samples"
    given = " Samples are given the test rows' conditions." if data is not None and data.condition is not None else ""
    return f"{which}, two at a time: {rows}; {n:,} points each.{given}"
