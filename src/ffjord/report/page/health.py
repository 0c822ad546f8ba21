"""What the solver did in training, and what went wrong."""

from html import escape

from ffjord.report.page.curves import Series, chart
from ffjord.report.page.facts import Facts
from ffjord.report.page.markup import facts as fact_list
from ffjord.report.page.markup import section, table
from ffjord.report.page.numbers import count, minus, number, tolerance

_MOST_EVENTS = 50


def health(facts: Facts) -> str:
    """The section on the solver; empty where there are no metrics to tell of it."""
    if not facts.history:
        return ""
    curve = facts.history.bins.curve
    steps = [Series("accepted", "data", curve("accepted")), Series("rejected", "bad", curve("rejected"))]
    drawn = chart("steps of a training solve", steps)
    body = f'<div class="two">\n{fact_list(_rows(facts))}{drawn}</div>\n{_events(facts)}'
    return section("health", "Solver", body, attributes=' data-axis="step"')


def _rows(facts: Facts) -> list[tuple[str, str]]:
    history = facts.history
    rows = [("how training ended", facts.status[1]), *_solves(facts)]
    rows.append(("optimiser steps that failed", count(history.unsound)))
    rows += [("why", _outcomes(facts))] if history.unsound else []
    rows.append(("validations that failed", count(history.unsolved)))
    rows.append(("rollbacks", count(sum(row["event"] == "rollback" for row in history.events))))
    return rows


def _solves(facts: Facts) -> list[tuple[str, str]]:
    """What the solves of training took."""
    solve, curve = facts.run.experiment.solve, facts.history.bins.curve
    accepted, rejected = (sum(found.mean) if (found := curve(name)) else 0.0 for name in ("accepted", "rejected"))
    if not accepted:
        return [("solves in training", "none")]
    share = rejected / (accepted + rejected)
    return [
        ("steps rejected in training", number(share, f"{share:.1%}")),
        ("method in training", f"{solve.method}, rtol {tolerance(solve.rtol)}, atol {tolerance(solve.atol)}"),
    ]


def _outcomes(facts: Facts) -> str:
    """What solves said that did not end well; a loss or a gradient can fail without them."""
    from ffjord.solve import MESSAGES, OK

    failed = {outcome: n for outcome, n in facts.history.outcomes.items() if outcome != OK}
    said = [f"{count(n)} × {MESSAGES.get(outcome, 'unknown')}" for outcome, n in sorted(failed.items())]
    rest = facts.history.unsound - sum(failed.values())
    return "<br>".join([*said, *([f"{count(rest)} × the loss or its gradient was not finite"] if rest > 0 else [])])


def _events(facts: Facts) -> str:
    events = facts.history.events[-_MOST_EVENTS:]
    if not events:
        return ""
    said = lambda row: ", ".join(f"{k} {v}" for k, v in row.items() if k not in ("step", "event", "seconds"))
    rows = [[count(row["step"]), escape(row["event"]), escape(minus(said(row)))] for row in events]
    return table(["step", "event", "about it"], rows, kind="events", numbers=[0])
