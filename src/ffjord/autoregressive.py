"""A base density whose columns have their distributions from the columns before."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.special import ndtri

from ffjord.bijections.recurrent import Memory
from ffjord.choices import NonlinearityName
from ffjord.flow import AbstractBase

_LARGEST_LOG_SCALE = 9.0


class Mixture(NamedTuple):
    """Σ_k weight_k N(mean_k, scale_k²)."""

    log_weights: Float[Array, "*n components"]
    means: Float[Array, "*n components"]
    log_scales: Float[Array, "*n components"]

    def log_prob(self, x: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """The log-density of one number for each mixture."""
        distance = (x[..., None] - self.means) * jnp.exp(-self.log_scales)
        terms = self.log_weights - 0.5 * distance**2 - self.log_scales
        return jax.nn.logsumexp(terms, axis=-1) - 0.5 * np.log(2 * np.pi)

    def sample(self, key: PRNGKeyArray, dtype: Any) -> Float[Array, "*n"]:
        """One number from each."""
        key_which, key_noise = jax.random.split(key)
        which = jax.random.categorical(key_which, self.log_weights)[..., None]
        pick = lambda array: jnp.take_along_axis(array, which, axis=-1)[..., 0]
        noise = jax.random.normal(key_noise, which.shape[:-1], dtype)
        return pick(self.means) + jnp.exp(pick(self.log_scales)) * noise


class AutoregressiveMixture(AbstractBase):
    """p(z) = Π_i p(z_i | z_1, …, z_{i-1}), every conditional a mixture of Gaussians (the "RAM" of TAN).

    The parameters of the mixture are what `Memory` says, a network of a recurrent state. Scales are between e⁻⁹ and
    e⁹. Sampling takes D steps, one after another; of densities, only the recurrent part does.

    **Arguments:**

    - `dim`: D.
    - `components`: Gaussians in each conditional.
    - `hidden`, `nonlinearity`: as in `Memory`.
    """

    event_shape: tuple[int, ...] = eqx.field(static=True)
    memory: Memory

    def __init__(
        self,
        dim: int,
        components: int = 40,
        hidden: Sequence[int] = (64,),
        *,
        nonlinearity: NonlinearityName = "relu",
        key: PRNGKeyArray,
    ):
        if components < 1:
            raise ValueError(f"components must be at least 1; got {components}.")
        memory = Memory(dim, 3 * components, hidden, nonlinearity=nonlinearity, key=key)
        self.event_shape = (dim,)
        self.memory = eqx.tree_at(lambda memory: memory.layers[-1].bias, memory, _spread(components))

    def conditionals(self, z: Float[Array, "n dim"]) -> Mixture:
        """p(z_i | z_1, …, z_{i-1}) for every column and row, with leading axes (dim, n)."""
        return _mixture(self.memory(z))

    def log_prob(self, z: Float[Array, "n dim"]) -> Float[Array, " n"]:
        return jnp.sum(self.conditionals(z).log_prob(z.T), axis=0)

    def sample(self, n: int, *, dtype: Any, key: PRNGKeyArray) -> Float[Array, "n dim"]:
        keys = jax.random.split(key, self.event_shape[0])
        draw = lambda told, key: _mixture(told).sample(key, dtype)
        return self.memory.generate(draw, keys, jnp.zeros((n, *self.event_shape), dtype))


def _mixture(told: Array) -> Mixture:
    logits, means, scales = jnp.split(told, 3, axis=-1)
    log_scales = _LARGEST_LOG_SCALE * jnp.tanh(scales / _LARGEST_LOG_SCALE)
    return Mixture(jax.nn.log_softmax(logits, axis=-1), means, log_scales)


def _spread(components: int) -> Array:
    """What a network without inputs should say first: narrow Gaussians, at the quantiles of a standard normal."""
    means = ndtri((np.arange(components) + 0.5) / components)
    return jnp.asarray(np.concatenate([np.zeros(components), means, np.full(components, -1.0)]), float)
