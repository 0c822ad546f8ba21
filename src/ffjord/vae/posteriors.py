"""q(z | x): a Gaussian whose mean and variance an encoder tells, and a flow that it steers.

A posterior's flow is any bijection whose `forward` takes the encoder's features as its condition.
"""

import math
from collections.abc import Callable
from typing import get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ffjord.bijections import Chain
from ffjord.bijections.amortized import Amortized, Identity
from ffjord.bijections.base import AbstractBijection, Report
from ffjord.bijections.cnf import CNF
from ffjord.bijections.sylvester import Sylvester
from ffjord.choices import PosteriorName
from ffjord.divergence import Dynamics
from ffjord.dynamics.low_rank import LowRankMLP
from ffjord.experiments.config import ModelConfig
from ffjord.models.autoregressive import iaf
from ffjord.models.planar import PlanarLayer


class Drawn(eqx.Module):
    """Points of a posterior and their log-densities in it."""

    z: Float[Array, "n latent"]
    log_prob: Float[Array, " n"]
    report: Report
    start: Float[Array, "n latent"]
    """z₀, from which the flow came to z."""
    variance: Float[Array, "n latent"]
    """σ² of z₀."""


class Posterior(eqx.Module):
    """z = flow(z₀; x) with z₀ ~ N(μ(x), σ²(x)):  log q(z | x) = log N(z₀; μ, σ²) - log |det dz/dz₀|.

    **Arguments:**

    - `features`: size of what the encoder tells of x.
    - `latent`: size of z.
    - `flow`: forward maps z₀ to z, given the features.
    - `limits`: between which the variance is kept, if any.
    """

    mean: eqx.nn.Linear
    variance: eqx.nn.Linear
    flow: AbstractBijection
    limits: tuple[float, float] | None = eqx.field(static=True)

    def __init__(
        self,
        features: int,
        latent: int,
        flow: AbstractBijection,
        *,
        limits: tuple[float, float] | None = None,
        key: PRNGKeyArray,
    ):
        key_mean, key_variance = jax.random.split(key)
        self.mean = eqx.nn.Linear(features, latent, key=key_mean)
        self.variance = eqx.nn.Linear(features, latent, key=key_variance)
        self.flow, self.limits = flow, limits

    def sample(self, features: Float[Array, "n features"], *, train: bool = False, key: PRNGKeyArray) -> Drawn:
        """A point for every row of features."""
        key_noise, key_flow = jax.random.split(key)
        mean, variance = jax.vmap(self.mean)(features), jax.nn.softplus(jax.vmap(self.variance)(features))
        if self.limits is not None:
            variance = jnp.clip(variance, *self.limits)
        noise = jax.random.normal(key_noise, mean.shape, mean.dtype)
        start = mean + jnp.sqrt(variance) * noise
        out = self.flow.forward(start, condition=features, train=train, key=key_flow)
        log_start = -0.5 * jnp.sum(noise**2 + jnp.log(variance) + np.log(2 * np.pi), axis=1)
        return Drawn(out.value, log_start - out.log_det, out.report, start, variance)


MakeCNF = Callable[[Dynamics, tuple[int, ...]], CNF]


def posterior_flow(
    model: ModelConfig, latent: int, features: int, make_cnf: MakeCNF, *, key: PRNGKeyArray
) -> AbstractBijection:
    """The configured flow from z₀ to z, given the features."""
    if model.flows < 1:
        raise ValueError(f"flows must be at least 1; got {model.flows}.")
    if not 0 < model.image_scale < math.inf:
        raise ValueError(f"image_scale must be a positive number; got {model.image_scale}.")
    keys = jax.random.split(key, model.flows)
    match model.posterior:
        case "none":
            return Identity()
        case "planar":
            return Chain([_planar(latent, features, k) for k in keys])
        case "iaf":
            return iaf(latent, model, condition_size=features, key=key).bijection
        case "orthogonal" | "householder" | "triangular":
            return Chain([_sylvester(model, latent, features, i, k) for i, k in enumerate(keys)])
        case "ffjord":
            return Chain([_continuous(model, latent, features, make_cnf, k) for k in keys])
        case _:
            known = ", ".join(get_args(PosteriorName))
            raise ValueError(f"posterior must be one of {known}; got {model.posterior!r}.")


def _planar(latent: int, features: int, key: PRNGKeyArray) -> AbstractBijection:
    key_layer, key_net = jax.random.split(key)
    linear = eqx.nn.MLP(features, 2 * latent + 1, 1, 0, key=key_net)
    return PlanarLayer(latent, linear, key=key_layer)


def _sylvester(model: ModelConfig, latent: int, features: int, number: int, key: PRNGKeyArray) -> Amortized:
    layer = Sylvester(latent, model.posterior, model.columns, model.reflections, number % 2 == 1)  # pyright: ignore[reportArgumentType]
    key_linear, key_shared = jax.random.split(key)
    shared = layer.start(key_shared)
    flow = Amortized(layer, layer.condition_size, features, scale=model.image_scale, shared=shared, key=key_linear)
    outer = lambda a: jnp.where(layer.outer.reshape(-1, *[1] * (a.ndim - 1)), 0, a)
    return eqx.tree_at(lambda flow: flow.linear, flow, jax.tree.map(outer, flow.linear))


def _continuous(
    model: ModelConfig, latent: int, features: int, make_cnf: MakeCNF, key: PRNGKeyArray
) -> AbstractBijection:
    key_net, key_linear = jax.random.split(key)
    net = LowRankMLP(
        latent,
        model.hidden,
        amortization=model.amortization,
        rank=model.rank,
        matrix_scale=model.matrix_scale,
        nonlinearity=model.nonlinearity,
        key=key_net,
    )
    shared = lambda net: (net.weights[-1], net.times[-1], net.biases[-1])
    net = eqx.tree_at(shared, net, replace_fn=jnp.zeros_like)  # starts near the identity: the Gaussian is a good start
    cnf = make_cnf(net, (latent,))
    if model.amortization == "none":
        return cnf
    return Amortized(cnf, net.part_sizes, features, scale=model.image_scale, key=key_linear)
