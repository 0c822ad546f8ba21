"""Several models of the same two-dimensional data, one above the other, a column for each data set."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float
from matplotlib.figure import Figure

from ffjord.flow import Flow
from ffjord.report.evaluate import check_data, density_on_grid, for_pictures
from ffjord.report.grid import Extent, extent_of
from ffjord.report.style import DATA, INK, MUTED, add_panel, draw_density, draw_points, new_figure

_GRID = 144
_SIDE, _GAP, _EDGE, _LEFT, _CAPTION, _HEAD = 1.9, 0.1, 0.25, 0.85, 0.32, 0.4


class Panel(NamedTuple):
    """A model's density."""

    name: str
    flow: Flow
    caption: str


class Column(NamedTuple):
    """Data and the models of it."""

    name: str
    data: Float[Array | np.ndarray, "n 2"]
    panels: Sequence[Panel]


def draw_columns(columns: Sequence[Column]) -> Figure:
    """Data above, then the models' densities, each with its caption below."""
    if not columns:
        raise ValueError("there is nothing to draw: columns is empty.")
    rows = 1 + max(len(column.panels) for column in columns)
    bottom = lambda row: _EDGE + (rows - 1 - row) * (_SIDE + _CAPTION) + _CAPTION
    width = _LEFT + len(columns) * (_SIDE + _GAP) - _GAP + _EDGE
    page = new_figure(width, bottom(0) + _SIDE + _HEAD)
    for i, column in enumerate(columns):
        _draw_column(page, column, _LEFT + i * (_SIDE + _GAP), bottom)
    names = ["data", *(panel.name for panel in max(columns, key=lambda column: len(column.panels)).panels)]
    for row, name in enumerate(names):
        middle = (bottom(row) + _SIDE / 2) / page.get_figheight()
        page.text((_LEFT - 0.15) / width, middle, name, color=INK, fontsize=11, ha="right", va="center")
    return page


def _draw_column(page: Figure, column: Column, left: float, bottom) -> None:
    data = check_data(column.panels[0].flow, column.data) if column.panels else np.asarray(column.data)
    extent = extent_of(data, margin=0.12, outside=0.0005)
    first = add_panel(page, (left, bottom(0), _SIDE, _SIDE), extent)
    first.set_title(column.name, color=INK, fontsize=11, pad=6)
    draw_points(first, data, DATA, size=0.7, most=8192)
    for row, panel in enumerate(column.panels, 1):
        _draw_panel(page, panel, (left, bottom(row), _SIDE, _SIDE), extent)


def _draw_panel(page: Figure, panel: Panel, box: tuple[float, float, float, float], extent: Extent) -> None:
    axes = add_panel(page, box, extent)
    draw_density(axes, density_on_grid(for_pictures(panel.flow), extent, size=_GRID), extent)
    axes.text(0.5, -0.05, panel.caption, transform=axes.transAxes, color=MUTED, fontsize=7, ha="center", va="top")
