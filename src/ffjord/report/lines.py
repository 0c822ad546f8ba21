"""Lines in panels: what most studies have to show. Each panel has its own axes; names stand once, above all of them."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from ffjord.report.style import INK, MUTED, add_panel, new_figure

_WIDTH, _HEIGHT, _LEFT, _GAP, _EDGE, _FOOT, _HEAD, _TOP = 3.4, 2.6, 0.8, 0.85, 0.25, 0.62, 0.95, 0.35
_SIGNS = {"--": "– –", ":": "···"}
_NAME, _LETTER = 0.22, 0.082
"""Height of a line of names, and about the width of a letter, in inches."""


class Line(NamedTuple):
    """A line through points, with a mark at each unless it is `plain`. What is not finite is left out."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str = INK
    style: str = "-"
    plain: bool = False

    @classmethod
    def through(cls, name: str, points: Iterable[tuple[float | int, float | int]], colour: str = INK) -> "Line":
        """The line through points (x, y)."""
        x, y = zip(*points, strict=True)
        return cls(name, x, y, colour)


class Plot(NamedTuple):
    """A panel. Scales with `log` in their name are logarithmic; `x_ticks` are those of the x axis, if given, and
    `x_names` what stands there in place of numbers."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    x_log: bool = False
    y_log: bool = False
    x_ticks: Sequence[float] | None = None
    x_names: Sequence[str] | None = None
    y_range: tuple[float, float] | None = None


def draw_plots(plots: Sequence[Plot], *, columns: int = 3) -> Figure:
    """The panels, row by row, below the names of all lines in their colours."""
    if not plots or not any(plot.lines for plot in plots):
        raise ValueError("there is nothing to draw: no plot has a line.")
    columns = min(columns, len(plots))
    rows = -(-len(plots) // columns)
    names = _arranged(plots, columns * (_WIDTH + _GAP) - _GAP)
    width, top = _LEFT + columns * (_WIDTH + _GAP) - _GAP + _EDGE, _FOOT + rows * (_HEIGHT + _HEAD) - _HEAD + _TOP
    page = new_figure(_whole(width), _whole(top + 0.12 + _NAME * len(names)))
    for i, plot in enumerate(plots):
        left, bottom = _LEFT + i % columns * (_WIDTH + _GAP), _FOOT + (rows - 1 - i // columns) * (_HEIGHT + _HEAD)
        _draw(add_panel(page, (left, bottom, _WIDTH, _HEIGHT), title=plot.title), plot)
    for i, row in enumerate(names):
        for left, name, colour, style in row:
            _write(page, left, 0.1 + _NAME * i, f"{_SIGNS.get(style, '●')} {name}", colour)
    return page


def _whole(inches: float) -> float:
    """So many inches that pixels are not cut, at dpi that are a multiple of ten."""
    return math.ceil(10 * inches) / 10


def _write(page: Figure, left: float, top: float, text: str, colour: str) -> None:
    width, height = page.get_size_inches()
    page.text(left / width, 1 - top / height, text, color=colour, fontsize=9, va="top")


def _arranged(plots: Sequence[Plot], room: float) -> list[list[tuple[float, str, str, str]]]:
    """Names in lines that fit, each with its place in inches from the left."""
    known = dict.fromkeys((line.name, line.colour, line.style) for plot in plots for line in plot.lines if line.name)
    rows: list[list[tuple[float, str, str, str]]] = [[]]
    left = _LEFT
    for name, colour, style in known:
        width = _LETTER * (len(name) + 4)
        if rows[-1] and left + width > _LEFT + room:
            rows.append([])
            left = _LEFT
        rows[-1].append((left, name, colour, style))
        left += width
    return rows


def _draw(axes: Axes, plot: Plot) -> None:
    axes.set(xscale="log" if plot.x_log else "linear", yscale="log" if plot.y_log else "linear")
    for line in plot.lines:
        x, y = _finite(line, plot)
        marks = {} if line.plain else {"marker": "o", "markersize": 3.5, "markeredgewidth": 0}
        axes.plot(x, y, color=line.colour, linestyle=line.style, linewidth=0.9 if line.plain else 1.3, **marks)
    axes.set_xlabel(plot.x_label, color=MUTED, fontsize=8)
    axes.set_ylabel(plot.y_label, color=MUTED, fontsize=8)
    if plot.y_range is not None:
        axes.set_ylim(*plot.y_range)
    _add_ticks(axes, plot)


def _finite(line: Line, plot: Plot) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.asarray(line.x, float), np.asarray(line.y, float)
    shown = np.isfinite(x) & np.isfinite(y) & ((x > 0) | (not plot.x_log)) & ((y > 0) | (not plot.y_log))
    return x[shown], y[shown]


def _add_ticks(axes: Axes, plot: Plot) -> None:
    """A few quiet numbers along both axes, and lines between them."""
    for axis, is_log, limits in ((axes.xaxis, plot.x_log, axes.get_xlim()), (axes.yaxis, plot.y_log, axes.get_ylim())):
        axis.set_minor_locator(NullLocator())
        if is_log:
            decades = math.log10(limits[1] / limits[0])
            axis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 2.5 else (1,), numticks=8))
            axis.set_major_formatter(lambda value, _: f"{value:g}".replace("e-0", "e-"))
        else:
            axis.set_major_locator(MaxNLocator(5))
    if plot.x_ticks is not None:
        axes.set_xticks(plot.x_ticks, plot.x_names or [f"{value:g}" for value in plot.x_ticks])
    axes.tick_params(length=0, labelsize=7, labelcolor=MUTED, pad=4)
    axes.grid(color=MUTED, alpha=0.2, linewidth=0.5)
    axes.set_axisbelow(True)
