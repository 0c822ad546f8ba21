"""Every experiment by name. Free of JAX."""

import difflib

from ffjord.errors import InputError
from ffjord.experiments.config import DataConfig, Experiment, ModelConfig, SolveConfig, TrainConfig

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
        paper="picture (Figure 1); entropy 1.928",
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

EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _ALL}


def find(name: str) -> Experiment:
    """The named experiment, or an error that suggests near names."""
    if name in EXPERIMENTS:
        return EXPERIMENTS[name]
    near = difflib.get_close_matches(name, EXPERIMENTS, n=3, cutoff=0.4)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise InputError(f"there is no experiment {name!r}.{hint} `ffjord list` shows them all.")
