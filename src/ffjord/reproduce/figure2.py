"""Figure 2: Glow and FFJORD on the toys, side by side. JAX is imported when it runs."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ffjord.experiments import Experiment, find
from ffjord.files import write_json
from ffjord.reproduce.pages import beside, machine, write_scalars
from ffjord.reproduce.recipes import changed
from ffjord.runs import Run

DATA = ("swissroll", "8gaussians", "pinwheel", "circles", "moons", "2spirals", "checkerboard", "rings")
MODELS = {"glow": "Glow", "ffjord": "FFJORD"}
"""Rows of the figure, from above."""

_SKETCH = 5
"""A sketch has so many times fewer steps."""


def settings(data: str, model: str, *, quick: bool) -> Experiment:
    """The experiment of one panel."""
    experiment = find(f"toy/{data}-glow" if model == "glow" else f"toy/{data}")
    if not quick:
        return experiment
    steps = experiment.train.steps // _SKETCH
    few = {"data.num_test": 10_000, "train.steps": steps, "train.validate_every": 100}
    return changed(experiment, few | ({"model.flows": 20} if model == "glow" else {}))


def study(
    out: Path, runs: Path, *, quick: bool, data: Iterable[str], pretrained: bool, tell: Callable[[str], None]
) -> list[Path]:
    """Trains both models on every toy, and draws and tabulates what there is after each toy.

    With `pretrained`, FFJORD's flows are those that ship with the package (`make toys`).
    """
    results: dict[str, dict[str, Any]] = {}
    found: dict[str, Run] = {}
    for name in data:
        for model in MODELS:
            tell(f"{name}, {MODELS[model]}")
            key = f"{name}, {model}"
            found[key], results[key] = _run(name, model, runs, quick=quick, pretrained=pretrained)
        _write(out, results, found, quick=quick)
    return sorted(path for path in out.iterdir() if path.suffix in (".md", ".json", ".csv", ".png"))


def _run(name: str, model: str, runs: Path, *, quick: bool, pretrained: bool) -> tuple[Run, dict[str, Any]]:
    """A model that is trained and scored, and its scores."""
    from ffjord.cli.evaluate import evaluate
    from ffjord.reproduce.cells import kept_result

    if pretrained and model == "ffjord":
        run = Run.open(Path("pretrained") / f"toy-{name}")
        scores = json.loads(run.results.read_text())
    else:
        scores = kept_result(runs / model / name, settings(name, model, quick=quick), evaluate)
        run = Run.open(runs / model / name)
    return run, {"data": name, "model": model} | scores


def _write(out: Path, results: dict[str, dict[str, Any]], found: dict[str, Run], *, quick: bool) -> None:
    from ffjord.data.source import Held
    from ffjord.report.side_by_side import Column, Panel, draw_columns

    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "results.json", results)
    write_scalars(out / "results.csv", list(results.values()))
    (out / "README.md").write_text(as_markdown(list(results.values()), quick=quick))
    names = dict.fromkeys(row["data"] for row in results.values())
    columns = []
    for name in names:
        keys = [f"{name}, {model}" for model in MODELS if "failed" not in results[f"{name}, {model}"]]
        panels = [Panel(MODELS[results[key]["model"]], found[key].flow(), _caption(results[key])) for key in keys]
        columns.append(Column(name, Held.of(found[f"{name}, ffjord"].source().test(20_000)).x, panels))
    draw_columns(columns).savefig(out / "figure2.png", dpi=110)


def _caption(row: dict[str, Any]) -> str:
    return f"{row['test_nll']:.3f} nats, {row['parameters']:,} parameters"


def as_markdown(rows: list[dict[str, Any]], *, quick: bool) -> str:
    """README.md of the study."""
    lines = [
        "# Figure 2: Glow and FFJORD on the toys",
        "",
        f"Made by `ffjord reproduce figure2{' --quick' if quick else ''}` on {machine()}.",
        "Test negative log-likelihood in nats on fresh points. Glow has 100 layers, each a linear map and an affine",
        "coupling; FFJORD one continuous flow. Models with the best validation loss, seed 0.",
        "",
        *(["**A sketch: a fifth of the training, and 20 layers of Glow.**", ""] if quick else []),
        *beside(*_finding(rows)),
        "",
        "![data, Glow and FFJORD](figure2.png)",
        "",
        "| toy | Glow | parameters | FFJORD | parameters | NFE | FFJORD less Glow |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(row["data"] for row in rows):
        of = {row["model"]: row for row in rows if row["data"] == name}
        lines.append(f"| {name} | {' | '.join(_cells(of['glow'], of['ffjord']))} |")
    return "\n".join([*lines, "", "Data: [results.csv](results.csv).", ""])


def _finding(rows: list[dict[str, Any]]) -> tuple[str, str]:
    """What was found, and what the paper says."""
    nll = {(row["data"], row["model"]): row["test_nll"] for row in rows if "failed" not in row}
    gains = [
        nll[data, "glow"] - nll[data, "ffjord"] for data, model in nll if model == "glow" and (data, "ffjord") in nll
    ]
    better, mean = sum(gain > 0 for gain in gains), sum(gains) / max(1, len(gains))
    lower = f"{abs(mean):.3f} nats {'lower' if mean >= 0 else 'higher'} in the mean of all"
    here = f"FFJORD's test loss is below Glow's on {better} of {len(gains)} toys, and {lower}."
    paper = "Figure 2: Glow has trouble with areas of low probability between modes; FFJORD models disconnected "
    return here, paper + "modes and discontinuous densities, with roughly 70 to 100 evaluations."


def _cells(glow: dict[str, Any], ffjord: dict[str, Any]) -> list[str]:
    if "failed" in glow or "failed" in ffjord:
        return [row.get("failed", "") for row in (glow, ffjord)] + [""] * 4
    nll = lambda row: f"{row['test_nll']:.3f} ± {row['test_nll_stderr']:.3f}"
    both = [nll(glow), f"{glow['parameters']:,}", nll(ffjord), f"{ffjord['parameters']:,}", f"{ffjord['nfe']:.0f}"]
    return [*both, f"{ffjord['test_nll'] - glow['test_nll']:+.3f}"]
