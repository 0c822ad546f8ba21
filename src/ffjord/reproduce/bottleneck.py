"""Training with and without the bottleneck trick (equation 9), with two kinds of noise. Imports JAX when it runs."""

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import mean
from typing import Any, get_args

from ffjord.choices import NoiseKind
from ffjord.experiments import Experiment, find
from ffjord.reproduce.kept import Kept, fingerprint
from ffjord.reproduce.pages import Page, table, write_csv
from ffjord.reproduce.recipes import changed
from ffjord.runs import Run

TRACES = {"hutchinson": "without (D × D)", "bottleneck": "with the trick (H × H)"}
NOISES: tuple[NoiseKind, ...] = get_args(NoiseKind)
CELLS: tuple[tuple[str, NoiseKind], ...] = tuple((trace, noise) for noise in NOISES for trace in TRACES)

_COMMON = {
    "model.dynamics": "encoder-decoder",
    "model.hidden": (16, 1),
    "model.scales": 1,
    "model.flows": 1,
    "solve.rtol": 1e-3,
    "solve.atol": 1e-3,
    "solve.gradient": "checkpointed",
    "train.schedule": "constant",
    "train.learning_rate": 5e-3,
    "train.warmup": 0,
    "train.average": None,
    "train.validate_every": 100,
    "train.checkpoint_best": False,
}
_DIGITS = {
    "solve.test_divergence": "exact",
    "train.batch_size": 64,
    "train.steps": 2000,
    "train.steps_per_call": 10,
}
_MNIST = {
    "data.num_validation": 128,
    "train.batch_size": 32,
    "train.steps": 1000,
    "train.steps_per_call": 5,
}
_QUICK = {"train.steps": 200, "train.validate_every": 50}
_MEANED = 20
"""Steps that a point of a training curve is the mean of."""


def settings(trace: str, noise: str, *, quick: bool, seed: int, data_dir: str | None = None) -> Experiment:
    """The experiment of one curve: on MNIST, if it has a directory. All have the same first weights and batches."""
    base, own = (find("image/digits"), _DIGITS) if data_dir is None else (find("image/mnist-single"), _MNIST)
    own = own | {"solve.divergence": trace, "solve.noise": noise, "data.data_dir": data_dir}
    return dataclasses.replace(changed(base, _COMMON | own | (_QUICK if quick else {})), seed=seed)


def study(
    out: Path, runs: Path, *, quick: bool, seeds: int, data_dir: str | None, tell: Callable[[str], None]
) -> list[Path]:
    """Trains with each trace and each noise, and draws the losses; then the variances at the same weights."""
    from ffjord.reproduce.cells import trained
    from ffjord.reproduce.trace_variance import variances

    folder, rows = runs / ("digits" if data_dir is None else "mnist"), []
    place = lambda trace, noise, seed: folder / f"{trace}-{noise}" / str(seed)
    for seed in range(seeds):
        for trace, noise in CELLS:
            tell(f"{folder.name}, {trace}, {noise} noise, seed {seed}")
            experiment = settings(trace, noise, quick=quick, seed=seed, data_dir=data_dir)
            rows += curve(trained(place(trace, noise, seed), experiment)[0])
    run = Run.open(place("hutchinson", "gaussian", 0))
    tell("variances at the same weights")
    kept = Kept(folder, weights=fingerprint(run), quick=quick)
    spread = kept("variances", lambda: variances(run, CELLS, images=16 if quick else 64, repeats=8 if quick else 32))
    return _write(out, rows, spread, run, quick=quick)


def curve(run: Run) -> list[dict[str, Any]]:
    """Training losses in bits a dimension, gradient norms and evaluations, each a mean of some steps."""
    from ffjord.reproduce.cells import in_bits, read_metrics

    steps, _ = read_metrics(run)
    solve, rows = run.experiment.solve, []
    for end in range(_MEANED, len(steps) + 1, _MEANED):
        part = [row for row in steps[end - _MEANED : end] if row["sound"]]
        if part:
            own = {"trace": solve.divergence, "noise": solve.noise, "seed": run.experiment.seed}
            means = {name: mean(row[name] for row in part) for name in ("nfe", "grad_norm")}
            rows.append(own | {"step": end, "loss": in_bits(run, mean(row["loss"] for row in part))} | means)
    return rows


def of(rows: Iterable[dict[str, Any]], trace: str, noise: str) -> dict[int, float]:
    """The loss at every step, a mean over seeds."""
    at: dict[int, list[float]] = {}
    for row in rows:
        if (row["trace"], row["noise"]) == (trace, noise):
            at.setdefault(row["step"], []).append(row["loss"])
    return {step: mean(values) for step, values in sorted(at.items())}


def first_step(losses: dict[int, float], level: float) -> int | None:
    """The first step at which a loss is reached."""
    return next((step for step, loss in losses.items() if loss <= level), None)


