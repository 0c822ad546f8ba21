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
from ffjord.bijections.base import AbstractBijection, Report
from ffjord.compilation import compiled
from ffjord.data.source import Source
from ffjord.flow import raise_if_failed
from ffjord.vae.model import VAE, log_prior
from ffjord.vae.posteriors import Drawn

_IMAGES, _ROWS = 100, 4000
"""Images a step, and points by which the decoder is brought in line afterwards."""
_EVERY, _LOOKED_AT, _PATIENCE = 50, 1000, 6
"""Steps between two looks at the KL term of validation images, how many of these, and after how many looks in a row
without a better one it ends."""
_RATE = 1e-3


def fit_flow(vae: VAE, source: Source, steps: int, *, tell: Callable[[str], None], key: PRNGKeyArray) -> VAE:
    """The autoencoder with a flow that brings the posteriors of all images together nearer to the prior.

    Averaged over images,

        KL(q(z | x), p(z)) = I(x; z) + KL(q(z), p(z)),

    and a map that is the same for all images does not change what z tells of x: weights that images share can lower
    the second term alone, which is to learn the density of q(z). In training with a decoder they do so slowly, since
    every move of z costs likelihood until the decoder has followed. Here they take up to `steps` of Adam on the KL
    term, at a rate that falls as a cosine, while all else stays as it is. Kept is what was best for validation images,
    since few images are soon learnt by heart. Then the decoder, which knew z₀ = L z + μ + …, takes in the linear part
    of that, by least squares, and has little to learn anew.
    """
    count = max(1, _IMAGES // len(source.batches(0, 1)[0]))
    images = lambda step: jnp.asarray(source.batches(step * count, count)).reshape(-1, *vae.event_shape)
    rule = optax.adam(optax.cosine_decay_schedule(_RATE, steps))
    learnt, fixed = eqx.partition(vae, _what_images_share(vae))
    state, looks = rule.init(learnt), _Looks(vae, source, len(images(0)), tell, jax.random.fold_in(key, steps))
    for start in range(0, steps, _EVERY):
        until = min(start + _EVERY, steps)
        for step in range(start, until):
            learnt, state, report = _step(learnt, fixed, state, images(step), rule, jax.random.fold_in(key, step))
            raise_if_failed(report)
        if not looks.goes_on(eqx.combine(learnt, fixed), f"step {until}/{steps}"):
            break
    vae = looks.best
    enough = range(-(-_ROWS // len(images(0))))
    rows = [_drawn(vae, images(step), jax.random.fold_in(key, steps + 1 + step))[1] for step in enough]
    matrix, shift = _linear_map(*(np.concatenate([getattr(row, name) for row in rows]) for name in ("z", "start")))
    return eqx.tree_at(lambda vae: vae.decoder, vae, vae.decoder.after(matrix, shift))


class _Looks:
    """At the KL term of validation images, always with the same noise; `best` is the autoencoder that had the least."""

    def __init__(self, vae: VAE, source: Source, at_once: int, tell: Callable[[str], None], key: PRNGKeyArray):
        images = np.asarray(source.validation())[:_LOOKED_AT]
        whole = len(images) // at_once * at_once  # chunks of one shape, which is that of a step
        self._chunks = images[:whole].reshape(-1, at_once, *images.shape[1:]) if whole else images[None]
        self._tell, self._key, self._least, self._in_vain, self.best = tell, key, np.inf, 0, vae
        self.goes_on(vae, "start")

    def goes_on(self, vae: VAE, when: str) -> bool:
        """Whether to go on after another look, or so many have brought nothing."""
        found = [_drawn(vae, jnp.asarray(x), jax.random.fold_in(self._key, i)) for i, x in enumerate(self._chunks)]
        for _, drawn in found:
            raise_if_failed(drawn.report)
        kl = float(np.mean([kl for kl, _ in found]))
        self._tell(f"fitting the posterior's flow: {when}, KL of validation images {kl:.2f} nats")
        if kl < self._least:
            self.best, self._least, self._in_vain = vae, kl, 0
        else:
            self._in_vain += 1
        return self._in_vain < _PATIENCE


def _kl(vae: VAE, x: Array, key: PRNGKeyArray) -> tuple[Float[Array, ""], Drawn]:
    drawn = vae.posterior.sample(jax.vmap(vae.encoder)(x / vae.pixels.top), train=True, key=key)
    return jnp.mean(drawn.log_prob - log_prior(drawn.z)), drawn


_drawn = compiled(_kl)


@compiled
def _step(
    learnt: PyTree, fixed: PyTree, state: Any, x: Array, rule: optax.GradientTransformation, key: PRNGKeyArray
) -> tuple[PyTree, Any, Report]:
    """A step on the KL term."""
    of_learnt = lambda learnt: _kl(eqx.combine(learnt, fixed), x, key)
    (_, drawn), grads = eqx.filter_value_and_grad(of_learnt, has_aux=True)(learnt)
    updates, state = rule.update(grads, state)
    return eqx.apply_updates(learnt, updates), state, drawn.report


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
