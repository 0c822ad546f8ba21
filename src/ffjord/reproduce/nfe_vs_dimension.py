"""Function evaluations against the dimension of the data (section 5.2). JAX is imported when it runs."""

import dataclasses
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ffjord.experiments import Experiment, find
from ffjord.reproduce.embedded import HIDDEN, PLANAR, TOLERANCE, train_embedded
from ffjord.reproduce.kept import Kept
from ffjord.reproduce.pages import Page, table, write_csv
from ffjord.reproduce.recipes import changed

DIMENSIONS, FEW_DIMENSIONS = tuple(2**k for k in range(1, 10)), (2, 8, 32, 128, 512)
LATENTS = (16, 32, 48, 64)
AUTOENCODER = "autoencoder"
_FLOW = (256, 256)
"""Hidden units of the flow in the paper's autoencoders."""


class Series(NamedTuple):
    """What is trained at every dimension."""

    train: Callable[[Path, int, int], list[dict[str, Any]]]
    """(folder of runs, dimension, steps) -> validations in the course of a training: rows with `step`, `nfe` and
    `excess`, which is what is left to learn, or with `bound` in its place, the negative one of an autoencoder."""
    dimensions: tuple[int, ...] = DIMENSIONS
    few: tuple[int, ...] = FEW_DIMENSIONS
    """Those of a sketch."""


def _embedded(name: str, folder: Path, dim: int, steps: int) -> list[dict[str, Any]]:
    from ffjord.cli.progress import TrainingDisplay

    with TrainingDisplay(steps, every_seconds=30.0) as display:
        return train_embedded(name, dim, steps, display)


