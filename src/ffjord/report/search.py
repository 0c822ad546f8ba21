"""What a search has found: a table, and a picture with a panel for every choice."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ffjord.report.style import DATA, INK, MUTED, add_panel, new_figure

_WIDTH, _HEIGHT, _GAP = 1.9, 2.2, 0.35


def search_table(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    """A Markdown table of the trials, in the order given."""
    lines = [["rank", *names, "validation NLL", "steps", "ended"], ["---:"] * (len(names) + 4)]
    for rank, row in enumerate(rows, 1):
        ended = {"complete": "trained", "pruned": "given up", "fail": "failed"}[row["state"]]
        loss = f"{row['loss']:.4f}" if math.isfinite(row["loss"]) else "–"
        lines.append([str(rank), *(str(row[name]) for name in names), loss, str(row["steps"]), ended])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def draw_search(rows: Sequence[dict[str, Any]], space: Mapping[str, Sequence[Any]]) -> Figure:
    """Best validation loss of every trial against every choice; rings are trials that were given up."""
    height = _HEIGHT + 0.95
    width = 0.8 + len(space) * (_WIDTH + _GAP)
    figure = new_figure(width, height)
    shown = [row for row in rows if math.isfinite(row["loss"])]
    losses = sorted(row["loss"] for row in shown)
    top = losses[int(0.9 * (len(losses) - 1))] if losses else 1.0  # a failed trial must not flatten the others
    bottom = losses[0] if losses else 0.0
    room = 0.08 * (top - bottom) or 1.0
    for number, (name, choices) in enumerate(space.items()):
        place = (0.75 + number * (_WIDTH + _GAP), 0.5, _WIDTH, _HEIGHT)
        axes = add_panel(figure, place, title=name)
        for row in shown:
            x, loss, done = choices.index(row[name]), min(row["loss"], top + room / 2), row["state"] == "complete"
            axes.plot(x, loss, "o", ms=4.5, mew=0.8, mec=DATA, mfc=DATA if done else "none", alpha=0.8, clip_on=False)
        axes.set_xticks(range(len(choices)), [str(choice) for choice in choices])
        axes.set_xlim(-0.5, len(choices) - 0.5)
        axes.set_ylim(bottom - room, top + room)
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.tick_params(labelleft=number == 0, labelsize=8, colors=INK)
    figure.text(0.02, 0.5, "validation NLL (nats)", rotation=90, va="center", fontsize=9, color=MUTED)
    return figure
