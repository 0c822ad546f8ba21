"""How good a run is: its test likelihood with its error, beside the paper's number and simpler densities."""

import re
from html import escape
from typing import Any, NamedTuple

from ffjord.report.page.facts import Facts
from ffjord.report.page.markup import facts as fact_list
from ffjord.report.page.markup import figure, notice, section
from ffjord.report.page.numbers import count, measured, number, tolerance

_DECIMAL = r"-?\d+(?:\.\d+)?"
_PAPER = re.compile(rf"({_DECIMAL})(?: ± ({_DECIMAL}))?(?: (?:bits/dim|nats))?")
_ENTROPY = re.compile(rf"entropy (?:[^;]*= )?({_DECIMAL})")


class Bar(NamedTuple):
    """A number with its error, on the scale of the results."""

    name: str
    value: float
    error: float | None
    kind: str
    """Whose it is: the model's, the paper's or another's."""


def headline(facts: Facts) -> Bar | None:
    """The run's own figure: bits a dimension of images of grey levels, else nats; an autoencoder's is a bound."""
    name = _headline_name(facts)
    if name is None:
        return None
    return Bar("this run", facts.results[name], facts.results.get(f"{name}_stderr"), "model")


def unit_of(facts: Facts) -> str:
    """The headline's unit."""
    return "bits/dim" if (_headline_name(facts) or "").endswith("bits_per_dim") else "nats"


def measure_of(facts: Facts) -> tuple[str, str]:
    """What the headline is, in short and in full."""
    if facts.run.is_autoencoder:
        return "test −ELBO", "negative bound on the log-likelihood"
    return "test NLL", "negative log-likelihood"


def _headline_name(facts: Facts) -> str | None:
    names = ("bits_per_dim", "negative_elbo_bits_per_dim", "negative_elbo", "test_nll")
    return next((name for name in names if isinstance(facts.results.get(name), int | float)), None)


def references(paper: str) -> list[Bar]:
    """Numbers in what an experiment says of the paper: the paper's own, and the entropy of the data."""
    if found := _PAPER.fullmatch(paper):
        value, error = found.groups()
        return [Bar("in the paper", float(value), None if error is None else float(error), "paper")]
    return [Bar("entropy of the data", float(value), None, "paper") for value in _ENTROPY.findall(paper)]


def outcome(facts: Facts) -> str:
    """The section on results."""
    own = headline(facts)
    if own is None:
        return section("results", "Results", _plain(facts.results) or notice(_how_to_evaluate(facts)))
    bars = [own, *references(facts.run.experiment.paper), *_yardsticks(facts.results)]
    shown = _bars(bars, unit_of(facts), measure_of(facts)[1]) if len(bars) > 1 else ""
    return section("results", "Results", f'<div class="two">\n{fact_list(_rows(facts, own))}{shown}</div>')


def _plain(results: dict[str, Any]) -> str:
    """Results of a kind that this page does not know, as they are; empty where there are none."""
    shown = {name: value for name, value in results.items() if isinstance(value, int | float | str)}
    rows = [(name.replace("_", " "), escape(str(value))) for name, value in shown.items()]
    return fact_list(rows) if rows else ""


def _how_to_evaluate(facts: Facts) -> str:
    if not facts.run.weights.is_file():
        return "There are no weights yet, and so no results: they are written at the first validation."
    return f"There are no results yet: `ffjord evaluate {facts.run.path}` makes them."


def _rows(facts: Facts, own: Bar) -> list[tuple[str, str]]:
    """What there is to tell, in the order of `ffjord evaluate`."""
    results, paper = facts.results, facts.run.experiment.paper
    rows = [("{} ({})".format(*measure_of(facts)), measured(own.value, own.error, unit_of(facts)))]
    rows += _parts(results) if facts.run.is_autoencoder else []
    if "bits_per_dim" in results and "test_nll" in results:
        rows.append(("an image", measured(results["test_nll"], results.get("test_nll_stderr"), "nats")))
    if paper not in ("", "–"):
        rows.append(("in the paper", _paper(paper)))
    if results.get("points"):
        rows.append(("test points", count(results["points"])))
    rows += _solver(results)
    if results.get("parameters"):
        rows.append(("parameters", count(results["parameters"])))
    if fixed := results.get("fixed_steps"):
        steps = " + ".join(map(str, fixed["steps"]))
        nll = measured(fixed["test_nll"], fixed.get("test_nll_stderr"), "nats")
        rows.append(
            (f"with {steps} fixed steps of {fixed['method']}", f"{nll}, NFE {number(fixed['nfe'], _nfe(fixed))}")
        )
    return rows


def _parts(results: dict[str, Any]) -> list[tuple[str, str]]:
    """The parts of an autoencoder's bound, and its likelihood by importance sampling."""
    words = {"reconstruction": "− E log p(x | z)", "kl": "KL(q(z | x), p(z))"}
    if "importance_samples" in results:
        words["test_nll"] = f"test NLL, by {results['importance_samples']} samples an image"
    return [
        (told, measured(results[name], results.get(f"{name}_stderr"), "nats"))
        for name, told in words.items()
        if name in results
    ]


def _solver(results: dict[str, Any]) -> list[tuple[str, str]]:
    """What the solves of a continuous flow took."""
    if not results.get("divergence"):
        return []
    solver = f"{results['method']}, rtol {tolerance(results['rtol'])}, atol {tolerance(results['atol'])}"
    steps = [number(results[f"{kind}_steps"], f"{results[f'{kind}_steps']:.1f}") for kind in ("accepted", "rejected")]
    return [
        ("evaluations of f (NFE)", number(results["nfe"], _nfe(results))),
        ("solver's steps", f"{steps[0]} accepted, {steps[1]} rejected"),
        ("solver", escape(solver)),
        ("trace", escape(results["divergence"])),
    ]


def _nfe(results: dict[str, Any]) -> str:
    return f"{results['nfe']:.0f}"


def _paper(paper: str) -> str:
    found = _PAPER.fullmatch(paper)
    return escape(paper) if found is None else number(float(found[1]), found[1]) + paper[found.end(1) :]


def _yardsticks(results: dict[str, Any]) -> list[Bar]:
    """Simpler densities on the same rows, of a fitted table."""
    found = results.get("yardsticks", {})
    return [Bar(name, one["test_nll"], one["test_nll_stderr"], "other") for name, one in found.items()]


def _bars(bars: list[Bar], unit: str, measure: str) -> str:
    errors = "Whiskers are one standard error over the test points"
    papers = "; the paper's ± is over three runs" if any(bar.kind == "paper" and bar.error for bar in bars) else ""
    words = f"{measure.capitalize()} in {unit}; less is better. {errors}{papers}."
    rows = [bar._asdict() for bar in bars]
    return figure("bars", {"unit": unit, "rows": rows}, '<div class="plot"></div>', words)
