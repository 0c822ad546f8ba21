"""The numbers that are asked for first: of one run in a row, of several in a table."""

from collections.abc import Sequence
from html import escape

from ffjord.report.compare_table import duration
from ffjord.report.page.curves import run_colour
from ffjord.report.page.facts import Facts
from ffjord.report.page.markup import section, table
from ffjord.report.page.numbers import count, measured, number
from ffjord.report.page.outcome import headline, measure_of, unit_of
from ffjord.report.page.verdicts import grade

_STEPS = "steps"
_NUMBERS = ("best validation", "NFE in testing", "parameters", _STEPS, "time of training", "checks")


def key_numbers(facts: Facts) -> dict[str, str]:
    """Html by name; those of which the run's files say nothing are not there."""
    own, results, history = headline(facts), facts.results, facts.history
    best = None if history.best is None else facts.units.shown(history.best)
    found = [
        None if best is None else f'{number(best, f"{best:.4f}")} <span class="unit">{facts.units.name}</span>',
        number(results["nfe"], f"{results['nfe']:.0f}") if results.get("nfe") else None,
        count(results["parameters"]) if results.get("parameters") else None,
        count(history.step) if history.step else None,
        number(history.seconds, duration(history.seconds)) if history.seconds else None,
        grade(facts) or None,
    ]
    first = {} if own is None else {measure_of(facts)[0]: measured(own.value, own.error, unit_of(facts))}
    return first | {name: html for name, html in zip(_NUMBERS, found, strict=True) if html is not None}


def tiles(facts: Facts) -> str:
    """The numbers of a run, side by side; its steps are told with how it ended."""
    shown = {name: html for name, html in key_numbers(facts).items() if name != _STEPS}
    lines = "".join(f"<div><dt>{escape(name)}</dt><dd>{html}</dd></div>\n" for name, html in shown.items())
    return f'<dl class="tiles">\n{lines}</dl>\n' if shown else ""


def side_by_side(runs: Sequence[Facts]) -> str:
    """A table of several runs, with a line for each."""
    rows, columns = [], [*dict.fromkeys(measure_of(facts)[0] for facts in runs), *_NUMBERS]
    for place, facts in enumerate(runs, 1):
        name = f'<a href="#run-{place}" style="--colour: var(--{run_colour(place)})">{escape(facts.label)}</a>'
        experiment = f'<br><span class="unit">{escape(facts.run.experiment.name)}</span>'
        found = key_numbers(facts)
        rows.append([name + experiment, *(found.get(column, "–") for column in columns)])
    shown = table(["run", *columns], rows, kind="runs", numbers=range(1, len(columns)))
    return section("side-by-side", "Side by side", shown)
