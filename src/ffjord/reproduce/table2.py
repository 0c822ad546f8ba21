"""Table 2: every model on the same rows for the same time, beside the paper's figures. Imports JAX when it runs."""

import dataclasses
import functools
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ffjord.experiments import COMPARISONS, EXPERIMENTS, Experiment, find
from ffjord.experiments.comparisons import PAPER
from ffjord.reproduce.kept import earlier, keep
from ffjord.reproduce.pages import beside, machine
from ffjord.reproduce.recipes import changed
from ffjord.runs import Run

DATA = ("power", "gas", "hepmass", "miniboone", "bsds300", "digits", "breast-cancer")
MODELS = ("real-nvp", "glow", "ffjord", "ffjord-fast", "made", "maf", "tan", "maf-ddsf", "nice", "planar", "iaf")
DEFAULT_MODELS = MODELS[:8]
"""Those of the paper's table, and our own way to train the paper's model."""

_FFJORD = {
    "power": "-0.46 ± 0.01",
    "gas": "-8.59 ± 0.12",
    "hepmass": "14.92 ± 0.08",
    "miniboone": "10.43 ± 0.04",
    "bsds300": "-157.40 ± 0.19",
}
_SAMPLES = 10_000
_SLOW = 6.0
"""Seconds for a tenth of the samples beyond which the time of all is told from that tenth."""


def settings(data: str, model: str, *, minutes: float, seed: int, data_dir: str | None = None) -> Experiment:
    """The experiment of one run: the model's own, with a limit of time in place of one of steps."""
    name = {"ffjord": f"table/{data}", "ffjord-fast": f"table/{data}-fast"}.get(model, f"table/{data}-{model}")
    changes: dict[str, Any] = {
        "data.num_validation": 2048,
        "data.data_dir": data_dir,
        "train.max_minutes": minutes,
        "train.patience": None,
        "train.schedule": "constant",  # a falling one would have to know how many steps there will be
    }
    if data == "breast-cancer":  # of 400 rows: large models have learnt them by heart after a hundred steps
        changes |= {"train.validate_every": 20}
    if model == "ffjord" and data in PAPER:  # its steps take seconds, and so does looking at them
        changes |= {"train.validate_every": 5, "train.steps_per_call": 1, "train.average": 0.9}
    if model == "ffjord" and data == "bsds300":  # 63 products with a Jacobian of three wide layers, for every row
        changes |= {"solve.test_divergence": "hutchinson"}
    return dataclasses.replace(changed(find(name), changes), seed=seed)


def models_for(data: str) -> list[str]:
    """The models that there are for a data set."""
    known = {"ffjord": True, "ffjord-fast": f"table/{data}-fast" in EXPERIMENTS}
    return [model for model in MODELS if known.get(model, f"table/{data}-{model}" in COMPARISONS)]


def study(
    out: Path,
    runs: Path,
    *,
    data: Iterable[str],
    models: Iterable[str],
    minutes: float,
    limit: int,
    data_dir: str | None = None,
    seed: int = 0,
    quick: bool = False,
    tell: Callable[[str], None],
) -> list[Path]:
    """Trains and scores every model on every set, and writes the table after each of them."""
    from ffjord.reproduce.cells import kept_result

    results, files = earlier(out), []
    for name in data:
        for model in (model for model in models if model in models_for(name)):
            tell(f"{name}, {model}: {minutes:g} minutes of training")
            experiment = settings(name, model, minutes=minutes, seed=seed, data_dir=data_dir)
            found = kept_result(runs / name / model, experiment, lambda run: _scored(run, limit))
            results[f"{name}, {model}"] = {"data": name, "model": model, "minutes": minutes} | found
            out.mkdir(parents=True, exist_ok=True)
            draw(list(results.values())).savefig(out / "table2.png", dpi=110)
            files = keep(out, results, functools.partial(as_markdown, quick=quick))
    return files


def draw(rows: list[dict[str, Any]]) -> Any:
    """Test losses beside the paper's."""
    from ffjord.report.standings import Standing, Standings, draw_standings

    panels = []
    for data in dict.fromkeys(row["data"] for row in rows):
        sound = [row for row in rows if row["data"] == data and "failed" not in row]
        known = [
            Standing(r["model"], r["test_nll"], r["test_nll_stderr"], in_the_paper(data, r["model"])) for r in sound
        ]
        panels.append(Standings(data, "test negative log-likelihood, nats", known))
    return draw_standings(panels)


def in_the_paper(data: str, model: str) -> float | None:
    """The paper's test negative log-likelihood."""
    if model.startswith("ffjord"):
        return float(_FFJORD[data].split(" ± ")[0]) if data in _FFJORD else None
    return PAPER.get(data, {}).get(model)


