"""What a variational autoencoder's training minimises."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ffjord.objectives import Objective, Progress
from ffjord.vae.model import VAE


@dataclasses.dataclass(frozen=True)
class NegativeElbo:
    """-E[log p(x | z)] + β KL, the mean over a batch: β rises from 0 to 1 over the first `warmup` steps."""

    warmup: int = 0

    def __call__(self, vae: VAE, x: Float[Array, "n h w c"], key: PRNGKeyArray) -> tuple[Float[Array, ""], Progress]:
        return self._loss(vae, x, key, jnp.ones(()))

    def at(self, step: Int[Array, ""]) -> Objective:
        """The objective of a step."""
        beta = jnp.minimum(1.0, (step + 1) / self.warmup) if self.warmup else jnp.ones(())
        return lambda vae, x, key: self._loss(vae, x, key, beta)

    def _loss(self, vae: VAE, x: Array, key: PRNGKeyArray, beta: Array) -> tuple[Array, Progress]:
        elbo = vae.elbo(x, train=True, key=key)
        likelihood, kl = jnp.mean(elbo.log_likelihood), jnp.mean(elbo.kl)
        metrics = {
            "nfe": jnp.mean(elbo.report.nfe.astype(jnp.float32)),
            "outcome": jnp.max(elbo.report.outcome),
            "negative_elbo": kl - likelihood,
            "kl": kl,
        }
        return beta * kl - likelihood, Progress(metrics, None)
