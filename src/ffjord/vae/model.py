"""The variational autoencoder (Kingma and Welling 2014), with any flow in its posterior."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ffjord.bijections.base import Report
from ffjord.compilation import compiled
from ffjord.flow import Density, raise_if_failed
from ffjord.vae.networks import Decoder, Encoder
from ffjord.vae.pixels import AbstractPixels
from ffjord.vae.posteriors import Drawn, Posterior

Images = Float[Array | np.ndarray, "n h w c"]


class Elbo(NamedTuple):
    """The two parts of every image's bound, log p(x) ≥ E[log p(x | z)] - KL, in nats; and what the solves took."""

    log_likelihood: Float[Array, " n"]
    kl: Float[Array, " n"]
    report: Report

    @property
    def value(self) -> Float[Array, " n"]:
        """The bound."""
        return self.log_likelihood - self.kl


class VAE(eqx.Module):
    """p(x) = ∫ p(x | z) N(z; 0, I) dz, with the posterior q(z | x).

        log p(x) ≥ E_q[log p(x | z) + log p(z) - log q(z | x)]

    **Arguments:**

    - `encoder`: an image, divided by `pixels.top`, → features.
    - `posterior`: features → z and log q(z | x).
    - `decoder`: z → what p(x | z) is made of. `pixels`: that distribution.
    """

    encoder: Any
    posterior: Posterior
    decoder: Any
    pixels: AbstractPixels
    latent: int = eqx.field(static=True)
    event_shape: tuple[int, ...] = eqx.field(static=True)

    @property
    def condition_shape(self) -> None:
        """It has no conditions."""
        return None

    @property
    def dtype(self) -> Any:
        """Floating-point type of the parameters, and so of the results."""
        return jnp.result_type(self.posterior.mean.weight)

    def elbo(self, x: Images, *, train: bool = False, key: PRNGKeyArray) -> Elbo:
        """One sample's estimate of the bound for every image."""
        return _elbo(self, x, key, train)

    def density(self, x: Images, *, condition: None = None, train: bool = False, key: PRNGKeyArray) -> Density:
        """The bound in the place of log p(x), as a `Flow` would tell it: what validation and scoring ask any model."""
        elbo = self.elbo(x, train=train, key=key)
        return Density(elbo.value, jnp.asarray(x), elbo.report)

    def log_prob(self, x: Images, *, samples: int = 100, chunk: int = 10, key: PRNGKeyArray) -> Float[Array, " n"]:
        """An estimate of log p(x) by importance sampling, from below and better with more samples (Burda et al. 2016):

            log 1/K Σ_k p(x | z_k) p(z_k) / q(z_k | x),   z_k ~ q(z | x).

        `chunk` samples are drawn at a time.
        """
        if samples < 1 or chunk < 1:
            raise ValueError(f"samples and chunk must be at least 1; got {samples} and {chunk}.")
        weights = []
        for start in range(0, samples, chunk):
            log_weights, report = _log_weights(self, x, min(chunk, samples - start), jax.random.fold_in(key, start))
            raise_if_failed(report)
            weights.append(log_weights)
        return jax.nn.logsumexp(jnp.concatenate(weights), axis=0) - np.log(samples)

    def sample(
        self, n: int, *, means: bool = False, temperature: float = 1.0, key: PRNGKeyArray
    ) -> Float[Array, "n h w c"]:
        """n images, or their means given z, from 0 to 1: z ~ N(0, T²) with the temperature T, x ~ p(x | z)."""
        if n < 1:
            raise ValueError(f"n must be at least 1; got {n}.")
        return _sample(self, n, means, jnp.asarray(temperature, self.dtype), key)

    def reconstruct(self, x: Images, *, key: PRNGKeyArray) -> Float[Array, "n h w c"]:
        """E[x | z] with z ~ q(z | x), from 0 to 1."""
        return _reconstruct(self, x, key)

    def encode(self, x: Images, *, key: PRNGKeyArray) -> Drawn:
        """z ~ q(z | x) for every image, with log q(z | x)."""
        return _encode(self, x, key, False)

    def rows_to_calibrate(self) -> int:
        """Nothing of it is set from data."""
        return 0

    def calibrate(self, x: Images, *, key: PRNGKeyArray) -> "VAE":
        """Itself."""
        return self

    def absorb(self, observed: Any) -> "VAE":
        """Itself: it has no running statistics."""
        return self


@compiled
def _encode(vae: VAE, x: Array, key: PRNGKeyArray, train: bool) -> Drawn:
    return vae.posterior.sample(_features(vae, x), train=train, key=key)


@compiled
def _elbo(vae: VAE, x: Array, key: PRNGKeyArray, train: bool) -> Elbo:
    return _bound(vae, x, _features(vae, x), key, train)


@compiled
def _log_weights(vae: VAE, x: Array, count: int, key: PRNGKeyArray) -> tuple[Float[Array, "count n"], Report]:
    """log p(x | z) + log p(z) - log q(z | x) for `count` draws of z; an image is encoded once, all share a solve."""
    again = lambda rows: jnp.repeat(rows, count, axis=0)
    elbo = _bound(vae, again(x), again(_features(vae, x)), key, False)
    return elbo.value.reshape(len(x), count).T, elbo.report


def _features(vae: VAE, x: Array) -> Array:
    return jax.vmap(vae.encoder)(x / vae.pixels.top)


def _bound(vae: VAE, x: Array, features: Array, key: PRNGKeyArray, train: bool) -> Elbo:
    drawn = vae.posterior.sample(features, train=train, key=key)
    likelihood = jax.vmap(vae.pixels.log_prob)(jax.vmap(vae.decoder)(drawn.z), x)
    return Elbo(likelihood, drawn.log_prob - log_prior(drawn.z), drawn.report)


@compiled
def _sample(vae: VAE, n: int, means: bool, temperature: Array, key: PRNGKeyArray) -> Array:
    key_z, key_x = jax.random.split(key)
    told = jax.vmap(vae.decoder)(temperature * jax.random.normal(key_z, (n, vae.latent), vae.dtype))
    if means:
        return jax.vmap(vae.pixels.mean)(told)
    return jax.vmap(lambda told, key: vae.pixels.sample(told, key=key))(told, jax.random.split(key_x, n))


@compiled
def _reconstruct(vae: VAE, x: Array, key: PRNGKeyArray) -> Array:
    return jax.vmap(vae.pixels.mean)(jax.vmap(vae.decoder)(_encode(vae, x, key, False).z))


def log_prior(z: Float[Array, "n latent"]) -> Float[Array, " n"]:
    """log N(z; 0, I)."""
    return -0.5 * jnp.sum(z**2 + np.log(2 * np.pi), axis=1)


def images_vae(
    shape: tuple[int, int, int], posterior: Posterior, pixels: AbstractPixels, latent: int, *, key: PRNGKeyArray
) -> VAE:
    """The paper's autoencoder over images, with a posterior that was made for its 256 features."""
    key_encoder, key_decoder = jax.random.split(key)
    decoder = Decoder(shape, latent, outputs=pixels.outputs, key=key_decoder)
    return VAE(Encoder(shape, key=key_encoder), posterior, decoder, pixels, latent, shape)
