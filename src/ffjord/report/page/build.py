"""The page of one run or of several: everything in one file, which needs nothing else."""

import datetime
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from ffjord._version import __version__
from ffjord.files import atomic_file
from ffjord.report.compare_table import duration
from ffjord.report.page.assets import asset, filled, script
from ffjord.report.page.curves import overlaid, run_colour, training
from ffjord.report.page.facts import Facts
from ffjord.report.page.health import health
from ffjord.report.page.markup import notice, section, table
from ffjord.report.page.numbers import count, measured, number
from ffjord.report.page.outcome import headline, outcome, unit_of
from ffjord.report.page.settings import settings
from ffjord.report.page.verdicts import grade, pill, verdicts

MAKER = '<meta name="generator" content="ffjord report">'
"""By which a page is known as one of ours."""
REFRESH = 60
"""Seconds after which a page of a training reads itself again."""


class Entry(NamedTuple):
    """A run on a page: what its files say, and its picture's section."""

    facts: Facts
    picture: str


def page(entries: Sequence[Entry], *, notes: Sequence[str] = ()) -> str:
    """The whole page: several runs side by side first, then each. `notes` are told above everything."""
    runs = [entry.facts for entry in entries]
    several = len(runs) > 1
    title = f"{len(runs)} runs compared" if several else runs[0].run.experiment.name
    body = "".join(notice(note, "open") for note in notes) + (_side_by_side(runs) if several else "")
    body += "".join(_run(entry, number, several) for number, entry in enumerate(entries, 1))
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    refresh = f'<meta http-equiv="refresh" content="{REFRESH}">' if any(facts.training for facts in runs) else ""
    return filled(
        "page.html",
        title=escape(title),
        heading=f"<h1>{escape(title)}</h1>\n" if several else "",
        head=MAKER + refresh,
        style=asset("style.css"),
        script=script(),
        body=body,
        made=f"Made by ffjord {__version__} on {now}.",
    )


def write_page(path: Path, text: str) -> None:
    """Writes a page whole or not at all."""
    with atomic_file(path) as file:
        file.write(text.encode())


def is_page(path: Path) -> bool:
    """Whether a file is a page of ours, which a newer one may replace."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return MAKER in file.read(4096)
    except OSError:
        return False


def _run(entry: Entry, place: int, several: bool) -> str:
    """Everything about one run."""
    facts = entry.facts
    parts = [outcome(facts), training(facts, place), health(facts), verdicts(facts), settings(facts)]
    experiment, rank = facts.run.experiment, "h2" if several else "h1"
    return filled(
        "run.html",
        place=str(place),
        label=f"<code>{escape(facts.label)}</code>",
        colour=run_colour(place) if several else "ink",
        heading=f"<{rank}>{escape(experiment.name)}</{rank}>",
        summary=escape(experiment.summary),
        status=_status(facts),
        warnings="".join(notice(text, "open") for text in facts.warnings),
        tiles=_tiles(facts),
        parts=entry.picture + "".join(parts),
    )


def _status(facts: Facts) -> str:
    kind, words = facts.status
    return pill(words, kind)


def _tiles(facts: Facts) -> str:
    """The few numbers that are asked for first."""
    own, results, history = headline(facts), facts.results, facts.history
    tiles: list[tuple[str, str]] = []
    if own is not None:
        tiles.append((f"test NLL, {unit_of(facts)}", measured(own.value, own.error)))
    if history.best is not None:
        best = facts.units.shown(history.best)
        tiles.append((f"best validation, {facts.units.name}", number(best, f"{best:.4f}")))
    if results.get("nfe"):
        tiles.append(("evaluations of f (NFE)", number(results["nfe"], f"{results['nfe']:.0f}")))
    if history.seconds:
        tiles.append(("time of training", number(history.seconds, duration(history.seconds))))
    if results.get("parameters"):
        tiles.append(("parameters", count(results["parameters"])))
    if checked := grade(facts):
        tiles.append(("checks", checked))
    return "".join(f"<div><dt>{escape(name)}</dt><dd>{html}</dd></div>" for name, html in tiles)


def _side_by_side(runs: Sequence[Facts]) -> str:
    """A table of all runs, the best first told by its mark, and their curves on the same axes."""
    head = ["run", "test NLL", "best validation", "NFE", "parameters", "steps", "time", "checks"]
    rows = [_row(facts, place) for place, facts in enumerate(runs, 1)]
    shown = table(head, rows, kind="runs", numbers=range(1, 7))
    return section("side-by-side", "Side by side", shown) + overlaid(runs)


def _row(facts: Facts, place: int) -> list[str]:
    own, results, history, none = headline(facts), facts.results, facts.history, "–"
    name = f'<a href="#run-{place}" style="--colour: var(--{run_colour(place)})">{escape(facts.label)}</a>'
    best = None if history.best is None else facts.units.shown(history.best)
    return [
        f'{name}<br><span class="unit">{escape(facts.run.experiment.name)}</span>',
        none if own is None else measured(own.value, own.error, unit_of(facts)),
        none if best is None else number(best, f"{best:.4f}"),
        number(results["nfe"], f"{results['nfe']:.0f}") if results.get("nfe") else none,
        count(results["parameters"]) if results.get("parameters") else none,
        count(history.step) if history.step else none,
        number(history.seconds, duration(history.seconds)) if history.seconds else none,
        grade(facts) or none,
    ]
