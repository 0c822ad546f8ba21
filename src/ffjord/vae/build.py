"""From a configuration to an autoencoder."""

import jax
from jaxtyping import PRNGKeyArray

from ffjord.experiments.config import ModelConfig, RegularizationConfig, SolveConfig
from ffjord.models.build import cnf, regularizers
from ffjord.vae.model import VAE, images_vae
from ffjord.vae.networks import FEATURES
from ffjord.vae.pixels import Bernoulli, Categorical
from ffjord.vae.posteriors import Posterior, posterior_flow

_LIMITS = (0.01, 7.0)
"""Between which the variances of the posterior of grey images are kept, as van den Berg et al. (2018) have it."""


def build_vae(
    shape: tuple[int, int, int],
    levels: int,
    model: ModelConfig,
    solve: SolveConfig | None = None,
    regularization: RegularizationConfig | None = None,
    *,
    key: PRNGKeyArray,
) -> VAE:
    """The paper's autoencoder over images of a shape and so many grey levels, with the configured posterior."""
    _check(model, regularization or RegularizationConfig())
    key_flow, key_posterior, key_rest = jax.random.split(key, 3)
    make = lambda dynamics, shape: cnf(dynamics, shape, model, solve or SolveConfig(), regularization)
    flow = posterior_flow(model, model.latent, FEATURES, make, key=key_flow)
    grey = levels > 2
    posterior = Posterior(FEATURES, model.latent, flow, limits=_LIMITS if grey else None, key=key_posterior)
    return images_vae(shape, posterior, Categorical(levels) if grey else Bernoulli(), model.latent, key=key_rest)


def _check(model: ModelConfig, regularization: RegularizationConfig) -> None:
    """Refuses what has no meaning here, so that nobody believes it had an effect."""
    if model.posterior != "ffjord" and regularizers(regularization):
        asked = ", ".join(regularizer.name for regularizer, _ in regularizers(regularization))
        raise ValueError(f"{asked}: only the posterior ffjord has paths to make simple; this one is {model.posterior}.")
    if model.latent < 1:
        raise ValueError(f"latent must be at least 1; got {model.latent}.")
    allowed = {"kind": "ffjord", "dynamics": "mlp", "layer": "concat", "gaussianize": "none", "norm": "none"}
    for name, only in allowed.items():
        if getattr(model, name) != only:
            raise ValueError(f"{name} must be {only} in an autoencoder; got {getattr(model, name)!r}.")
