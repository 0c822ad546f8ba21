"""Many flows side by side."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from matplotlib.figure import Figure

from ffjord.flow import Flow
from ffjord.report.evaluate import density_on_grid, dimension_of, for_pictures, samples_at
from ffjord.report.grid import extent_of
from ffjord.report.style import DATA, INK, MODEL, MUTED, add_panel, draw_density, draw_points, draw_title, new_figure

_GRID = 144
_SAMPLES = 8192
_SIDE, _GAP, _EDGE, _HEAD, _BETWEEN = 1.75, 0.07, 0.3, 0.42, 0.4


class Entry(NamedTuple):
    """One flow of a gallery."""

    name: str
    flow: Flow
    data: Float[Array | np.ndarray, "n 2"]
    nll: float | None = None
    """Negative log-likelihood of held-out data, in nats."""


def gallery(entries: Sequence[Entry], *, columns: int = 2, title: str | None = None, key: PRNGKeyArray) -> Figure:
    """Data, samples and density of each two-dimensional flow, with its name and its score."""
    if not entries:
        raise ValueError("a gallery needs at least one entry; got none.")
    for entry in entries:
        if dimension_of(entry.flow) != 2:
            raise ValueError(f"a gallery shows flows of event shape (2,); {entry.name} has {entry.flow.event_shape}.")
    columns = min(columns, len(entries))
    rows = -(-len(entries) // columns)
    width = 3 * _SIDE + 2 * _GAP
    top = _EDGE if title is None else 2 * _EDGE
    page = new_figure(2 * _EDGE + columns * width + (columns - 1) * _BETWEEN, _EDGE + rows * (_SIDE + _HEAD) + top)
    draw_title(page, title, _EDGE)
    for i, (entry, entry_key) in enumerate(zip(entries, jax.random.split(key, len(entries)), strict=True)):
        left = _EDGE + (i % columns) * (width + _BETWEEN)
        bottom = _EDGE + (rows - 1 - i // columns) * (_SIDE + _HEAD)
        _draw_entry(page, entry, left, bottom, entry_key)
    return page


def _draw_entry(page: Figure, entry: Entry, left: float, bottom: float, key: PRNGKeyArray) -> None:
    flow, data = for_pictures(entry.flow), np.asarray(entry.data)
    samples = samples_at(flow, _SAMPLES, key=key)
    extent = extent_of(data, samples, margin=0.08)
    boxes = [(left + i * (_SIDE + _GAP), bottom, _SIDE, _SIDE) for i in range(3)]
    panels = [add_panel(page, box, extent) for box in boxes]
    draw_points(panels[0], data, DATA, size=0.7, most=_SAMPLES)
    draw_points(panels[1], samples, MODEL, size=0.7)
    draw_density(panels[2], density_on_grid(flow, extent, size=_GRID), extent)
    panels[0].set_title(entry.name, loc="left", color=INK, fontsize=11, pad=5)
    if entry.nll is not None:
        panels[2].set_title(f"{entry.nll:.2f} nats", loc="right", color=MUTED, fontsize=10, pad=5)
