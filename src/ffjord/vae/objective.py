"""What a variational autoencoder's training minimises."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ffjord.objectives import Objective, Progress, Tightening, loosened, penalized, solver_metrics
from ffjord.vae.model import VAE


@dataclasses.dataclass(frozen=True)
class NegativeElbo:
    """-E[log p(x | z)] + β KL, the mean over a batch: β rises from 0 to 1 over the first `warmup` steps.

    `weights` and `tightening` are those of `ffjord.objectives.Likelihood`, for the posterior's paths.
    """

    warmup: int = 0
    weights: tuple[tuple[str, float], ...] = ()
    tightening: Tightening | None = None

    def __call__(self, vae: VAE, x: Float[Array, "n h w c"], key: PRNGKeyArray) -> tuple[Float[Array, ""], Progress]:
        return self._loss(vae, x, key, jnp.ones(()))

    def at(self, step: Int[Array, ""]) -> Objective:
        """The objective of a step."""
        beta = jnp.minimum(1.0, (step + 1) / self.warmup) if self.warmup else jnp.ones(())
        factor = None if self.tightening is None else self.tightening.factor(step)
        eased = lambda vae: vae if factor is None else loosened(vae, factor)
        return lambda vae, x, key: self._loss(eased(vae), x, key, beta)

    def _loss(self, vae: VAE, x: Array, key: PRNGKeyArray, beta: Array) -> tuple[Array, Progress]:
        elbo = vae.elbo(x, train=True, key=key)
        likelihood, kl = jnp.mean(elbo.log_likelihood), jnp.mean(elbo.kl)
        loss, means = penalized(beta * kl - likelihood, elbo.report, self.weights, vae.latent)
        metrics = {**solver_metrics(elbo.report), "negative_elbo": kl - likelihood, "kl": kl, **means}
        return loss, Progress(metrics, None)
