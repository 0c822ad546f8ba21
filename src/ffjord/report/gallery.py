"""Many flows side by side."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from matplotlib.figure import Figure

from ffjord.flow import Flow
from ffjord.report.evaluate import check_data, density_on_grid, dimension_of, for_pictures, samples_at
from ffjord.report.grid import extent_of
from ffjord.report.style import DATA, INK, MODEL, MUTED, add_panel, draw_density, draw_points, draw_title, new_figure

_GRID = 144
_SAMPLES = 8192
_SIDE, _GAP, _EDGE, _HEAD, _BETWEEN = 1.75, 0.07, 0.3, 0.42, 0.4
_WIDTH = 3 * _SIDE + 2 * _GAP
_LEGEND = {"data": DATA, "samples": MODEL, "density": INK}


class Entry(NamedTuple):
    """One flow of a gallery."""

    name: str
    flow: Flow
    data: Float[Array | np.ndarray, "n 2"]
    nll: float | None = None
    """Negative log-likelihood of held-out data, in nats."""


def gallery(entries: Sequence[Entry], *, columns: int = 2, title: str | None = None, key: PRNGKeyArray) -> Figure:
    """Data, samples and density of each two-dimensional flow, with its name and its score."""
    if not entries or columns < 1:
        raise ValueError(f"a gallery needs an entry and a column; got {len(entries)} entries and columns={columns}.")
    for entry in entries:
        if dimension_of(entry.flow) != 2:
            raise ValueError(f"a gallery shows flows of event shape (2,); {entry.name} has {entry.flow.event_shape}.")
    columns = min(columns, len(entries))
    rows = -(-len(entries) // columns)
    page = _page(rows, columns, title)
    for i, (entry, entry_key) in enumerate(zip(entries, jax.random.split(key, len(entries)), strict=True)):
        corner = (_left(i % columns), _EDGE + (rows - 1 - i // columns) * (_SIDE + _HEAD))
        _draw_entry(page, entry, corner, entry_key)
    return page


def _left(column: int) -> float:
    return _EDGE + column * (_WIDTH + _BETWEEN)


def _page(rows: int, columns: int, title: str | None) -> Figure:
    """An empty page with a title, and above each column what its panels are."""
    legend = _EDGE + rows * (_SIDE + _HEAD) + 0.02
    width, height = _left(columns) - _BETWEEN + _EDGE, legend + (0.75 if title else 0.35)
    page = new_figure(width, height)
    draw_title(page, title, _EDGE)
    for column in range(columns):
        for i, (word, colour) in enumerate(_LEGEND.items()):
            middle = _left(column) + i * (_SIDE + _GAP) + _SIDE / 2
            page.text(middle / width, legend / height, word, color=colour, fontsize=10, ha="center")
    return page


def _draw_entry(page: Figure, entry: Entry, corner: tuple[float, float], key: PRNGKeyArray) -> None:
    flow, data = for_pictures(entry.flow), check_data(entry.flow, entry.data)
    samples = samples_at(flow, _SAMPLES, key=key)
    extent = extent_of(data, samples, margin=0.08, outside=0.002)
    boxes = [(corner[0] + i * (_SIDE + _GAP), corner[1], _SIDE, _SIDE) for i in range(3)]
    panels = [add_panel(page, box, extent) for box in boxes]
    draw_points(panels[0], data, DATA, size=0.7, most=_SAMPLES)
    draw_points(panels[1], samples, MODEL, size=0.7)
    draw_density(panels[2], density_on_grid(flow, extent, size=_GRID), extent)
    panels[0].set_title(entry.name, loc="left", color=INK, fontsize=12, pad=5)
    if entry.nll is not None:
        panels[2].set_title(f"{entry.nll:.2f} nats", loc="right", color=MUTED, fontsize=11, pad=5)
