"""Distributions of pixels given what a decoder says: black and white, or 256 grey levels."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


class AbstractPixels(eqx.Module):
    """p(x | z) of an image, its pixels independent given z."""

    outputs: eqx.AbstractClassVar[int]
    """Numbers that the decoder gives a pixel."""
    top: eqx.AbstractClassVar[float]
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

    outputs = 1
    top = 1.0

    def log_prob(self, told: Float[Array, "h w outputs"], x: Float[Array, "h w 1"]) -> Float[Array, ""]:
        return jnp.sum(x * told - jax.nn.softplus(told))

    def mean(self, told: Float[Array, "h w outputs"]) -> Float[Array, "h w 1"]:
        return jax.nn.sigmoid(told)

    def sample(self, told: Float[Array, "h w outputs"], *, key: PRNGKeyArray) -> Float[Array, "h w 1"]:
        return jax.random.bernoulli(key, jax.nn.sigmoid(told)).astype(told.dtype)


class Categorical(AbstractPixels):
    """Grey levels 0 … 255, each with a logit of its own."""

    outputs = 256
    top = 255.0

    def log_prob(self, told: Float[Array, "h w outputs"], x: Float[Array, "h w 1"]) -> Float[Array, ""]:
        chosen = jnp.take_along_axis(told, x.astype(jnp.int32), axis=-1)
        return jnp.sum(chosen - jax.nn.logsumexp(told, axis=-1, keepdims=True))

    def mean(self, told: Float[Array, "h w outputs"]) -> Float[Array, "h w 1"]:
        levels = jnp.arange(256, dtype=told.dtype)
        return jnp.sum(jax.nn.softmax(told) * levels, axis=-1, keepdims=True) / self.top

    def sample(self, told: Float[Array, "h w outputs"], *, key: PRNGKeyArray) -> Float[Array, "h w 1"]:
        return jax.random.categorical(key, told)[..., None].astype(told.dtype)
