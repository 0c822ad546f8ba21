"""The page of one run or of several: everything in one file, which needs nothing else."""

import datetime
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from ffjord._version import __version__
from ffjord.files import atomic_file
from ffjord.report.page.curves import overlaid, run_colour, training
from ffjord.report.page.facts import Facts
from ffjord.report.page.health import health
from ffjord.report.page.markup import notice
from ffjord.report.page.outcome import outcome
from ffjord.report.page.settings import settings
from ffjord.report.page.summary import side_by_side, tiles
from ffjord.report.page.template import asset, filled, script
from ffjord.report.page.verdicts import pill, verdicts

MAKER = '<meta name="generator" content="ffjord report">'
"""By which a page is known as one of ours."""
_NEEDED = (
    '<noscript><p class="notice open">The curves and the moving pictures need JavaScript, which this file carries in '
    "itself.</p></noscript>\n"
)
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
    body = "".join(notice(note, "open") for note in notes) + (side_by_side(runs) + overlaid(runs) if several else "")
    body += "".join(_run(entry, number, several) for number, entry in enumerate(entries, 1))
    refresh = f'<meta http-equiv="refresh" content="{REFRESH}">' if any(facts.training for facts in runs) else ""
    return whole(title, (f"<h1>{escape(title)}</h1>\n" if several else "") + _NEEDED + body, script(), refresh)


def whole(title: str, body: str, program: str = "", head: str = "") -> str:
    """A page with our looks: its title, html, program, and what else its head says."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    return filled(
        "page.html",
        title=escape(title),
        head=MAKER + head,
        style=asset("style.css"),
        script=program,
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
    kind, words = facts.status
    experiment, rank = facts.run.experiment, "h2" if several else "h1"
    return filled(
        "run.html",
        place=str(place),
        label=f"<code>{escape(facts.label)}</code>",
        colour=run_colour(place) if several else "ink",
        heading=f"<{rank}>{escape(experiment.name)}</{rank}>",
        summary=escape(experiment.summary),
        status=pill(words, kind),
        warnings="".join(notice(text, "open") for text in facts.warnings),
        tiles=tiles(facts),
        parts=entry.picture + "".join(parts),
    )
