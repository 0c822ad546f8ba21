"""Figure 1: a flow on the line, from the base to three Gaussians. JAX is imported when it runs."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ffjord.experiments import Experiment, find
from ffjord.reproduce.pages import Page, write_csv
from ffjord.reproduce.recipes import changed
from ffjord.runs import Run

_QUICK = {"train.steps": 1500, "train.validate_every": 100, "data.num_test": 20_000}
_SHOWN = slice(None, None, 4)
"""Of times and cells, those in the file of numbers."""
_SPAN, _CELLS = 9.0, 4096


def settings(*, quick: bool, seed: int) -> Experiment:
    """The experiment whose model it is."""
    experiment = dataclasses.replace(find("toy/1d"), seed=seed)
    return changed(experiment, _QUICK) if quick else experiment


def trained(runs: Path, *, quick: bool, seed: int) -> tuple[Run, dict[str, Any]]:
    """The model, trained if it is not there, and its scores."""
    from ffjord.cli.evaluate import evaluate
    from ffjord.reproduce import cells

    return cells.trained(runs / "flow", settings(quick=quick, seed=seed), evaluate)


def study(out: Path, runs: Path, *, quick: bool, seed: int, tell: Callable[[str], None]) -> list[Path]:
    """Trains the flow, and draws its density over time."""
    import jax

    from ffjord.data.source import Held
    from ffjord.data.toys import mixture_1d_density
    from ffjord.report.evaluate import for_pictures
    from ffjord.report.line import draw_line, over_time

    tell("training on three Gaussians")
    run, scores = trained(runs, quick=quick, seed=seed)
    flow, data = run.flow(), Held.of(run.source().test(20_000)).x
    tell("drawing")
    found = over_time(for_pictures(flow), data, key=jax.random.key(seed))
    out.mkdir(parents=True, exist_ok=True)
    draw_line(found, data, truth=mixture_1d_density(found.x)).savefig(out / "figure1.png", dpi=110)
    write_csv(out / "density.csv", _density_rows(found))
    write_csv(out / "paths.csv", _path_rows(found))
    _page(scores, distances(flow), quick=quick, seed=seed).write(out)
    return [out / name for name in ("README.md", "figure1.png", "density.csv", "paths.csv")]


def distances(flow: Any) -> dict[str, Any]:
    """How far the learned density p is from the data's q: ½∫|p - q| and ∫ q log(q/p), and how many modes p has."""
    import numpy as np

    from ffjord.data.toys import mixture_1d_density
    from ffjord.report.grid import Extent, grid_points
    from ffjord.scoring import score

    x = grid_points(Extent(np.array([-_SPAN]), np.array([_SPAN])), _CELLS)
    log_p = np.asarray(score(flow, x).log_prob, np.float64)
    p, q, width = np.exp(log_p), mixture_1d_density(x[:, 0]), 2 * _SPAN / _CELLS
    rises = np.diff(p[p > 0.01 * p.max()]) > 0
    return {
        "total_variation": float(0.5 * np.sum(np.abs(p - q)) * width),
        "divergence": float(np.sum(np.where(q > 0, q * (np.log(np.maximum(q, 1e-300)) - log_p), 0)) * width),
        "modes": int(np.sum(rises[:-1] & ~rises[1:])),
    }


def _density_rows(found: Any) -> list[dict[str, Any]]:
    times, x, density = found.times[_SHOWN], found.x[_SHOWN], found.density[_SHOWN, _SHOWN]
    return [
        {"t": float(t), "x": float(place), "density": float(density[i, j])}
        for i, t in enumerate(times)
        for j, place in enumerate(x)
    ]


def _path_rows(found: Any) -> list[dict[str, Any]]:
    return [
        {"path": number, "t": float(t), "x": float(place)}
        for number, path in enumerate(found.paths.T)
        for t, place in zip(found.times[_SHOWN], path[_SHOWN], strict=True)
    ]


def _page(scores: dict[str, Any], found: dict[str, Any], *, quick: bool, seed: int) -> Page:
    return Page(
        "figure1",
        "Figure 1: a flow on the line",
        finding=f"the flow turns N(0, 1) into a density of {found['modes']} modes that differs from the data's by "
        f"{found['total_variation']:.4f} of the mass (total variation) and {found['divergence']:.5f} nats (relative "
        f"entropy). Test negative log-likelihood {scores['test_nll']:.4f} ± {scores['test_nll_stderr']:.4f} nats with "
        f"{scores['nfe']:.0f} evaluations; the data's entropy is 1.9290.",
        paper="Figure 1: FFJORD transforms a simple base distribution at t0 into the target distribution at t1 by "
        "integrating over learned continuous dynamics. No number is told.",
        figures={"figure1.png": "base, density over time, and data"},
        tables=("density.csv", "paths.csv"),
        text="Left: the base. Middle: the density at every time, with the paths of forty samples. Right: the learned "
        "density (warm), data (histogram) and the data's own density (dashes): three equal Gaussians with means -2.8, "
        f"-0.9, 2.0 and variance 0.4. Experiment `toy/1d`{', with half of its steps' if quick else ''}.",
        quick=quick,
        seed=seed,
    )
