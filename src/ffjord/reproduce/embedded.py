"""Densities of the plane in spaces of any dimension, and flows that are trained on them.

x = Q (y, ε), with y in the plane, ε ~ N(0, I) in D - 2 dimensions and Q a rotation that is drawn once. What there is to
learn is the same for every D. JAX is imported when it runs.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from ffjord.data.toys import Draw, eight_gaussians

HIDDEN, TOLERANCE = (64, 64), 1e-5
_NOISE = 0.5 * math.log(2 * math.pi * math.e)
"""Entropy of N(0, 1) in nats."""
_STRETCH = (3.0, 0.3)
_BATCH, _VALIDATION = 256, 1024


class Planar(NamedTuple):
    """A density of the plane."""

    about: str
    draw: Draw
    entropy: float
    """In nats."""


PLANAR = {
    "N(0, I)": Planar(
        "an isotropic Gaussian (the paper's thought experiment)", lambda n, rng: rng.standard_normal((n, 2)), 2 * _NOISE
    ),
    "stretched Gaussian": Planar(
        f"one with standard deviations {_STRETCH[0]:g} and {_STRETCH[1]:g}",
        lambda n, rng: rng.standard_normal((n, 2)) * _STRETCH,
        2 * _NOISE + math.log(_STRETCH[0] * _STRETCH[1]),
    ),
    "eight Gaussians": Planar("the toy of eight Gaussians", eight_gaussians, 2.8313),
}


def embedding(name: str, dim: int) -> Draw:
    """(n, rng) -> n points x in R^dim."""
    import numpy as np

    q, r = np.linalg.qr(np.random.default_rng(dim).standard_normal((dim, dim)))
    rotation = q * np.sign(np.diag(r))

    def draw(n: int, rng: Any) -> Any:
        y = PLANAR[name].draw(n, rng)
        return np.concatenate([y, rng.standard_normal((n, dim - 2))], axis=1) @ rotation.T

    return draw


def entropy(name: str, dim: int) -> float:
    """That of x, in nats: no model's expected negative log-likelihood is below it."""
    return PLANAR[name].entropy + (dim - 2) * _NOISE


def train_embedded(name: str, dim: int, steps: int, show: Callable[[dict[str, Any]], None]) -> list[dict[str, Any]]:
    """Trains a flow, and tells at every validation the evaluations that scoring its points took.

    `excess` is the negative log-likelihood less the entropy: in expectation, how far the flow is from the data.
    """
    import jax
    import numpy as np

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

    def validate(flow: Any) -> dict[str, Any]:
        scores = score(flow, points)
        return {"loss": -float(np.mean(scores.log_prob, dtype=np.float64)), "nfe": scores.nfe}

    state, recorder = initial_state(flow, source, config, seed=0), Validations(show)
    first = {"step": 0} | {f"validation_{name}": value for name, value in validate(state.model).items()}
    train(state, source, likelihood, validate, config, seed=0, recorder=recorder)
    return [
        {"step": row["step"], "nfe": row["validation_nfe"], "excess": row["validation_loss"] - entropy(name, dim)}
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
