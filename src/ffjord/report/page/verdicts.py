"""The verdicts of `ffjord check` on a run."""

from html import escape
from typing import Any

from ffjord.report.page.facts import Facts
from ffjord.report.page.markup import notice, section, table

GRADES = {"pass": "good", "warn": "open", "FAIL": "bad", "not conclusive": "unsure", "skipped": "quiet"}
"""Grades of a check, and words for their colours."""


def verdicts(facts: Facts) -> str:
    """The section on whether the numbers can be trusted."""
    title = "Can its numbers be trusted?"
    if not facts.checks.get("verdicts"):
        return section("checks", title, notice(_how_to_check(facts)))
    rows = [_row(verdict) for verdict in facts.checks["verdicts"]]
    told = f"{facts.checks['points']:,} test points, seed {facts.checks['seed']}, by ffjord {facts.checks['version']}."
    shown = table(["", "check", "found", "limit", "which means"], rows, kind="verdicts")
    return section("checks", title, f'{shown}<p class="caption">{escape(told)}</p>')


def grade(facts: Facts) -> str:
    """The worst verdict, as a coloured word; empty where nothing was checked."""
    found = facts.checks.get("summary")
    return "" if found is None else pill(found, GRADES.get(found, "quiet"))


def pill(text: str, kind: str) -> str:
    """A coloured word."""
    return f'<span class="pill {kind}">{escape(text)}</span>'


def _row(verdict: dict[str, Any]) -> list[str]:
    cells = [escape(verdict[name]) for name in ("name", "found", "limit", "meaning")]
    return [pill(verdict["grade"], GRADES.get(verdict["grade"], "quiet")), *cells]


def _how_to_check(facts: Facts) -> str:
    from ffjord.data.pictures import is_image

    if facts.run.is_autoencoder:
        return "There are no checks of autoencoders."
    if is_image(facts.run.experiment.data.name):
        return "There are no checks of flows over images."
    if not facts.run.weights.is_file():
        return "There are no weights to check yet."
    return f"Not checked yet: `ffjord check {facts.run.path}` does it and keeps it, --checks does it for this page."
