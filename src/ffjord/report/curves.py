"""Loss against training time, and against evaluations, for several ways of training."""

import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from ffjord.report.style import DATA, INK, MODEL, MUTED, add_panel, new_figure
from ffjord.reproduce.recipes import DATA as SETS
from ffjord.reproduce.recipes import RECIPES

_COLOURS = {"paper": INK, "likelihood": MUTED, "matching": DATA, "both": MODEL}
_ORDER = ("likelihood", "paper", "matching", "both")
_LABELS = {
    "paper": "the paper's recipe",
    "likelihood": "likelihood, regularised or solved otherwise",
    "matching": "flow matching",
    "both": "flow matching, then likelihood",
}
_WIDTH, _HEIGHT, _GAP = 3.0, 2.5, 0.65


def draw_time(rows: list[dict[str, Any]]) -> Figure:
    """Validation loss against seconds of training; a panel a data set, a line a run."""
    figure, panels = _panels("validation loss (nats)", "seconds of training")
    for data, axes in panels.items():
        lines = []
        for row in _in_order(rows, data):
            points = [(p["seconds"], p["loss"]) for p in row["curve"] if p["loss"] is not None and p["seconds"] > 0]
            if points:
                group = RECIPES[row["recipe"]].group
                axes.plot(*zip(*points, strict=True), color=_COLOURS[group], lw=0.7 if group == "likelihood" else 1.3)
                lines += [loss for _, loss in points]
        axes.set_xscale("log")
        _focus(axes, lines)
    return figure


def draw_nfe(rows: list[dict[str, Any]]) -> Figure:
    """Test loss against evaluations, at equal tolerance (dots) and with the fewest fixed steps (rings)."""
    figure, panels = _panels("test loss (nats)", "function evaluations at test (○ with the fewest fixed steps)")
    for data, axes in panels.items():
        shown = [row for row in _in_order(rows, data) if "failed" not in row]
        for row in shown:
            colour = _COLOURS[RECIPES[row["recipe"]].group]
            axes.plot(row["fixed_nfe"], row["test_nll"], "o", ms=4, mew=0.7, mec=colour, mfc="none", alpha=0.8)
            axes.plot(row["nfe"], row["test_nll"], "o", ms=4, mew=0, color=colour, alpha=0.9)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        _focus(axes, [row["test_nll"] for row in shown], part=0.85)
        _name(axes, shown)
    return figure


def _name(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """Names beside the dots of the first seed, of a few recipes: more would cover one another."""
    top = axes.get_ylim()[1]
    for row in rows:
        named = RECIPES[row["recipe"]].main or row["recipe"] == "loose, longer"
        if named and row["seed"] == 0 and row["test_nll"] <= top:
            place = (row["nfe"], row["test_nll"])
            offset = {"xytext": (-4, 3), "textcoords": "offset points", "ha": "right"}
            axes.annotate(row["recipe"], place, **offset, fontsize=5.5, color=_COLOURS[RECIPES[row["recipe"]].group])


def _panels(ylabel: str, xlabel: str) -> tuple[Figure, dict[str, Axes]]:
    width, height = 4 * _WIDTH + 5 * _GAP, _HEIGHT + 1.5
    figure = new_figure(width, height)
    panels = {}
    for i, name in enumerate(SETS):
        box = (_GAP + i * (_WIDTH + _GAP), 0.6, _WIDTH, _HEIGHT)
        axes = panels[name] = add_panel(figure, box, title=name)
        axes.xaxis.set_visible(True)
        axes.set_xlabel(xlabel, color=MUTED, fontsize=8)
        axes.tick_params(colors=MUTED, labelsize=7, length=2)
        if i == 0:
            axes.set_ylabel(ylabel, color=MUTED, fontsize=8)
    for i, (group, label) in enumerate(_LABELS.items()):
        x, y = (_GAP + i * 3.4) / width, 1 - 0.3 / height
        figure.text(x, y, f"● {label}", color=_COLOURS[group], fontsize=9, va="center")
    return figure, panels


def _in_order(rows: list[dict[str, Any]], data: str) -> list[dict[str, Any]]:
    """The rows of a data set, the ones that matter most on top."""
    mine = [row for row in rows if row["data"] == data]
    return sorted(mine, key=lambda row: _ORDER.index(RECIPES[row["recipe"]].group))


def _focus(axes: Axes, values: list[float], *, part: float = 0.75) -> None:
    """Cuts off what lies far above the rest, such as the first losses of a training."""
    finite = sorted(value for value in values if math.isfinite(value))
    if finite:
        low, high = finite[0], finite[int(part * (len(finite) - 1))]
        room = max(high - low, 1e-3)
        axes.set_ylim(low - 0.08 * room, high + 0.25 * room)
    axes.yaxis.set_major_locator(MaxNLocator(6))
