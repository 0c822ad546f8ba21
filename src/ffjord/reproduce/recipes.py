"""Ways to train a flow, to be compared: the paper's, and what is to save function evaluations. Free of JAX."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from ffjord.experiments import Experiment, find

DATA = {
    "8gaussians": "toy/8gaussians",
    "checkerboard": "toy/checkerboard",
    "digits": "table/digits",
    "breast-cancer": "table/breast-cancer",
}
"""What is learned, and the experiment that it is."""


@dataclass(frozen=True)
class Recipe:
    """A way of training: settings that differ from the paper's."""

    about: str
    group: str
    """Recipes of a group are drawn alike."""
    changes: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Settings as {"train.steps": 2000}, for every data set."""
    own: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    """Further settings of single data sets."""
    main: bool = False
    """Whether it is trained with several seeds."""


_TEST = {"solve.test_rtol": 1e-5, "solve.test_atol": 1e-5, "solve.test_steps_shared_by": "batch"}
_PAPER = _TEST | {
    "solve.rtol": 1e-5,
    "solve.atol": 1e-5,
    "solve.gradient": "adjoint",
    "solve.noise": "gaussian",
    "train.learning_rate": 1e-3,
    "train.schedule": "constant",
    "train.average": None,
    "data.num_test": 20_000,
    "train.checkpoint_best": False,
    "train.steps_per_call": 50,
}
_PAPER_TOY = {
    "solve.divergence": "exact",
    "train.batch_size": 100,
    "train.weight_decay": 1e-5,
    "train.steps": 10_000,
    "train.validate_every": 250,
}
_PAPER_TABLE = {
    "solve.divergence": "hutchinson",
    "train.batch_size": 256,
    "train.weight_decay": 1e-6,
    "train.validate_every": 50,
    "train.patience": 10,
    "train.drops": 2,
}
PAPER = {
    "8gaussians": _PAPER | _PAPER_TOY,
    "checkerboard": _PAPER | _PAPER_TOY,
    "digits": _PAPER | _PAPER_TABLE | {"model.hidden": (320, 320), "train.steps": 2000},
    "breast-cancer": _PAPER | _PAPER_TABLE | {"model.hidden": (150, 150), "train.steps": 2000},
}
"""The paper's settings: those of its toys, and of its tables with the smallest width of its search (5 D)."""

_LOOSE = {
    "solve.rtol": 1e-3,
    "solve.atol": 1e-3,
    "solve.gradient": "checkpointed",
    "solve.divergence": "auto",
    "train.batch_size": 256,
    "train.learning_rate": 5e-3,
    "train.schedule": "cosine",
    "train.average": 0.99,
    "train.patience": None,
}
_LOOSE_OWN = {
    "8gaussians": {"train.steps": 1200, "train.validate_every": 200},
    "checkerboard": {"train.steps": 1200, "train.validate_every": 200},
    "digits": {"train.steps": 300, "train.validate_every": 50},
    "breast-cancer": {"train.steps": 300, "train.validate_every": 50},
}
_LONGER = {data: {"train.steps": 2500 if DATA[data].startswith("toy/") else 1000} for data in DATA}
_MATCHING = _LOOSE | {
    "train.objective": "flow-matching",
    "train.learning_rate": 2e-3,
    "train.average": 0.995,
    "train.batch_size": 512,
    "model.dynamics": "residual",
    "model.nonlinearity": "swish",
    "model.end_time": 1.0,
}
_MATCHING_OWN = {
    "8gaussians": {"train.steps": 8000, "train.validate_every": 250, "model.hidden": (128,) * 3},
    "checkerboard": {"train.steps": 12_000, "train.validate_every": 250, "model.hidden": (256,) * 4},
    "digits": {"train.steps": 2000, "train.validate_every": 100, "model.hidden": (256,) * 3},
    "breast-cancer": {"train.steps": 1500, "train.validate_every": 50, "model.hidden": (128,) * 3},
}
_THEN = {
    "8gaussians": {"train.warm_start": 5000, "train.steps": 5500, "model.hidden": (64,) * 3},
    "checkerboard": {"train.warm_start": 8000, "train.steps": 8500, "model.hidden": (128,) * 3},
    "digits": {"train.warm_start": 1000, "train.steps": 1100, "train.validate_every": 100},
    "breast-cancer": {"train.warm_start": 800, "train.steps": 900, "train.validate_every": 50},
}
_BOTH = {
    "train.objective": "likelihood",
    "train.likelihood_learning_rate": 5e-4,
    "train.batch_size": 256,
    "train.steps_per_call": 10,
}


def _likelihood(about: str, **changes: Any) -> Recipe:
    return Recipe(about, "likelihood", _LOOSE | {k.replace("__", "."): v for k, v in changes.items()}, _LOOSE_OWN)


def _matching(about: str, *, main: bool = False, **changes: Any) -> Recipe:
    changes = _MATCHING | {k.replace("__", "."): v for k, v in changes.items()}
    return Recipe(about, "matching", changes, _MATCHING_OWN, main)


