"""Models in the order of their losses, beside the losses that a paper has for them."""

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ffjord.report.style import DATA, INK, MODEL, MUTED, add_panel, new_figure

_WIDTH, _ROW, _LEFT, _GAP, _RIGHT, _FOOT, _HEAD = 3.6, 0.27, 1.15, 2.65, 1.6, 0.6, 0.75
_FAR = 4.0
"""A loss this many times as far above the median as the best is below it is drawn at the edge."""


class Standing(NamedTuple):
    """A model's loss and its error, and what the paper has, None where it has nothing."""

    name: str
    loss: float
    error: float
    paper: float | None = None


class Standings(NamedTuple):
    """The models of one data set."""

    title: str
    unit: str
    rows: Sequence[Standing]


def draw_standings(panels: Sequence[Standings]) -> Figure:
    """A panel for each data set that has a row, the best model above; the figures stand to the right of it."""
    panels = [panel for panel in panels if panel.rows] or [Standings("nothing to show", "", ())]
    tallest = max(1, *(len(panel.rows) for panel in panels))
    width = _LEFT + len(panels) * (_WIDTH + _GAP) - _GAP + _RIGHT
    page = new_figure(round(width, 1), round(_FOOT + tallest * _ROW + _HEAD, 1))
    _, height = page.get_size_inches()
    page.text(_LEFT / width, 1 - 0.12 / height, "● here", color=MODEL, fontsize=9, va="top")
    page.text((_LEFT + 0.75) / width, 1 - 0.12 / height, "◇ in the paper", color=DATA, fontsize=9, va="top")
    for i, panel in enumerate(panels):
        tall = max(1, len(panel.rows)) * _ROW
        box = (_LEFT + i * (_WIDTH + _GAP), _FOOT + tallest * _ROW - tall, _WIDTH, tall)
        axes = add_panel(page, box, title=panel.title)
        if panel.rows:
            _draw(axes, panel)
    return page


def _draw(axes: Axes, panel: Standings) -> None:
    rows = sorted(panel.rows, key=lambda row: row.loss)
    low, high = limits([value for row in rows for value in (row.loss, row.paper) if value is not None])
    shown = [row for row in rows if row.loss <= high and row.error < high - low]
    low = min([low, *(row.loss - 1.1 * row.error for row in shown)])
    high = max([high, *(row.loss + 1.1 * row.error for row in shown)])
    axes.set(xlim=(low, high), ylim=(len(rows) - 0.5, -0.5))
    for y, row in enumerate(rows):
        if row.loss <= high:
            axes.errorbar(row.loss, y, xerr=row.error, fmt="o", color=MODEL, markersize=5, elinewidth=1)
        else:
            axes.plot(high, y, marker=">", color=MODEL, markersize=6, clip_on=False)
        if row.paper is not None:
            edge = {"color": DATA, "markerfacecolor": "none", "markersize": 5.5, "clip_on": False}
            axes.plot(min(row.paper, high), y, marker="D" if row.paper <= high else ">", **edge)
        told = f"{_digits(row.loss)}" + ("" if row.paper is None else f"   ◇ {_digits(row.paper)}")
        axes.text(1.03, y, told, transform=axes.get_yaxis_transform(), color=MUTED, fontsize=8, va="center")
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_xlabel(panel.unit, color=MUTED, fontsize=8)
    axes.tick_params(length=0, labelsize=7, labelcolor=MUTED, pad=4)
    axes.tick_params(axis="y", labelsize=8, labelcolor=INK)
    axes.grid(color=MUTED, alpha=0.2, linewidth=0.5)
    axes.set_axisbelow(True)


def limits(values: Sequence[float]) -> tuple[float, float]:
    """Ends of a scale that shows all losses but those far above the others."""
    low, middle, high = min(values), median(values), max(values)
    high = min(high, middle + _FAR * (middle - low)) if middle > low else high
    margin = 0.06 * (high - low) or 0.1 * max(1.0, abs(low))
    return low - margin, high + margin


def _digits(value: float) -> str:
    """Four significant digits, and not more than three after the point."""
    return f"{value:.{max(0, min(3, 3 - math.floor(math.log10(abs(value) or 1))))}f}"
