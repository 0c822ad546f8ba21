"""Every experiment by name. Free of JAX."""

import difflib
from dataclasses import replace
from typing import Any

from ffjord.errors import InputError
from ffjord.experiments.comparisons import KINDS, table_with, toy_with_glow
from ffjord.experiments.config import DataConfig, Experiment, ModelConfig, SolveConfig, TrainConfig
from ffjord.experiments.images import COMPARED_IMAGES, IMAGES
from ffjord.experiments.vae import AUTOENCODERS, COMPARED_AUTOENCODERS

_TOY_SOLVE = SolveConfig(rtol=1e-4, atol=1e-4)
_TABLE_SOLVE = SolveConfig(rtol=1e-4, atol=1e-4)

_TOYS = {
    "swissroll": ("a spiral with noise", "", 3000),
    "8gaussians": ("eight Gaussians on a circle", "entropy 2.8313", 3000),
    "pinwheel": ("five bent arms", "", 3000),
    "circles": ("two circles with noise", "", 3000),
    "moons": ("two half circles", "", 3000),
    "2spirals": ("two spirals", "", 4000),
    "checkerboard": ("eight squares", "entropy ln 32 = 3.4657", 9000),
    "rings": ("four thin rings", "", 7000),
}


def _toy(name: str, summary: str, floor: str, steps: int) -> Experiment:
    return Experiment(
        name=f"toy/{name}",
        summary=summary,
        paper="picture (Figure 2)" + (f"; {floor}" if floor else ""),
        data=DataConfig(name=name),
        solve=_TOY_SOLVE,
        train=TrainConfig(steps=steps),
    )


_ALL = [
    *(_toy(name, *about) for name, about in _TOYS.items()),
    Experiment(
        name="toy/1d",
        summary="three Gaussians on a line",
        paper="picture (Figure 1); entropy 1.9290",
        data=DataConfig(name="1d"),
        model=ModelConfig(hidden=(32, 32)),
        solve=_TOY_SOLVE,
        train=TrainConfig(steps=3000),
    ),
    Experiment(
        name="toy/picture",
        summary="any picture: --image FILE",
        paper="–",
        data=DataConfig(name="picture"),
        solve=_TOY_SOLVE,
        train=TrainConfig(steps=10_000),
    ),
]

_ALL += [
    Experiment(
        name=f"table/{name}",
        summary=summary,
        paper="–",
        data=DataConfig(name=name),
        model=ModelConfig(hidden=hidden, nonlinearity="softplus", end_time=1.0),
        solve=_TABLE_SOLVE,
        train=TrainConfig(steps=steps, learning_rate=1e-3, average=0.99, validate_every=50),
    )
    for name, summary, hidden, steps in (
        ("digits", "scikit-learn's digits: 64 dequantised pixels", (256, 256), 3000),
        ("breast-cancer", "scikit-learn's tumours: 30 columns", (128, 128), 1000),
    )
]

_PAPER_SOLVE = SolveConfig(
    divergence="hutchinson", noise="gaussian", gradient="adjoint", rtol=1e-6, atol=1e-8, test_rtol=1e-6, test_atol=1e-8
)
_PAPER_TRAIN = TrainConfig(
    steps=1_000_000,  # until validation stalls
    learning_rate=1e-3,
    schedule="constant",
    weight_decay=1e-6,
    clip=None,
    validate_every=200,
    patience=10,
    drops=2,
)


def _paper_table(name: str, dim: int, layers: int, multiplier: int, flows: int, batch: int, nll: str) -> Experiment:
    """The paper's best architecture (its table 4), tolerances, optimiser and stopping rule."""
    return Experiment(
        name=f"table/{name}",
        summary=f"{name.upper()}: {dim} columns",
        paper=nll,
        data=DataConfig(name=name, num_validation=10_000),
        model=ModelConfig(
            hidden=(multiplier * dim,) * layers,
            nonlinearity="tanh" if name in ("power", "gas") else "softplus",
            flows=flows,
            end_time=1.0,
        ),
        solve=_PAPER_SOLVE,
        train=replace(_PAPER_TRAIN, batch_size=batch),
    )


_ALL += [
    _paper_table("power", 6, 3, 10, 5, 10_000, "-0.46 ± 0.01"),
    _paper_table("gas", 8, 3, 20, 5, 1000, "-8.59 ± 0.12"),
    _paper_table("hepmass", 21, 2, 10, 10, 10_000, "14.92 ± 0.08"),
    _paper_table("miniboone", 43, 2, 20, 1, 1000, "10.43 ± 0.04"),
    _paper_table("bsds300", 63, 3, 20, 2, 10_000, "-157.40 ± 0.19"),
]

_MATCHED = TrainConfig(
    objective="flow-matching",
    batch_size=2048,
    learning_rate=2e-3,
    warmup=500,
    average=0.9995,
    validate_every=2000,
    steps_per_call=50,
)


def _fast_table(name: str, model: ModelConfig, **train: Any) -> Experiment:
    """Ours: flow matching, behind a map that makes the columns Gaussian in closed form."""
    paper = next(experiment for experiment in _ALL if experiment.name == f"table/{name}")
    return Experiment(
        name=f"table/{name}-fast",
        summary=f"{paper.summary}, by flow matching",
        paper=paper.paper,
        data=replace(paper.data, num_validation=2048),
        model=replace(model, nonlinearity="swish", end_time=1.0),
        solve=SolveConfig(test_rtol=1e-5, test_atol=1e-5, test_steps_shared_by="batch"),
        train=replace(_MATCHED, **train),
    )


def _residual(width: int, *, harmonics: int = 0) -> ModelConfig:
    """For few columns: every product with the Jacobian counts, and the exact trace takes one a column."""
    return ModelConfig(dynamics="residual", hidden=(width,) * 4, harmonics=harmonics, gaussianize="marginal")


_TWO_LAYERS = ModelConfig(hidden=(1024, 1024), gaussianize="radial")
"""For many columns: two hidden layers, whose exact trace costs what an estimate does."""

_ALL += [
    _fast_table("power", _residual(384, harmonics=5), steps=42_000, learning_rate=1.5e-3),
    _fast_table("gas", _residual(384, harmonics=5), steps=42_000, learning_rate=1.5e-3),
    _fast_table("hepmass", _residual(256), steps=30_000, batch_size=1024),
    _fast_table(
        "miniboone",
        replace(_TWO_LAYERS, hidden=(256, 256), gaussianize="marginal"),
        steps=6000,
        batch_size=512,
        weight_decay=0.1,
        average=0.995,
        validate_every=200,
    ),
    _fast_table("bsds300", _TWO_LAYERS, steps=18_000, learning_rate=1.5e-3, batch_size=1024),
]

_ALL += [*IMAGES, *AUTOENCODERS]

EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _ALL}

_COLUMNS = {"power": 6, "gas": 8, "hepmass": 21, "miniboone": 43, "bsds300": 63, "digits": 64, "breast-cancer": 30}

COMPARISONS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in [
        *(toy_with_glow(EXPERIMENTS[f"toy/{name}"]) for name in _TOYS),
        *(table_with(EXPERIMENTS[f"table/{name}"], kind, dim) for name, dim in _COLUMNS.items() for kind in KINDS),
        *COMPARED_IMAGES,
        *COMPARED_AUTOENCODERS,
    ]
}
"""The same data with the models that the paper compares with."""


def find(name: str) -> Experiment:
    """The named experiment, or an error that suggests near names."""
    known = EXPERIMENTS | COMPARISONS
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise InputError(f"there is no experiment {name!r}.{hint} `ffjord list` shows them all.")
