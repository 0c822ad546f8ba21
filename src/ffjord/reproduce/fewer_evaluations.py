"""Likelihood against training time and against evaluations: the paper's recipe, and what is to improve on it."""

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import mean
from typing import Any

from ffjord.files import write_json
from ffjord.reproduce.cells import Cell, fixed_steps, result_of, run_path
from ffjord.reproduce.pages import beside, machine, write_scalars
from ffjord.reproduce.recipes import DATA, RECIPES
from ffjord.runs import Run

EQUAL = 0.01
"""Nats by which a negative log-likelihood may be above the paper's and still count as equal."""


def study(
    out: Path, runs: Path, *, quick: bool, data: Iterable[str], recipes: Iterable[str], seeds: int, tell: Callable
) -> list[Path]:
    """Makes all runs, those of the first seed first, and writes tables and figures after every one of them.

    At last, the spread of the trace's estimators on the flows of the tables.
    """
    cells = [Cell(d, r, seed) for seed in range(seeds) for d in data for r in recipes if _wanted(r, seed)]
    results, variance = _earlier(out / "results.json"), _earlier(out / "variance.json")
    for number, cell in enumerate(cells):
        tell(f"{number + 1} of {len(cells)}: {cell}")
        found = result_of(cell, runs, within=EQUAL, quick=quick)
        paper = results.get(str(Cell(cell.data, "paper", cell.seed)), results.get(str(Cell(cell.data, "paper", 0))))
        results[str(cell)] = _at_the_papers_loss(found, paper, results.get(str(cell), {}), run_path(cell, runs))
        _write(out, results, variance, quick=quick)
    for name in data:
        cell = Cell(name, "matching", 0)
        if name in _TABLES and name not in variance and str(cell) in results:
            tell(f"spread of the trace's estimators: {name}")
            variance[name] = _spread(Run.open(run_path(cell, runs)), quick=quick)
            _write(out, results, variance, quick=quick)
    return sorted(path for path in out.iterdir() if path.suffix in (".md", ".png", ".csv", ".json"))


def _at_the_papers_loss(
    found: dict[str, Any], paper: dict[str, Any] | None, earlier: dict[str, Any], path: Path
) -> dict[str, Any]:
    """A result with `at_paper`: the fewest evaluations, in fixed steps, at which the run is as good as the paper's.

    A run that is better by some nats may lose so many to the steps. By `ffjord evaluate --within`, with what validation
    leaves: `within` = paper's best loss + EQUAL - own best loss. Nothing where that is not positive.
    """
    if paper is None or "failed" in found or "failed" in paper:
        return found
    within = min(_losses(paper["curve"])) + EQUAL - min(_losses(found["curve"]))
    kept = earlier.get("at_paper")
    if within <= 0 or not math.isfinite(within):
        return found
    if kept is None or kept["within"] != within:
        kept = fixed_steps(Run.open(path), within)
    return found if kept is None else found | {"at_paper": kept}


_TABLES = ("digits", "breast-cancer")


def _write(out: Path, results: dict[str, Any], variance: dict[str, Any], *, quick: bool) -> None:
    from ffjord.report.curves import draw_nfe, draw_time
    from ffjord.report.variance import draw_variance

    rows = [row for row in results.values() if row["data"] in DATA and row["recipe"] in RECIPES]
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "results.json", results)
    write_scalars(out / "results.csv", rows)
    (out / "README.md").write_text(as_markdown(rows, variance, quick=quick))
    draw_time(rows).savefig(out / "time.png", dpi=110)
    draw_nfe(rows).savefig(out / "nfe.png", dpi=110)
    if variance:
        write_json(out / "variance.json", variance)
        draw_variance(variance).savefig(out / "variance.png", dpi=110)


def _spread(run: Run, *, quick: bool) -> list[dict[str, Any]]:
    import jax

    from ffjord.data.source import Held
    from ffjord.report.variance import variance_study

    costs, repeats = ((1, 3), 2) if quick else ((1, 3, 6, 12, 24), 8)
    points = Held.of(run.source().test(128)).x
    return variance_study(run.flow(), points, costs=costs, repeats=repeats, key=jax.random.key(0))


def _wanted(recipe: str, seed: int) -> bool:
    """Further seeds are for the recipes that the goals are about."""
    return seed == 0 or RECIPES[recipe].main