def _scored(run: Run, limit: int) -> dict[str, Any]:
    """Test and validation losses, and the time that samples take."""
    from ffjord.cli.evaluate import evaluate

    return evaluate(run, limit) | sampling_time(run.flow(), _SAMPLES)


def sampling_time(flow: Any, n: int) -> dict[str, Any]:
    """Seconds for n samples once everything is compiled; where these take minutes, told from a tenth of them."""
    import jax

    from ffjord.scoring import sample_blocks

    def seconds(count: int) -> float:
        began = time.perf_counter()
        for _ in sample_blocks(flow, count, key=jax.random.key(1)):
            pass
        return time.perf_counter() - began

    seconds(n // 10)  # compiles
    tenth = seconds(n // 10)
    whole = 10 * tenth
    if tenth < _SLOW:
        seconds(n)  # compiles the other size of a chunk
        whole = seconds(n)
    return {"sample_seconds": round(whole, 4), "sample_points": n, "sample_told_from": n if tenth < _SLOW else n // 10}


def as_markdown(rows: list[dict[str, Any]], *, quick: bool = False) -> str:
    """README.md of the study."""
    lines = [
        "# Table 2: every model for the same time",
        "",
        f"Made by `ffjord reproduce table2 {'--quick' if quick else '--data … --minutes …'}` on {machine()}.",
        "Negative log-likelihood in nats. Training stops after so many minutes,",
        "compilation and validation included; the model with the best validation loss (2048 rows) is scored on test",
        "rows. The architectures are those of each model's own paper as far as they are known",
        "(`experiments/comparisons.py`). The optimiser is the same for all, Adam at 1e-3 with averaged weights, but",
        "for FFJORD, which has the paper's settings, and *ffjord-fast*, which has ours. The paper's models were",
        "trained until they stopped improving, for hours or days. *Samples*: seconds for 10,000, ~ where told from a",
        "thousand.",
        "",
        *beside(*_finding(rows)),
        "",
        "![losses beside the paper's](table2.png)",
        "",
        "Data: [results.csv](results.csv).",
        "",
    ]
    for data in dict.fromkeys(row["data"] for row in rows):
        mine = [row for row in rows if row["data"] == data]
        minutes = ", ".join(f"{value:g}" for value in dict.fromkeys(row["minutes"] for row in mine))
        lines += [f"## {data}: {minutes} minutes a model", "", *_table(data, mine), ""]
    return "\n".join(lines)


def _finding(rows: list[dict[str, Any]]) -> tuple[str, str]:
    """What was found, and what the paper says."""
    told = []
    for data in dict.fromkeys(row["data"] for row in rows):
        known = sorted((row["test_nll"], row["model"]) for row in rows if row["data"] == data and "failed" not in row)
        if known:
            ours = "".join(f", {model} {nll:.2f}" for nll, model in known[1:] if model.startswith("ffjord"))
            told.append(f"{data}: {known[0][1]} is the best, {known[0][0]:.2f} nats{ours}")
    paper = "Table 2: FFJORD performs best of the reversible models by a wide margin, and is outperformed by recent "
    return "; ".join(told) + ".", paper + "autoregressive ones."


def _table(data: str, rows: list[dict[str, Any]]) -> list[str]:
    head = ("model", "parameters", "steps", "seconds", "validation", "test", "rows", "in the paper", "NFE", "samples")
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return lines + [f"| {' | '.join(_cells(data, row))} |" for row in rows]


def _cells(data: str, row: dict[str, Any]) -> list[str]:
    known = PAPER.get(data, {}).get(row["model"])
    paper = _FFJORD.get(data, "–") if row["model"].startswith("ffjord") else "–" if known is None else f"{known:.2f}"
    time_spent = [f"{row['steps']:,}", f"{row['train_seconds'] + row['compile_seconds']:.0f}"]
    if "failed" in row:
        return [row["model"], "", *time_spent, "failed", "", "", paper, "", ""]
    best = min((point["loss"] for point in row["curve"] if point["loss"] is not None), default=float("nan"))
    seconds = row["sample_seconds"]
    about = "" if row["sample_told_from"] == row["sample_points"] else "~"
    sampled = about + (f"{seconds:.2g}" if seconds < 99 else f"{seconds:.0f}")
    test = f"{row['test_nll']:.3f} ± {row['test_nll_stderr']:.3f}"
    nfe = f"{row['nfe']:.0f}" if row["nfe"] else "–"
    losses = [f"{best:.3f}", test, f"{row['points']:,}", paper]
    return [row["model"], f"{row['parameters']:,}", *time_spent, *losses, nfe, sampled]
