"""Evaluations against loss, multi-scale against single-scale (section 5.3). JAX is imported when it runs."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from ffjord.errors import InputError
from ffjord.experiments import Experiment, find
from ffjord.reproduce.pages import Page, table, write_csv
from ffjord.reproduce.recipes import changed
from ffjord.runs import Run

MODELS = {"multi": ("multi-scale", "image/digits"), "single": ("single-scale", "image/digits-single")}
_ADJOINT = {"solve.gradient": "adjoint", "train.steps_per_call": 5}
_QUICK = {"train.steps": 200, "train.validate_every": 20, "train.batch_size": 64}


def settings(model: str, *, quick: bool, seed: int = 0) -> Experiment:
    """The experiment of a model: with the paper's gradient, whose evaluations count too."""
    changes = _ADJOINT | (_QUICK if quick else {})
    return dataclasses.replace(changed(find(MODELS[model][1]), changes), seed=seed)


def trained(runs: Path, model: str, *, quick: bool, seed: int = 0) -> Run:
    """The run of a model, trained if it is not there."""
    from ffjord.reproduce import cells

    return cells.trained(runs / model, settings(model, quick=quick, seed=seed))[0]


def study(
    out: Path, runs: Path, given: Mapping[str, Run], *, quick: bool, seed: int, tell: Callable[[str], None]
) -> list[Path]:
    """Trains both models, but for those given, and draws what their trainings have recorded."""
    for model, run in given.items():
        if not curve(run):
            raise InputError(f"--{model} {run.path} has recorded no validation with evaluations; train it for longer.")
    found = {}
    for model, (name, _) in MODELS.items():
        tell(f"{name}: {'as it was trained before' if model in given else 'training'}")
        found[model] = given.get(model) or trained(runs, model, quick=quick, seed=seed)
    curves = {model: curve(run) for model, run in found.items()}
    out.mkdir(parents=True, exist_ok=True)
    draw(curves).savefig(out / "multiscale.png", dpi=110)
    write_csv(out / "multiscale.csv", [{"model": MODELS[m][0], **row} for m, rows in curves.items() for row in rows])
    _page(found, curves, quick=quick, words=" ".join(f"--{m} RUN" for m in given), seed=seed).write(out)
    return [out / name for name in ("README.md", "multiscale.png", "multiscale.csv")]


def curve(run: Run) -> list[dict[str, Any]]:
    """For every validation: its bits a dimension, and the evaluations of a training step, meaned since the last.

    `nfe` is that of the forward solves, of all flows together; `backward` that of the adjoint's, or 0 where the
    gradient is not the adjoint's.
    """
    from ffjord.reproduce.cells import in_bits, read_metrics

    steps, validations = read_metrics(run)
    rows, begin = [], 0
    for point in validations:
        part = [row for row in steps if begin < row["step"] <= point["step"] and row["sound"] and "nfe" in row]
        begin = point["step"]
        if part:
            forward, backward = (mean(row.get(name, 0.0) for row in part) for name in ("nfe", "backward_nfe"))
            bits = in_bits(run, point["validation_loss"])
            own = {"step": point["step"], "bits_per_dim": bits, "nfe": forward, "backward": backward}
            rows.append(own | {"total": forward + backward, "validation_nfe": point["validation_nfe"]})
    return rows


def best(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The validation with the fewest bits."""
    return min(rows, key=lambda row: row["bits_per_dim"])


def draw(curves: dict[str, list[dict[str, Any]]]) -> Any:
    """Loss against evaluations, and both in the course of training."""
    from ffjord.report.lines import Line, Plot, draw_plots
    from ffjord.report.style import DATA, MODEL

    colours = {"multi": MODEL, "single": DATA}

    def lines(x: str, y: str) -> list[Line]:
        return [
            Line(MODELS[m][0], [row[x] for row in rows], [row[y] for row in rows], colours[m])
            for m, rows in curves.items()
        ]

    losses = sorted(row["bits_per_dim"] for rows in curves.values() for row in rows)
    low, high = losses[0], losses[int(0.85 * (len(losses) - 1))]  # the first losses would flatten the rest
    shown = (low - 0.06 * (high - low), high + 0.06 * (high - low))
    nfe, loss = "NFE of a training step, forward + backward", "validation bits/dim"
    return draw_plots(
        [
            Plot("loss against evaluations", nfe, loss, lines("total", "bits_per_dim"), y_range=shown),
            Plot("loss in training", "step", loss, lines("step", "bits_per_dim"), y_range=shown),
            Plot("evaluations in training", "step", nfe, lines("step", "total")),
        ]
    )


def _page(runs: dict[str, Run], curves: dict[str, list[dict[str, Any]]], *, quick: bool, words: str, seed: int) -> Page:
    from ffjord.parameters import count_parameters

    multi, single = (best(curves[model]) for model in MODELS)
    ratio = single["total"] / multi["total"]
    sizes = {model: count_parameters(run.flow()) for model, run in runs.items()}
    names = {run.experiment.data.name for run in runs.values()}
    return Page(
        "multiscale",
        "Multi-scale against single-scale",
        finding=f"at its best, the multi-scale flow has {multi['bits_per_dim']:.3f} bits/dim (validation) with "
        f"{multi['total']:.0f} evaluations a training step, the single-scale one {single['bits_per_dim']:.3f} with "
        f"{single['total']:.0f}: {ratio:.2f} times as many, at {sizes['multi']:,} and {sizes['single']:,} parameters.",
        paper="section 5.3, Figure 6 (MNIST): at a comparable number of parameters the single-scale model uses about "
        "half as many function evaluations, forward and backward, but does not achieve the same performance.",
        figures={"multiscale.png": "loss against evaluations, and both through training"},
        tables=("multiscale.csv",),
        text=f"Data: {', '.join(sorted(names))}. Evaluations are those of a training step, summed over all flows of "
        "the model, forwards and (with the continuous adjoint) backwards; a point is a validation, its evaluations the "
        "mean of the steps before it.",
        below=table(
            {
                "model": MODELS[model][0],
                "parameters": f"{sizes[model]:,}",
                "gradient": run.experiment.solve.gradient,
                "steps": str(curves[model][-1]["step"]),
                "best bits/dim": f"{best(curves[model])['bits_per_dim']:.3f}",
                "NFE forward": f"{best(curves[model])['nfe']:.0f}",
                "NFE backward": f"{best(curves[model])['backward']:.0f}",
                "run": f"`{run.path}`",
            }
            for model, run in runs.items()
        ),
        quick=quick,
        words=words,
        seed=seed,
    )