def autoencoder(latent: int, steps: int) -> Experiment:
    """The 8 × 8 digits' autoencoder with the flow of the paper's Figure 5 over so many latent dimensions."""
    model = {"model.latent": latent, "model.hidden": _FLOW, "model.nonlinearity": "softplus"}
    train = {"train.steps": steps, "train.kl_warmup": steps // 4, "train.validate_every": max(1, steps // 12)}
    test = {"solve.divergence": "hutchinson", "solve.test_rtol": TOLERANCE, "solve.test_atol": TOLERANCE}
    own = {"train.average": None, "train.patience": None, "train.learning_rate": 1e-3}
    return dataclasses.replace(changed(find("vae/digits"), model | train | test | own), seed=0)


def _autoencoder(folder: Path, latent: int, steps: int) -> list[dict[str, Any]]:
    from ffjord.reproduce.cells import read_metrics, trained

    run, _ = trained(folder / AUTOENCODER / str(latent), autoencoder(latent, steps))
    return [
        {"step": row["step"], "nfe": row["validation_nfe"], "bound": row["validation_loss"]}
        for row in read_metrics(run)[1]
    ]


SERIES: dict[str, Series] = {
    **{name: Series(partial(_embedded, name)) for name in PLANAR},
    AUTOENCODER: Series(_autoencoder, LATENTS, (LATENTS[0], LATENTS[-1])),
}
"""Another kind of model is another line."""

Curves = dict[tuple[str, int], list[dict[str, Any]]]
"""(series, dimension) -> what its training has found."""


def study(
    out: Path,
    runs: Path,
    *,
    quick: bool,
    dimensions: Iterable[int],
    series: Iterable[str],
    steps: int,
    tell: Callable[[str], None],
) -> list[Path]:
    """Trains every series at every dimension, its own if none are given, and draws evaluations against dimension and
    through training."""
    kept, curves, given = Kept(runs, steps=steps), {}, tuple(dimensions)
    for name in series:
        one = SERIES[name]
        for dim in given or (one.few if quick else one.dimensions):
            tell(f"{name}, D = {dim}")
            curves[name, dim] = kept(f"{name}, {dim}", partial(one.train, runs, dim, steps))
    out.mkdir(parents=True, exist_ok=True)
    draw(curves).savefig(out / "nfe-vs-dimension.png", dpi=110)
    blank = {"excess": "", "bound": ""}
    about = lambda name, dim: {"series": name, "dimension": dim, "step": 0, "nfe": 0.0}
    rows = [about(*key) | blank | point for key, curve in curves.items() for point in curve]
    write_csv(out / "nfe-vs-dimension.csv", rows)
    _page(curves, steps, quick=quick).write(out)
    return [out / name for name in ("README.md", "nfe-vs-dimension.png", "nfe-vs-dimension.csv")]


def _names(curves: Curves) -> list[str]:
    return list(dict.fromkeys(name for name, _ in curves))


def ends(curves: Curves, name: str) -> dict[int, dict[str, Any]]:
    """What a series had at the end of training, by dimension."""
    return dict(sorted((dim, curve[-1]) for (own, dim), curve in curves.items() if own == name))


def draw(curves: Curves) -> Any:
    """Evaluations after training against the dimension, what is left to learn, and evaluations through training."""
    from matplotlib.colors import to_hex

    from ffjord.report.lines import Line, Plot, draw_plots
    from ffjord.report.style import DATA, GLOW, INK, MODEL, THIRD

    colours = dict(zip(_names(curves), (INK, DATA, MODEL, THIRD), strict=False))
    dims = sorted({dim for _, dim in curves})
    highest = 1.15 * max(point["nfe"] for curve in curves.values() for point in curve)

    def against(title: str, label: str, what: str) -> Plot:
        found = {name: e for name in colours if what in next(iter((e := ends(curves, name)).values()))}
        lines = [Line(n, list(e), [point[what] for point in e.values()], colours[n]) for n, e in found.items()]
        return Plot(title, "dimension D", label, lines, x_log=True, x_ticks=dims)

    hardest = max(curves, key=lambda key: curves[key][-1]["nfe"])[0]
    through = []
    for i, (dim, curve) in enumerate((dim, curves[hardest, dim]) for dim in dims if (hardest, dim) in curves):
        shade = to_hex(GLOW(0.45 + 0.5 * i / len(dims)))
        through.append(Line(f"D = {dim}", [p["step"] for p in curve], [p["nfe"] for p in curve], shade, plain=True))
    plots = [
        against("evaluations after training", "NFE", "nfe")._replace(y_range=(0, highest)),
        against("what is left to learn", "relative entropy, nats", "excess"),
        Plot(f"in the course of training: {hardest}", "step", "NFE", through, y_range=(0, highest)),
    ]
    return draw_plots([plot for plot in plots if plot.lines])


def _page(curves: Curves, steps: int, *, quick: bool) -> Page:
    names = _names(curves)
    return Page(
        "nfe-vs-dimension",
        "Function evaluations against dimension",
        finding=f"after {steps} steps of training, {'; '.join(_told(name, ends(curves, name)) for name in names)}.",
        paper="section 5.2, Figure 5 (VAEs on MNIST with 16 to 64 latent dimensions): the NFE increases throughout "
        "training, but converges to the same value, independent of D; for an isotropic Gaussian the optimal dynamics "
        "is zero for any D.",
        figures={"nfe-vs-dimension.png": "evaluations against the dimension and through training"},
        tables=("nfe-vs-dimension.csv",),
        text=" ".join(_about(names)),
        below=table({"D": str(dim)} | _cells(curves, dim) for dim in sorted({dim for _, dim in curves})),
        quick=quick,
        seed=0,
    )


def _about(names: list[str]) -> Iterable[str]:
    """How each kind of series was made."""
    planar = [PLANAR[name].about for name in names if name in PLANAR]
    if planar:
        yield (
            f"Densities of the plane, embedded in R^D by a random rotation beside Gaussian noise: {', '.join(planar)}. "
            f"For every D a flow with {'-'.join(map(str, HIDDEN))} hidden units, trained by its likelihood with the "
            "exact trace; NFE of scoring 1024 points."
        )
    if AUTOENCODER in names:
        yield (
            "Autoencoders of the 8 × 8 digits with D latent dimensions, whose posterior is a flow with "
            f"{'-'.join(map(str, _FLOW))} hidden units and low-rank weights of each image's own; NFE of validation."
        )
    yield (
        f"Solved with dopri5 at tolerance {TOLERANCE:g}, all points sharing their steps; the error that steers the "
        "steps is a mean over dimensions for z, and that of log p, which is a sum over them, whichever is larger. The "
        "table has NFE and, in brackets, what was reached, in nats: the relative entropy of data and flow, or the "
        "negative bound of an autoencoder. Flows compare where that is about the same."
    )


def _told(name: str, found: dict[int, dict[str, Any]]) -> str:
    values = [point["nfe"] for point in found.values()]
    if min(values) == max(values):
        return f"{name} takes {values[0]:.0f} evaluations for every D"
    ends = f"{values[0]:.0f} at D = {min(found)} and {values[-1]:.0f} at D = {max(found)}"
    return f"{name} takes {min(values):.0f} to {max(values):.0f}, {ends}"


def _cells(curves: Curves, dim: int) -> dict[str, str]:
    known = {name: curves[name, dim][-1] for name in _names(curves) if (name, dim) in curves}
    reached = lambda point: f"{point['excess']:+.2f}" if "excess" in point else f"{point['bound']:.1f}"
    told = {name: f"{point['nfe']:.0f} ({reached(point)})" for name, point in known.items()}
    return {name: told.get(name, "–") for name in _names(curves)}
