"""Run directories made by hand, small and quick, for the tests of the page."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax

from ffjord.arrays import save_arrays
from ffjord.experiments import DataConfig, FileConfig, ModelConfig, SolveConfig, find
from ffjord.experiments.build import build_flow
from ffjord.runs import Run, write_json

RESULTS = {
    "test_nll": 2.3333475703048707,
    "test_nll_stderr": 0.003228209067626027,
    "points": 100000,
    "nfe": 158.3469387755102,
    "accepted_steps": 20.448979591836736,
    "rejected_steps": 5.775510204081633,
    "divergence": "Exact",
    "method": "dopri5",
    "rtol": 1e-06,
    "atol": 1e-06,
    "parameters": 9224,
    "seed": 0,
    "seconds": 70.14,
}
CHECKS = {
    "points": 64,
    "seed": 0,
    "version": "0.1.0",
    "summary": "warn",
    "verdicts": [
        {"name": "∫p = 1", "grade": "pass", "found": "1.0001", "limit": "1 ± 0.01", "meaning": "A density."},
        {"name": "overfitting", "grade": "warn", "found": "a < b", "limit": "gap", "meaning": "It overfits."},
    ],
}


def make_run(path: Path, name: str = "toy/moons", *, weights: bool = True, **parts: Any) -> Run:
    """A run of a small model with fixed steps and random weights, which move things a good way; its files are few."""
    experiment = find(name)
    solve = SolveConfig(method="midpoint", num_steps=4)
    defaults = {"model": ModelConfig(hidden=(8,), end_time=1.0), "solve": solve}
    defaults |= {"data": DataConfig(experiment.data.name, num_validation=64, num_test=500)}
    run = Run.create(path, replace(experiment, **(defaults | parts)))
    if weights:
        flow = build_flow(run.experiment, run.source())
        stronger = lambda leaf: 2 * leaf if eqx.is_inexact_array(leaf) else leaf
        save_arrays(run.weights, jax.tree.map(stronger, flow))
    return run


def of_file(path: Path, sha256: str, columns: tuple[str, ...], condition_on: tuple[str, ...] = ()) -> dict[str, Any]:
    """The parts of an experiment on a user's table."""
    file = FileConfig(str(path), sha256, columns, condition_on)
    return {"data": DataConfig("file"), "file": file}


def write_metrics(run: Run, steps: int, *, validate_every: int = 10) -> list[dict[str, Any]]:
    """Metrics of a made-up training; returns the rows."""
    rows = []
    for step in range(1, steps + 1):
        solver = {"nfe": 20.0 + step % 7, "backward_nfe": 30.0, "accepted": 3.0, "rejected": float(step % 3 == 0)}
        known = {"loss": 2 + 1 / step, **solver, "outcome": 0, "grad_norm": 1.0, "sound": True}
        rows.append({"step": step, **known, "seconds": round(0.1 * step, 3)})
        if step % validate_every == 0:
            validation = {"validation_loss": 2.01 + 1 / step, "validation_nfe": 40.0, "seconds": round(0.1 * step, 3)}
            rows.append({"step": step, **validation})
    append_metrics(run, rows)
    return rows


def append_metrics(run: Run, rows: list[dict[str, Any]]) -> None:
    with run.metrics.open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def write_results(run: Run, **changed: Any) -> dict[str, Any]:
    results = {"experiment": run.experiment.name} | RESULTS | changed
    write_json(run.results, results)
    return results


def figures(html: str, kind: str) -> list[dict[str, Any]]:
    """The values that the figures of a kind are drawn from."""
    found = re.findall(rf'<figure class="{kind}".*?<script type="application/json">(.*?)</script>', html, re.DOTALL)
    return [json.loads(text) for text in found]