def _both(about: str, *, main: bool = False, **changes: Any) -> Recipe:
    changes = _MATCHING | _BOTH | {k.replace("__", "."): v for k, v in changes.items()}
    own = {data: _MATCHING_OWN[data] | _THEN[data] for data in DATA}
    return Recipe(about, "both", changes, own, main)


RECIPES: dict[str, Recipe] = {
    "paper": Recipe("the paper's settings: tolerance 1e-5, continuous adjoint, Adam at 1e-3", "paper", main=True),
    "matching": _matching("flow matching, straight paths, a residual network", main=True),
    "warm-start": _both("flow matching, then the likelihood", main=True),
    "warm-start, simple": _both(
        "flow matching, then the likelihood with kinetic energy and Jacobian",
        regularization__kinetic=0.05,
        regularization__jacobian=0.05,
    ),
    "loose": _likelihood("likelihood at tolerance 1e-3 with exact gradients, a larger and falling learning rate"),
    "loose, longer": Recipe(
        "the same for more steps",
        "likelihood",
        _LOOSE,
        _LONGER,
    ),
    "loose, longer, simple": Recipe(
        "the same + 0.02 of kinetic energy and Jacobian",
        "likelihood",
        _LOOSE | {"regularization.kinetic": 0.02, "regularization.jacobian": 0.02},
        _LONGER,
    ),
    "tightening": _likelihood("loose, with a tolerance that falls from 1e-2 to 1e-3", solve__start_tolerance=0.01),
    "kinetic": _likelihood("loose + 0.05 ∫ |f|² / D", regularization__kinetic=0.05),
    "jacobian": _likelihood("loose + 0.05 ∫ ‖df/dz‖² / D", regularization__jacobian=0.05),
    "kinetic, jacobian": _likelihood(
        "loose + both of them", regularization__kinetic=0.05, regularization__jacobian=0.05
    ),
    "acceleration": _likelihood("loose + 0.01 ∫ |df/dt|² / D along the path", regularization__derivative=0.01),
    "derivative 2": _likelihood(
        "loose + 0.001 ∫ |d²f/dt²|² / D", regularization__derivative=1e-3, regularization__derivative_order=2
    ),
    "mean speed": _likelihood("loose + 0.05 ∫ mean |f|", regularization__mean_speed=0.05),
    "speed": _likelihood("loose + 0.05 ∫ RMS f", regularization__speed=0.05),
    "directional": _likelihood("loose + 0.05 ∫ RMS (df/dz) f", regularization__directional=0.05),
    "jacobian, full": _likelihood("loose + 0.05 ∫ RMS df/dz", regularization__jacobian_full=0.05),
    "jacobian, diagonal": _likelihood("loose + 0.05 ∫ RMS df_i/dz_i", regularization__jacobian_diagonal=0.05),
    "jacobian, off-diagonal": _likelihood(
        "loose + 0.05 ∫ mean of (df_i/dz_j)², i ≠ j", regularization__jacobian_off_diagonal=0.05
    ),
    "steer": _likelihood("loose, with an end time that varies by a quarter", regularization__steer=0.25),
    "weight decay": _likelihood("loose, with weight decay 1", train__weight_decay=1.0),
    "spectral norm": _likelihood("loose, with singular values of at most 4", train__spectral_norm=4.0),
    "matching, optimal": Recipe(
        "flow matching with optimal coupling, for fewer steps",
        "matching",
        _MATCHING | {"matching.coupling": "optimal", "train.batch_size": 256},
        {data: own | {"train.steps": 2000} for data, own in _MATCHING_OWN.items()},
    ),
    "matching, trigonometric": _matching(
        "flow matching along trigonometric paths", matching__interpolant="trigonometric"
    ),
    "paper, loose": Recipe(
        "the paper's settings, but for tolerance 1e-3 with exact gradients",
        "likelihood",
        {"solve.rtol": 1e-3, "solve.atol": 1e-3, "solve.gradient": "checkpointed"},
    ),
}
"""By name; the order in which they are made."""


def settings(data: str, recipe: str, seed: int, *, quick: bool = False) -> Experiment:
    """The experiment of one run."""
    known = RECIPES[recipe]
    changes = PAPER[data] | known.changes | known.own.get(data, {})
    experiment = dataclasses.replace(changed(find(DATA[data]), changes), seed=seed)
    return _sketched(experiment) if quick else experiment


def changed(experiment: Experiment, changes: dict[str, Any]) -> Experiment:
    """The experiment with settings such as {"train.steps": 2000}."""
    for name, value in changes.items():
        part, field = name.split(".")
        new = dataclasses.replace(getattr(experiment, part), **{field: value})
        experiment = dataclasses.replace(experiment, **{part: new})
    return experiment


def _sketched(experiment: Experiment) -> Experiment:
    """A run of seconds in place of minutes: a fiftieth of the steps, few points."""
    train = experiment.train
    call = 10
    steps = max(4 * call, train.steps // 50 // call * call)
    warm_start = train.warm_start * steps // train.steps // call * call
    every = max(call, steps // 4 // call * call)
    small = {"data.num_test": 1000, "data.num_validation": 256, "train.steps": steps, "train.warm_start": warm_start}
    return changed(experiment, small | {"train.validate_every": every, "train.steps_per_call": call})
