"""The picture of how time and memory grow: benchmarks/growth.png."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from benchmarks.alone_growth import exponent, number, upper_half, values
from ffjord.report.style import DATA, INK, MODEL, MUTED, add_panel, draw_title, new_figure

TITLE = "How time and memory of one training step grow"
SUBTITLE = "rk4 with a fixed number of steps; dashed lines and numbers: exponents fitted to the upper half of the sizes"
LABELS = {"dimension": "dimension D", "batch": "batch size", "solver steps": "solver steps", "width": "hidden width"}
COLOURS = {"checkpointed": DATA, "adjoint": MODEL, "direct": "#e0527e"}
ROWS = {"seconds": ("time, ms", 1e3), "bytes": ("memory of the\ncompiled step, MB", 1e-6)}
_WIDTH, _HEIGHT = 2.75, 2.2
_LEFT, _RIGHT, _TOP, _BOTTOM = 0.95, 0.3, 1.15, 0.6
_GAP, _BETWEEN = 0.6, 0.4


def growth(curves: list[dict]) -> Figure:
    """Time above, memory below; a column for each thing that grows."""
    axes = list(dict.fromkeys(curve["axis"] for curve in curves))
    width = _LEFT + len(axes) * (_WIDTH + _GAP) - _GAP + _RIGHT
    height = _BOTTOM + len(ROWS) * (_HEIGHT + _BETWEEN) - _BETWEEN + _TOP
    page = new_figure(width, height)
    draw_title(page, TITLE, _LEFT)
    page.text(_LEFT / width, 1 - 0.52 / height, SUBTITLE, color=MUTED, fontsize=8.5, va="top")
    for column, axis in enumerate(axes):
        several = [curve for curve in curves if curve["axis"] == axis]
        panels = [_add_panel(page, row, column) for row in range(len(ROWS))]
        for panel, name in zip(panels, ROWS, strict=True):
            _draw(panel, several, name)
            if column == 0:
                panel.set_ylabel(ROWS[name][0], color=INK, fontsize=9.5)
        panels[0].set_title(several[0]["setting"], loc="left", color=INK, fontsize=9, pad=7)
        panels[-1].set_xlabel(LABELS[axis], color=INK, fontsize=9.5)
    return page


def _add_panel(page: Figure, row: int, column: int) -> Axes:
    left, bottom = _LEFT + column * (_WIDTH + _GAP), _BOTTOM + (len(ROWS) - 1 - row) * (_HEIGHT + _BETWEEN)
    return add_panel(page, (left, bottom, _WIDTH, _HEIGHT))


def _draw(panel: Axes, curves: list[dict], name: str) -> None:
    """The points of `name`, with their fits over the sizes that these are of."""
    for curve in curves:
        size, y = values(curve, "size"), ROWS[name][1] * values(curve, name)
        slope, part = exponent(curve, name), upper_half(curve)
        kind = "exponent" if len(curves) == 1 else f"{curve['gradient']}:"
        colour = COLOURS[curve["gradient"]]
        panel.plot(size, y, "o", color=colour, markersize=4.5, label=f"{kind} {number(slope)}")
        factor = np.exp(np.mean(np.log(y[part])) - slope * np.mean(np.log(size[part])))
        panel.plot(size[part], factor * size[part] ** slope, "--", color=colour, linewidth=1.2)
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    _make_room(panel, len(curves))
    panel.legend(loc="upper left", fontsize=8, frameon=False, labelcolor=INK, handletextpad=0.2)
    _number_axes(panel, np.unique(np.concatenate([values(curve, "size") for curve in curves])))


def _make_room(panel: Axes, lines: int) -> None:
    """So much height that what is flat looks flat, and that the legend's lines have a place above the points."""
    low, high = panel.get_ylim()
    middle = np.sqrt(low * high)
    low, high = min(low, middle / 4), max(high, middle * 4)
    panel.set_ylim(low, high * (high / low) ** (0.1 * (1 + lines)))


def _number_axes(panel: Axes, sizes: np.ndarray) -> None:
    """A few quiet numbers: sizes below, round ones on the left."""
    low, high = panel.get_ylim()
    panel.set_xticks(sizes[:: -2 if len(sizes) > 5 else 1])
    panel.yaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5) if high / low < 100 else (1,), numticks=12))
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_locator(NullLocator())
    panel.grid(color=MUTED, alpha=0.18, linewidth=0.6)
    panel.tick_params(length=0, labelsize=8, labelcolor=MUTED, pad=4)
