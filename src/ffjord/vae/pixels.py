"""Distributions of pixels given what a decoder says: black and white, or grey levels."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


class AbstractPixels(eqx.Module):
    """p(x | z) of an image, its pixels independent given z."""

    @property
    @abc.abstractmethod
    def outputs(self) -> int:
        """Numbers that the decoder gives a pixel."""

    @property
    @abc.abstractmethod
    def top(self) -> float:
        """The largest value of a pixel; the encoder sees x / top."""

    @abc.abstractmethod
    def log_prob(self, told: Float[Array, "h w outputs"], x: Float[Array, "h w 1"]) -> Float[Array, ""]:
        """log p(x | z) in nats."""

    @abc.abstractmethod
    def mean(self, told: Float[Array, "h w outputs"]) -> Float[Array, "h w 1"]:
        """E[x | z] / top, to be looked at."""

    @abc.abstractmethod
    def sample(self, told: Float[Array, "h w outputs"], *, key: PRNGKeyArray) -> Float[Array, "h w 1"]:
        """An image."""


class Bernoulli(AbstractPixels):
    """Pixels 0 or 1: log p = x log σ(l) + (1 - x) log σ(-l), l the decoder's logit."""

    @property
    def outputs(self) -> int:
        return 1

    @property
    def top(self) -> float:
        return 1.0

    def log_prob(self, told: Float[Array, "h w outputs"], x: Float[Array, "h w 1"]) -> Float[Array, ""]:
        return jnp.sum(x * told - jax.nn.softplus(told))

    def mean(self, told: Float[Array, "h w outputs"]) -> Float[Array, "h w 1"]:
        return jax.nn.sigmoid(told)

    def sample(self, told: Float[Array, "h w outputs"], *, key: PRNGKeyArray) -> Float[Array, "h w 1"]:
        return jax.random.bernoulli(key, jax.nn.sigmoid(told)).astype(told.dtype)


class Categorical(AbstractPixels):
    """Grey levels 0 … `levels` - 1, each with a logit of its own."""

    levels: int = eqx.field(static=True, default=256)

    @property
    def outputs(self) -> int:
        return self.levels

    @property
    def top(self) -> float:
        return self.levels - 1.0

    def log_prob(self, told: Float[Array, "h w outputs"], x: Float[Array, "h w 1"]) -> Float[Array, ""]:
        chosen = jnp.take_along_axis(told, x.astype(jnp.int32), axis=-1)
        return jnp.sum(chosen - jax.nn.logsumexp(told, axis=-1, keepdims=True))

    def mean(self, told: Float[Array, "h w outputs"]) -> Float[Array, "h w 1"]:
        levels = jnp.arange(self.levels, dtype=told.dtype)
        return jnp.sum(jax.nn.softmax(told) * levels, axis=-1, keepdims=True) / self.top

    def sample(self, told: Float[Array, "h w outputs"], *, key: PRNGKeyArray) -> Float[Array, "h w 1"]:
        return jax.random.categorical(key, told)[..., None].astype(told.dtype)
