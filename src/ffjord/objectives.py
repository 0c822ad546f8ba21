"""What training minimises: functions (model, batch, key) -> (loss, Progress).

An objective that changes in the course of training has a method `at(step)`, which gives the one of that step. A batch
is an array of points, or `Conditioned`: points with their conditions.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ffjord.bijections import map_continuous_parts
from ffjord.bijections.base import Report
from ffjord.data.source import Conditioned
from ffjord.flow import Flow


class Progress(NamedTuple):
    """What an objective reports beside its loss."""

    metrics: dict[str, Array]
    """Scalars for the metrics file."""
    observed: Any
    """For `absorb`: what the data looked like on its way through the model."""


Objective = Callable[[Any, Any, PRNGKeyArray], tuple[Float[Array, ""], Progress]]


@dataclasses.dataclass(frozen=True)
class Likelihood:
    """The mean negative log-likelihood, with fresh noise for the batch (Algorithm 1), and what the path costs:

        -1/n Σ_i log p(x_i) + D Σ_k weight_k 1/n Σ_i penalty_k(x_i)

    Penalties are means over dimensions and log p is a sum, hence D: per dimension, both count alike in all D.

    **Arguments:**

    - `weights`: name and coefficient of every regulariser that counts; the flow's training numerics compute them.
    - `tightening`: how much looser than theirs the tolerances of the training solves are at which step, or None.
    """

    weights: tuple[tuple[str, float], ...] = ()
    tightening: "Tightening | None" = None

    def __call__(self, flow: Flow, batch: Any, key: PRNGKeyArray) -> tuple[Float[Array, ""], Progress]:
        x, condition = Conditioned.of(batch)
        density = flow.density(x, condition=condition, train=True, key=key)
        report, nll = density.report, -jnp.mean(density.log_prob)
        metrics = solver_metrics(report)
        if not self.weights:
            return nll, Progress(metrics, report.observed)
        loss, means = penalized(nll, report, self.weights, x[0].size)
        return loss, Progress(metrics | {"nll": nll} | means, report.observed)

    def at(self, step: Int[Array, ""]) -> Objective:
        """The objective of a step."""
        if self.tightening is None:
            return self
        factor = self.tightening.factor(step)
        return lambda flow, batch, key: self(loosened(flow, factor), batch, key)


likelihood = Likelihood()
"""The likelihood alone."""


@dataclasses.dataclass(frozen=True)
class Tightening:
    """Tolerances that start `ratio` times as large as they should be, and fall to what they should be over `steps`."""

    ratio: float
    steps: int

    def factor(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """ratio^(1 - step/steps), and 1 at the end."""
        return self.ratio ** (1 - jnp.clip(step / self.steps, 0.0, 1.0))


@dataclasses.dataclass(frozen=True)
class Staged:
    """One objective for the first `steps` steps, another after them."""

    first: Objective
    steps: int
    then: Objective


def objective_of(objective: Objective | Staged, step: int) -> Objective:
    """The objective whose turn it is."""
    if not isinstance(objective, Staged):
        return objective
    return objective.first if step < objective.steps else objective.then


def solver_metrics(report: Report) -> dict[str, Array]:
    """What a batch's solves took, for the metrics file."""
    return {
        "nfe": jnp.mean(report.nfe.astype(jnp.float32)),
        "accepted": jnp.mean(report.accepted.astype(jnp.float32)),
        "rejected": jnp.mean(report.rejected.astype(jnp.float32)),
        "outcome": jnp.max(report.outcome),
    }


def penalized(
    loss: Array, report: Report, weights: tuple[tuple[str, float], ...], size: int
) -> tuple[Array, dict[str, Array]]:
    """The loss with D Σ_k weight_k penalty_k for paths in D = `size` dimensions, and the penalties' means."""
    means = {name: jnp.mean(report.penalties[name]) for name, _ in weights}
    return loss + size * sum(weight * means[name] for name, weight in weights), means


def loosened(flow: Any, factor: Array) -> Any:
    """The model with so many times the tolerances in its training solves."""
    tolerances = lambda cnf: (cnf.training.solver.rtol, cnf.training.solver.atol)
    scaled = lambda cnf: eqx.tree_at(tolerances, cnf, tuple(factor * value for value in tolerances(cnf)))
    return map_continuous_parts(scaled, flow)
