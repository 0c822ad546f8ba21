"""Trains, evaluates and draws the paper's toy densities: what `results/` and `pretrained/` hold.

    make toys

A run that exists is resumed, so the script can be stopped and started again. On two cores it takes about an hour.
"""

import json
import shutil
from pathlib import Path

import jax

from ffjord import compilation
from ffjord.cli import main
from ffjord.report import Entry, gallery
from ffjord.runs import Run, write_json

TOYS = ("swissroll", "8gaussians", "pinwheel", "circles", "moons", "2spirals", "checkerboard", "rings")
FLOORS = {"8gaussians": 2.8313, "checkerboard": 3.4657, "1d": 1.9290}
ROOT = Path(__file__).parent.parent
PRETRAINED, RESULTS = ROOT / "src" / "ffjord" / "pretrained", ROOT / "results"


def finished(path: Path) -> bool:
    """Whether a run has made all its steps."""
    return path.exists() and last_metrics(path).get("step") == Run.open(path).experiment.train.steps


def last_metrics(path: Path) -> dict:
    """The last line of a run's metrics."""
    lines = (path / "metrics.jsonl").read_text().splitlines() if (path / "metrics.jsonl").exists() else []
    return json.loads(lines[-1]) if lines else {}


def train_and_evaluate(name: str) -> dict:
    """Trains a toy (or goes on with it), evaluates it once, and keeps its weights."""
    path = ROOT / "runs" / "toy" / name
    if not finished(path):
        assert main(["resume", str(path)] if path.exists() else ["train", f"toy/{name}", "--out", str(path)]) == 0
    if not (path / "results.json").exists():
        assert main(["evaluate", str(path)]) == 0
    kept = PRETRAINED / f"toy-{name}"
    kept.mkdir(parents=True, exist_ok=True)
    for file in ("config.json", "versions.json", "weights.npz", "results.json"):
        shutil.copyfile(path / file, kept / file)
    last = last_metrics(path)
    return json.loads((path / "results.json").read_text()) | {
        "train_steps": last["step"],
        "train_seconds": last["seconds"],
    }


def as_markdown(results: dict[str, dict]) -> str:
    """The table of results/toys.md."""
    machine = json.loads((PRETRAINED / "toy-8gaussians" / "versions.json").read_text())["machine"]
    lines = [
        "# Toy densities",
        "",
        "Test negative log-likelihood in nats: fresh points, exact trace, dopri5 at tolerance 1e-6, the model with the",
        "best validation loss. Made by `make toys`, which runs `ffjord train toy/NAME` and `ffjord evaluate "
        "runs/toy/NAME` for each;",
        "`ffjord evaluate pretrained/toy-NAME` repeats the evaluation. Seed 0. Training time is that of one of "
        f"{machine['cores']} shared {machine['processor']} cores.",
        "",
        "| toy | test NLL | standard error | entropy | NFE | training steps | training time |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, r in results.items():
        floor = f"{FLOORS[name]:.4f}" if name in FLOORS else ""
        lines.append(
            f"| {name} | {r['test_nll']:.4f} | {r['test_nll_stderr']:.4f} | {floor} | {r['nfe']:.0f} "
            f"| {r['train_steps']} | {r['train_seconds'] / 60:.1f} min |"
        )
    return "\n".join([*lines, "", "![data, samples and density of each toy](toys.png)", ""])


def draw_gallery(results: dict[str, dict]) -> None:
    """results/toys.png: data, samples and density of each."""
    entries = []
    for name in TOYS:
        run = Run.open(PRETRAINED / f"toy-{name}")
        entries.append(Entry(name, run.flow(), run.source().test(20_000), results[name]["test_nll"]))
    gallery(entries, key=jax.random.key(0)).savefig(RESULTS / "toys.png", dpi=110)


if __name__ == "__main__":
    compilation.enable_cache()
    RESULTS.mkdir(exist_ok=True)
    found = {name: train_and_evaluate(name) for name in (*TOYS, "1d")}
    write_json(RESULTS / "toys.json", found)
    (RESULTS / "toys.md").write_text(as_markdown(found))
    draw_gallery(found)
    assert main(["plot", str(ROOT / "runs" / "toy" / "pinwheel")]) == 0
    shutil.copyfile(ROOT / "runs" / "toy" / "pinwheel" / "flow.gif", RESULTS / "pinwheel.gif")
