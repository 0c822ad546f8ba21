"""Densities of the plane in spaces of any dimension, and flows that are trained on them.

x = Q (y, ε), with y in the plane, ε ~ N(0, I) in D - 2 dimensions and Q a rotation that is drawn once. What there is to
learn is the same for every D. JAX is imported when it runs.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ffjord.data.toys import Draw, eight_gaussians

HIDDEN, TOLERANCE = (64, 64), 1e-5
_STRETCH = (3.0, 0.3)
_BATCH, _VALIDATION = 256, 1024


class Planar(NamedTuple):
    """A density of the plane."""

    about: str
    draw: Draw
    log_density: Callable[[np.ndarray], np.ndarray]
    """n points -> n numbers, in nats."""


def _normal(y: np.ndarray, deviations: Any = 1.0) -> np.ndarray:
    """log N(y; 0, diag(deviations²))."""
    return np.sum(-0.5 * (y / deviations) ** 2 - np.log(deviations) - 0.5 * np.log(2 * np.pi), axis=-1)


def _eight(y: np.ndarray) -> np.ndarray:
    """The log-density of eight Gaussians."""
    angles = np.arange(8) * (np.pi / 4)
    centres = 4 * np.stack([np.cos(angles), np.sin(angles)], axis=1) / 1.414
    return np.logaddexp.reduce(_normal(y[:, None] - centres, 0.5 / 1.414), axis=1) - np.log(8)


PLANAR = {
    "N(0, I)": Planar(
        "an isotropic Gaussian (the paper's thought experiment)", lambda n, rng: rng.standard_normal((n, 2)), _normal
    ),
    "stretched Gaussian": Planar(
        f"one with standard deviations {_STRETCH[0]:g} and {_STRETCH[1]:g}",
        lambda n, rng: rng.standard_normal((n, 2)) * _STRETCH,
        lambda y: _normal(y, np.asarray(_STRETCH)),
    ),
    "eight Gaussians": Planar("the toy of eight Gaussians", eight_gaussians, _eight),
}


def embedding(name: str, dim: int) -> Draw:
    """(n, rng) -> n points x in R^dim."""

    def draw(n: int, rng: np.random.Generator) -> np.ndarray:
        y = PLANAR[name].draw(n, rng)
        return np.concatenate([y, rng.standard_normal((n, dim - 2))], axis=1) @ _rotation(dim).T

    return draw


def log_density(name: str, x: np.ndarray) -> np.ndarray:
    """log q(x) of n points, in nats: that of y and of ε."""
    turned = np.asarray(x, np.float64) @ _rotation(x.shape[1])
    return PLANAR[name].log_density(turned[:, :2]) + _normal(turned[:, 2:])


@functools.cache
def _rotation(dim: int) -> np.ndarray:
    """Q: uniformly distributed, and always the same."""
    q, r = np.linalg.qr(np.random.default_rng(dim).standard_normal((dim, dim)))
    return q * np.sign(np.diag(r))


def train_embedded(name: str, dim: int, steps: int, show: Callable[[dict[str, Any]], None]) -> list[dict[str, Any]]:
    """Trains a flow, and tells at every validation the evaluations that scoring its points took.

    `excess` is the mean of log q - log p at these points: an estimate of the relative entropy, how far the flow's p is
    from the data's q.
    """
    import jax

    from ffjord.data.source import FreshSamples
    from ffjord.experiments.config import ModelConfig, SolveConfig, TrainConfig
    from ffjord.models import build_model
    from ffjord.objectives import likelihood
    from ffjord.scoring import score
    from ffjord.training.loop import initial_state, train

    test = {"test_rtol": TOLERANCE, "test_atol": TOLERANCE, "test_steps_shared_by": "batch"}
    config = TrainConfig(steps=steps, batch_size=_BATCH, validate_every=max(1, steps // 12), steps_per_call=10)
    source = FreshSamples(embedding(name, dim), batch_size=_BATCH, seed=0, num_validation=_VALIDATION)
    flow = build_model(
        dim, ModelConfig(hidden=HIDDEN), SolveConfig(rtol=1e-4, atol=1e-4, **test), key=jax.random.key(0)
    )
    points = source.validation()
    best = np.mean(log_density(name, points))

    def validate(flow: Any) -> dict[str, float]:
        scores = score(flow, points)
        return {"loss": -float(np.mean(scores.log_prob, dtype=np.float64)), "nfe": scores.nfe}

    state, recorder = initial_state(flow, source, config, seed=0), Validations(show)
    first = {"step": 0} | {f"validation_{name}": value for name, value in validate(state.model).items()}
    train(state, source, likelihood, validate, config, seed=0, recorder=recorder)
    return [
        {"step": row["step"], "nfe": row["validation_nfe"], "excess": float(row["validation_loss"] + best)}
        for row in (first, *recorder.rows)
    ]


class Validations:
    """A recorder that keeps the validations of a training, and shows its steps."""

    def __init__(self, show: Callable[[dict[str, Any]], None]):
        self.show, self.rows = show, []

    def steps(self, rows: list[dict[str, Any]]) -> None:
        self.show(rows[-1])

    def validated(self, row: dict[str, Any], state: Any, improved: bool) -> None:
        self.show(row | {"best": float(state.best_loss)})
        self.rows.append(row)

    def event(self, row: dict[str, Any]) -> None:
        self.show(row)

    def boundary(self, state: Any) -> None: ...