def _write(out: Path, rows: list[dict[str, Any]], spread: list[dict[str, Any]], run: Run, *, quick: bool) -> list[Path]:
    out.mkdir(parents=True, exist_ok=True)
    draw(rows, spread).savefig(out / "bottleneck.png", dpi=110)
    write_csv(out / "curves.csv", rows)
    write_csv(out / "variances.csv", spread)
    _page(rows, spread, run, quick=quick).write(out)
    return [out / name for name in ("README.md", "bottleneck.png", "curves.csv", "variances.csv")]


def draw(rows: list[dict[str, Any]], spread: list[dict[str, Any]]) -> Any:
    """Training losses, a panel for each noise, and the variances."""
    from ffjord.report.lines import Line, Plot, draw_plots
    from ffjord.report.style import DATA, MODEL

    colours = {"hutchinson": DATA, "bottleneck": MODEL}
    losses = {cell: of(rows, *cell) for cell in CELLS}
    ordered = sorted(loss for curve in losses.values() for loss in curve.values())
    low, high = ordered[0], ordered[int(0.9 * (len(ordered) - 1))]  # the first losses would flatten the rest
    room = 0.06 * (high - low)
    plots = [
        Plot(
            f"training loss, {noise} noise",
            "step",
            "bits/dim",
            [Line(name, [*losses[t, noise]], [*losses[t, noise].values()], colours[t]) for t, name in TRACES.items()],
            y_range=(low - room, high + room),
        )
        for noise in NOISES
    ]
    variance = {(row["trace"], row["noise"]): row["log_prob_variance"] for row in spread}
    dots = [Line(name, (0, 1), [variance[t, noise] for noise in NOISES], colours[t]) for t, name in TRACES.items()]
    names = {"x_ticks": (0, 1), "x_names": NOISES}
    return draw_plots(
        [*plots, Plot("variance of log p at the same weights", "noise", "nats²", dots, y_log=True, **names)]
    )


def _faster(rows: list[dict[str, Any]], noise: str) -> str:
    """How the two traces compare in training with a noise."""
    without, trick = (of(rows, trace, noise) for trace in TRACES)
    last = max(without)
    first = first_step(trick, without[last])
    when = "is not reached with it" if first is None else f"is reached with it after {first}"
    return (
        f"with {noise} noise {trick[max(trick)]:.3f} bits/dim with the trick and {without[last]:.3f} without, which "
        f"{when}"
    )


def _page(rows: list[dict[str, Any]], spread: list[dict[str, Any]], run: Run, *, quick: bool) -> Page:
    known = {(row["trace"], row["noise"]): row for row in spread}
    factors = lambda what: " and ".join(
        f"{known['bottleneck', noise][what] / known['hutchinson', noise][what]:.2f} ({noise})" for noise in NOISES
    )
    dim, waist = (known[trace, "gaussian"]["size"] for trace in TRACES)
    seeds, model, train = len({row["seed"] for row in rows}), run.experiment.model, run.experiment.train
    mnist = run.experiment.data.data_dir is not None
    return Page(
        "bottleneck",
        "The bottleneck trick",
        finding=f"training loss after {train.steps} steps: {'; '.join(_faster(rows, noise) for noise in NOISES)}. At "
        f"the same weights the trick changes the variance of the trace by the factors {factors('trace_variance')}, and "
        f"that of log p by {factors('log_prob_variance')}.",
        paper="section 5.1, Figure 4 (MNIST): the bottleneck trick can lead to faster convergence when the trace is "
        "estimated with Gaussian noise; no faster convergence was observed with Rademacher noise.",
        figures={"bottleneck.png": "training losses with and without the trick, and variances"},
        tables=("curves.csv", "variances.csv"),
        text=f"Data: {'MNIST' if mnist else 'the 8 × 8 digits that come with scikit-learn (MNIST: `--data-dir DIR`)'}. "
        f"An encoder-decoder of {'-'.join(map(str, model.hidden))} filters, whose waist holds H = {waist} numbers "
        f"where the image has D = {dim}. The same first weights and batches for all four; Adam at "
        f"{train.learning_rate:g}, {seeds} seed{'s' if seeds > 1 else ''}; losses are means of {_MEANED} steps. "
        "Variances of one probe at the "
        "weights that were trained without the trick and with Gaussian noise: of the trace, from the Jacobians at "
        "three times on the way of test images; of log p, from repeated draws.",
        below=table(
            {
                "noise": row["noise"],
                "trick": TRACES[row["trace"]],
                "variance of the trace": f"{row['trace_variance']:.3g}",
                "variance of log p (nats²)": f"{row['log_prob_variance']:.3g}",
            }
            for row in spread
        ),
        quick=quick,
        words="--data-dir DIR" if mnist else "",
        seed=0,
    )
