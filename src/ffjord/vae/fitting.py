"""What the flow of a posterior learns alone, before encoder and decoder learn with it."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ffjord.bijections.amortized import Amortized
from ffjord.bijections.base import AbstractBijection
from ffjord.compilation import compiled
from ffjord.data.source import Source
from ffjord.flow import raise_if_failed
from ffjord.vae.model import VAE
from ffjord.vae.posteriors import Drawn

_IMAGES, _ROWS = 100, 4000
"""Images a step, and points by which the decoder is brought in line afterwards."""
_EVERY = 50
"""Steps between two words about how far it is."""
_ADAM = optax.adam(1e-3)


def fit_flow(vae: VAE, source: Source, steps: int, *, tell: Callable[[str], None], key: PRNGKeyArray) -> VAE:
    """The autoencoder with a flow that brings the posteriors of all images together nearer to the prior.

    Averaged over images,

        KL(q(z | x), p(z)) = I(x; z) + KL(q(z), p(z)),

    and a map that is the same for all images does not change what z tells of x: weights that images share can lower
    the second term alone, which is to learn the density of q(z). In training with a decoder they do so slowly, since
    every move of z costs likelihood until the decoder has followed. Here they take `steps` of Adam on the KL term,
    while all else stays as it is; then the decoder, which knew z₀ = L z + μ + …, takes in the linear part of that, by
    least squares, and has little to learn anew.
    """
    count = max(1, _IMAGES // len(source.batches(0, 1)[0]))
    images = lambda step: jnp.asarray(source.batches(step * count, count)).reshape(-1, *vae.event_shape)
    learnt, fixed = eqx.partition(vae, _what_images_share(vae))
    state = _ADAM.init(learnt)
    for step in range(steps):
        learnt, state, drawn, kl = _step(learnt, fixed, state, images(step), jax.random.fold_in(key, step))
        raise_if_failed(drawn.report)
        if step % _EVERY == 0 or step == steps - 1:
            tell(f"fitting the posterior's flow: step {step + 1}/{steps}, KL {float(kl):.2f} nats")
    vae = eqx.combine(learnt, fixed)
    enough = range(steps, steps + -(-_ROWS // len(images(0))))
    rows = [_step(learnt, fixed, state, images(step), jax.random.fold_in(key, step))[2] for step in enough]
    matrix, shift = _linear_map(*(np.concatenate([getattr(row, name) for row in rows]) for name in ("z", "start")))
    return eqx.tree_at(lambda vae: vae.decoder, vae, vae.decoder.after(matrix, shift))


@compiled
def _step(
    learnt: PyTree, fixed: PyTree, state: Any, x: Array, key: PRNGKeyArray
) -> tuple[PyTree, Any, Drawn, Float[Array, ""]]:
    """A step on the KL term, with the points that it was taken at."""

    def kl(learnt: PyTree) -> tuple[Array, Drawn]:
        vae: VAE = eqx.combine(learnt, fixed)
        drawn = vae.posterior.sample(jax.vmap(vae.encoder)(x / vae.pixels.top), train=True, key=key)
        log_prior = -0.5 * jnp.sum(drawn.z**2 + np.log(2 * np.pi), axis=1)
        return jnp.mean(drawn.log_prob - log_prior), drawn

    (value, drawn), grads = eqx.filter_value_and_grad(kl, has_aux=True)(learnt)
    updates, state = _ADAM.update(grads, state)
    return eqx.apply_updates(learnt, updates), state, drawn, value


def _what_images_share(vae: VAE) -> PyTree[bool]:
    """Which arrays learn: those of the flow that are not the linear map from an image to its own weights."""
    is_own = lambda node: isinstance(node, Amortized)

    def learns(node: Any) -> PyTree[bool]:
        arrays = jax.tree.map(eqx.is_inexact_array, node)
        none = lambda linear: jax.tree.map(lambda _: False, linear)
        return eqx.tree_at(lambda flow: flow.linear, arrays, replace_fn=none) if is_own(node) else arrays

    flow: AbstractBijection = jax.tree.map(learns, vae.posterior.flow, is_leaf=is_own)
    return eqx.tree_at(lambda vae: vae.posterior.flow, jax.tree.map(lambda _: False, vae), flow)


def _linear_map(
    z: Float[np.ndarray, "n latent"], start: Float[np.ndarray, "n latent"]
) -> tuple[Float[Array, "latent latent"], Float[Array, " latent"]]:
    """L and μ of start ≈ L z + μ, by least squares."""
    with_one = np.append(z, np.ones((len(z), 1)), axis=1).astype(np.float64)
    found = np.linalg.lstsq(with_one, start.astype(np.float64), rcond=None)[0]
    return jnp.asarray(found[:-1].T, z.dtype), jnp.asarray(found[-1], z.dtype)
