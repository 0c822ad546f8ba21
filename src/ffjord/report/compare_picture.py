"""A picture of runs side by side: likelihoods with their errors, and what they cost to train and to use."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from ffjord.report.compare import Comparison, Row
from ffjord.report.compare_table import duration
from ffjord.report.style import DATA, INK, MODEL, MUTED, add_panel, draw_title, new_figure

_COSTS = {
    "train_seconds": "NLL against training time",
    "parameters": "NLL against parameters",
    "sample_seconds": "NLL against time for {samples:,} samples",
}
_SIDE, _GAP, _EDGE, _FOOT, _HEAD, _LINE, _LETTER = 2.6, 0.5, 0.2, 0.4, 0.85, 0.27, 0.075
_WIDTH = 2 * _EDGE + 3 * (_SIDE + _GAP)
_DOT = {"fmt": "o", "ms": 4.5, "lw": 1.2}
_TIMES = (1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60, 180, 600, 1800, 3600, 10_800, 36_000, 86_400, 259_200)
"""Seconds that have short names, about a factor of three apart."""
_AROUND = [(8 * r * x, 7 * r * y) for r in (1, 1.6, 2.3) for x, y in ((1, 1), (-1, 1), (1, -1), (-1, -1), (0, 2.2))]
"""Where a number may be, in points from its dot, the best place first."""
_FAR = 8.0
"""Points."""


def draw_comparison(found: Comparison) -> Figure:
    """Test NLL and differences with their standard errors, the best run on top; then NLL against each cost.

    A run has the same number everywhere; the one that differences are taken to has its own colour. One that could not
    be scored has a line and no dot.
    """
    rows, names = found.rows, found.names
    order = sorted(range(len(rows)), key=lambda i: np.inf if rows[i]["test_nll"] is None else rows[i]["test_nll"])
    costs = [cost for cost in _COSTS if any(row[cost] and row["test_nll"] is not None for row in rows)]
    short = [_shortened(names[i]) for i in order]
    ordered, colours = [rows[i] for i in order], [MODEL if i == found.to else DATA for i in order]
    bottom = _SIDE + 0.8 if costs else 0.0
    height = max(4, len(rows)) * _LINE
    figure = new_figure(_WIDTH, bottom + _FOOT + height + _HEAD)
    draw_title(figure, found.points, _EDGE)
    lists = {"test_nll": "test NLL (nats)", "better_by": f"better than {_shortened(names[found.to], 24)} by (nats)"}
    left = _EDGE + 0.35 + _LETTER * max(map(len, short))
    width = (_WIDTH - left - _GAP - _EDGE) / 2
    for number, (value, title) in enumerate(lists.items()):
        box = (left + number * (width + _GAP), bottom + _FOOT, width, height)
        _draw_list(add_panel(figure, box, title=title), ordered, colours, value)
    _name(figure.axes[0], short, colours)
    for number, cost in enumerate(costs):
        box = (_EDGE + _GAP + number * (_SIDE + _GAP), _FOOT, _SIDE, _SIDE)
        title = _COSTS[cost].format(samples=rows[0]["samples"])
        _draw_against(add_panel(figure, box, title=title), ordered, colours, cost)
    return figure


def _span(rows: list[Row], value: str) -> tuple[float, float]:
    """A range with room for all values and their errors."""
    known = [row for row in rows if row[value] is not None]
    ends = [row[value] + sign * row[f"{value}_stderr"] for row in known for sign in (-1, 1)] or [0.0]
    room = 0.15 * (max(ends) - min(ends)) or 1.0
    return min(ends) - room, max(ends) + room


def _draw_list(axes: Axes, rows: list[Row], colours: list[str], value: str) -> None:
    """A line a run: a value with its error."""
    for place, (row, colour) in enumerate(zip(rows, colours, strict=True)):
        if row[value] is None:
            words, across = "failed" if row["score_error"] else "–", axes.get_yaxis_transform()
            axes.text(0.03, place, words, transform=across, color=MUTED, fontsize=8, va="center")
        else:
            axes.errorbar(row[value], place, xerr=row[f"{value}_stderr"], color=colour, **_DOT)
    axes.set(xlim=_span(rows, value), ylim=(len(rows) - 0.4, -0.6))
    axes.set_yticks(range(len(rows)), [""] * len(rows))
    axes.xaxis.set_major_locator(MaxNLocator(4))
    _quiet(axes)


def _name(axes: Axes, names: list[str], colours: list[str]) -> None:
    """Names and numbers of the runs, beside their lines."""
    axes.set_yticks(range(len(names)), [f"{name}  {place}" for place, name in enumerate(names, 1)])
    for label, colour in zip(axes.get_yticklabels(), colours, strict=True):
        label.set(color=INK if colour == DATA else colour, fontsize=8)


def _draw_against(axes: Axes, rows: list[Row], colours: list[str], cost: str) -> None:
    """Likelihood against the logarithm of a cost, each dot with the run's number."""
    shown = [(i, row) for i, row in enumerate(rows) if row["test_nll"] is not None and row[cost]]
    for i, row in shown:
        axes.errorbar(row[cost], row["test_nll"], yerr=row["test_nll_stderr"], color=colours[i], **_DOT)
    _scale(axes, [float(row[cost]) for _, row in shown], is_time=cost != "parameters")
    axes.set_ylim(_span(rows, "test_nll"))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    _quiet(axes)
    _number(axes, [row for _, row in shown], [i for i, _ in shown], colours, cost)


def _number(axes: Axes, rows: list[Row], numbers: list[int], colours: list[str], cost: str) -> None:
    """Numbers beside their dots, each in the first place that is far from dots, ends of bars and other numbers."""
    points = [(row[cost], row["test_nll"] + k * row["test_nll_stderr"]) for k in (0, -1, 1) for row in rows]
    taken = axes.transData.transform(points) * 72 / axes.figure.dpi
    for i, point, dot in zip(numbers, points, taken.copy(), strict=False):
        places = dot + np.array(_AROUND)
        room = np.min(np.linalg.norm(places[:, None] - taken, axis=2), axis=1)
        best = int(np.argmax(np.minimum(room, _FAR)))
        offset = {"xytext": _AROUND[best], "textcoords": "offset points", "ha": "center", "va": "center"}
        axes.annotate(str(i + 1), point, **offset, color=colours[i], fontsize=8)
        taken = np.concatenate([taken, places[best : best + 1]])


def _scale(axes: Axes, values: list[float], *, is_time: bool) -> None:
    """A logarithmic scale of at least a factor of ten, with at most four of its numbers written."""
    low, high = min(values), max(values)
    room = max((high / low) ** 0.12, np.sqrt(10 * low / high))
    low, high = low / room, high * room
    decades = 10.0 ** np.arange(np.floor(np.log10(low)), np.log10(high))
    known = _TIMES if is_time else [float(tick) for tick in np.outer(decades, (1, 3)).ravel()]
    ticks = [tick for tick in known if low <= tick <= high]
    ticks = ticks[:: max(1, -(-len(ticks) // 4))]
    axes.set(xscale="log", xlim=(low, high))
    axes.set_xticks(ticks, [duration(tick) if is_time else f"{tick:,.10g}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())


def _quiet(axes: Axes) -> None:
    axes.tick_params(length=0, labelsize=7, labelcolor=MUTED, pad=4)
    axes.grid(color=MUTED, alpha=0.2, linewidth=0.5)
    axes.set_axisbelow(True)


def _shortened(name: str, longest: int = 36) -> str:
    """The name, without its middle if it is long."""
    half = (longest - 1) // 2
    return name if len(name) <= longest else f"{name[:half]}…{name[-half:]}"
