"""What training minimises: functions (model, batch, key) -> (loss, Progress)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ffjord.flow import Flow


class Progress(NamedTuple):
    """What an objective reports beside its loss."""

    metrics: dict[str, Array]
    """Scalars for the metrics file."""
    observed: Any
    """For `absorb`: what the data looked like on its way through the model."""


Objective = Callable[[Any, Any, PRNGKeyArray], tuple[Float[Array, ""], Progress]]


def likelihood(flow: Flow, x: Float[Array, "n *event"], key: PRNGKeyArray) -> tuple[Float[Array, ""], Progress]:
    """The mean negative log-likelihood, -1/n Σ log p(x_i), with fresh noise for the batch (Algorithm 1)."""
    density = flow.density(x, train=True, key=key)
    report = density.report
    metrics = {
        "nfe": jnp.mean(report.nfe.astype(jnp.float32)),
        "accepted": jnp.mean(report.accepted.astype(jnp.float32)),
        "rejected": jnp.mean(report.rejected.astype(jnp.float32)),
        "outcome": jnp.max(report.outcome),
    }
    return -jnp.mean(density.log_prob), Progress(metrics, report.observed)