def _earlier(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.is_file() else {}


def summary(rows: list[dict[str, Any]], data: str) -> list[dict[str, Any]]:
    """A row a recipe: means over seeds, and how it stands to the paper's recipe, with the same seed where there is one.

    `time_ratio` is the time until validation first was as good as the paper's best (up to `EQUAL`), divided by the
    time until the paper's own was; infinite if it never was. `nfe_ratio` is that of evaluations at test and equal
    tolerance, `equal_ratio` that of the evaluations, in fixed steps, at which it is as good as the paper's recipe to
    the evaluations of the paper's recipe; infinite if it is not.
    """
    of = {(row["recipe"], row["seed"]): row for row in rows if row["data"] == data}
    found = []
    for recipe in RECIPES:
        mine = [row for (name, _), row in of.items() if name == recipe and "failed" not in row]
        if not mine:
            continue
        pairs = [(row, of.get(("paper", row["seed"]), of.get(("paper", 0)))) for row in mine]
        pairs = [(row, paper) for row, paper in pairs if paper is not None]
        average = lambda name, mine=mine: mean(row[name] for row in mine)
        found.append(
            {"recipe": recipe, "seeds": len(mine), "stderr": mine[0]["test_nll_stderr"]}
            | {name: average(name) for name in ("test_nll", "nfe", "fixed_nfe", "train_seconds", "steps")}
            | {"gain": mean(paper["test_nll"] - row["test_nll"] for row, paper in pairs) if pairs else math.nan}
            | {"nfe_ratio": mean(row["nfe"] / paper["nfe"] for row, paper in pairs) if pairs else math.nan}
            | {
                "equal_ratio": mean(_equal_nfe(row, paper) / paper["nfe"] for row, paper in pairs)
                if pairs
                else math.nan
            }
            | {"time_ratio": mean(_time_ratio(row, paper) for row, paper in pairs) if pairs else math.nan}
        )
    return found


def _time_ratio(row: dict[str, Any], paper: dict[str, Any]) -> float:
    level = min(_losses(paper["curve"])) + EQUAL
    first = lambda curve: next((p["seconds"] for p in curve if (p["loss"] or math.inf) <= level), math.inf)
    return first(row["curve"]) / first(paper["curve"])


def _equal_nfe(row: dict[str, Any], paper: dict[str, Any]) -> float:
    """Evaluations with which the test loss is the paper's, what the steps change being counted as a loss."""
    known = row.get("at_paper")
    if known is None:
        return math.inf
    loss = row["test_nll"] + abs(known["test_nll"] - row["test_nll"])
    return known["nfe"] if loss <= paper["test_nll"] + EQUAL else math.inf


def _losses(curve: list[dict[str, Any]]) -> list[float]:
    return [math.inf if point["loss"] is None else point["loss"] for point in curve]


def goals(rows: list[dict[str, Any]]) -> list[str]:
    """Lines of a table: for each data set, the best recipe among those as good as the paper's."""
    head = ("data", "recipe", "test NLL less the paper's", "NFE at equal NLL", "of the paper's own flow")
    lines = [f"| {' | '.join((*head, 'NFE at equal tolerance', 'time'))} |", "|---|---|---|---|---|---|---|"]
    for data in DATA:
        known = summary(rows, data)
        paper = next((s for s in known if s["recipe"] == "paper"), None)
        good = [s for s in known if s is not paper and s["gain"] >= -EQUAL and math.isfinite(s["time_ratio"])]
        best = min(good, key=lambda s: s["equal_ratio"] * s["time_ratio"], default=None)
        if best is None or paper is None:
            lines.append(f"| {data} | none as good | | | | | |")
        else:
            ratios = [best["equal_ratio"], paper["equal_ratio"], best["nfe_ratio"], best["time_ratio"]]
            cells = [data, best["recipe"], f"{-best['gain']:+.3f}", *map(_ratio, ratios)]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def _ratio(value: float) -> str:
    return f"{value:.2g}" if math.isfinite(value) else "–"


def as_markdown(rows: list[dict[str, Any]], variance: dict[str, Any], *, quick: bool) -> str:
    """README.md of the study."""
    sketch = " --quick" if quick else ""
    lines = [
        "# Fewer function evaluations",
        "",
        f"Made by `ffjord reproduce fewer-evaluations{sketch}` on {machine()}.",
        "Test negative log-likelihood in nats (tables: of standardised columns) of the model with the best validation",
        "loss, exact trace. NFE of scoring test points, with dopri5 at tolerance 1e-5 for all; *fixed NFE* is that of",
        f"the fewest fixed steps that keep the validation loss within {EQUAL} nats (`ffjord evaluate --within`).",
        "Seconds are those of training steps, without compilation or validation. *Time*: until validation first was as",
        f"good as the best of the paper's recipe (up to {EQUAL} nats), as a part of the paper's own time until then.",
        "",
        *(["**A sketch: a fiftieth of the training.**", ""] if quick else []),
        *_missing(rows),
        *beside(*_finding(rows)),
        "",
        "![loss against training time](time.png)",
        "",
        "![loss against evaluations](nfe.png)",
        "",
        "Data: [results.csv](results.csv).",
        "",
        "## Against the paper's recipe at equal likelihood",
        "",
        "Goals: half of the evaluations and a fifth of the training time on three of the four. For each data set the",
        "recipe with the smallest product of the two, among those whose test loss is not above the paper's recipe's;",
        "figures as parts of those of the paper's recipe (its evaluations at tolerance 1e-5). *NFE at equal NLL*: a",
        "recipe with a better likelihood may take fixed steps so long that they cost what it is better by; steps are",
        "chosen on validation points, and whatever they change in the likelihood of test points, up or down, is",
        "counted against it. The same with the paper's own flow tells how much of this is due to fixed steps alone.",
        "",
        *goals(rows),
        "",
        "## Recipes",
        "",
        *(f"- **{name}**: {recipe.about}." for name, recipe in RECIPES.items()),
        "",
    ]
    for data in DATA:
        lines += [f"## {data}", "", "| recipe | seeds | test NLL | NFE | fixed NFE | steps | seconds | time |"]
        lines += ["|---|---|---|---|---|---|---|---|"]
        lines += [_line(s) for s in summary(rows, data)]
        failed = [f"{r['recipe']} (seed {r['seed']})" for r in rows if r["data"] == data and "failed" in r]
        lines += ["", *([f"Failed: {', '.join(failed)}.", ""] if failed else [])]
    return "\n".join(lines + _variance_lines(variance))


def _finding(rows: list[dict[str, Any]]) -> tuple[str, str]:
    """What weight decay and spectral normalisation do to evaluations and likelihood, and what the paper says of it."""
    told = []
    for data in DATA:
        of = {s["recipe"]: s for s in summary(rows, data)}
        changes = [
            f"{recipe} {of['loose']['nfe']:.0f} → {of[recipe]['nfe']:.0f} evaluations at "
            f"{of[recipe]['test_nll'] - of['loose']['test_nll']:+.3f} nats"
            for recipe in ("weight decay", "spectral norm")
            if recipe in of and "loose" in of
        ]
        told += [f"{data}: {', '.join(changes)}"] if changes else []
    here = f"regularisation against evaluations (beside *loose*, which has none): {'; '.join(told) or 'not made'}."
    paper = "section 6: weight decay and spectral normalisation can reduce the number of evaluations, but tend to hurt "
    return here, paper + "performance slightly."


def _missing(rows: list[dict[str, Any]]) -> list[str]:
    """A line that tells which runs there are not, if any: by name, where they are few."""
    made = {(row["data"], row["recipe"]) for row in rows}
    left = {data: [recipe for recipe in RECIPES if (data, recipe) not in made] for data in DATA}
    short = lambda recipes: ", ".join(recipes) if len(recipes) <= 3 else f"{len(recipes)} of {len(RECIPES)} recipes"
    told = [f"{data} ({short(recipes)})" for data, recipes in left.items() if recipes]
    return [f"Not made in this run: {'; '.join(told)}.", ""] if told else []


def _variance_lines(variance: dict[str, Any]) -> list[str]:
    from ffjord.report.variance import variance_table

    if not variance:
        return []
    lines = [
        "## The trace's estimators",
        "",
        "Standard deviation over the noise of a test point's log-density (nats), against the products with the",
        "Jacobian that an evaluation takes; the flows trained by flow matching, 128 test points.",
        "",
        "![spread against products](variance.png)",
        "",
    ]
    for name, rows in variance.items():
        lines += [f"### {name}", "", variance_table(rows)]
    return lines


def _line(s: dict[str, Any]) -> str:
    return (
        f"| {s['recipe']} | {s['seeds']} | {s['test_nll']:.3f} ± {s['stderr']:.3f} | {s['nfe']:.0f} "
        f"| {s['fixed_nfe']:.0f} | {s['steps']:.0f} | {s['train_seconds']:.0f} | {_ratio(s['time_ratio'])} |"
    )
