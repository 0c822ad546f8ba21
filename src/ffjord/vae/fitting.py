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
_KEPT = 0.03
"""Part of what the likelihood loses at first that is not won back: the decoder has one layer for the linear map, but
goes on learning with all of them. Chosen on validation images of Frey's faces (docs/vae.md)."""


def fit_flow(vae: VAE, source: Source, steps: int, *, tell: Callable[[str], None], key: PRNGKeyArray) -> VAE:
    """The autoencoder with a flow that brings the posteriors of all images together nearer to the prior.

    Averaged over images,

        KL(q(z | x), p(z)) = I(x; z) + KL(q(z), p(z)),

    and a map that is the same for all images does not change what z tells of x: weights that images share can lower
    the second term alone, which is to learn the density of q(z). In training with a decoder they do so slowly, since
    every move of z costs likelihood until the decoder has followed. Here they take up to `steps` of Adam, at a rate
    that falls as a cosine, while all else stays as it is.

    The decoder, which knew z₀ = L z + μ + r, can take in L and μ at once, but not the residual r. For the variances σ²
    of a Gaussian posterior the bound is best where the likelihood's curvature along z₀ is 1/σ² - 1; so r costs, to
    second order, ½ Σ_d (1/σ_d² - 1) r_d² nats. What is minimised is

        KL(q(z | x), p(z)) + ρ ½ Σ_d (1/σ_d² - 1) r_d²,

    by the flow's shared weights and by L and μ: of all maps to the prior those are wanted that a decoder can follow.
    Kept is what was best for validation images, since few images are soon learnt by heart. Then the decoder takes in L
    and μ, by least squares, and has little to learn anew.
    """
    count = max(1, _IMAGES // len(source.batches(0, 1)[0]))
    images = lambda step: jnp.asarray(source.batches(step * count, count)).reshape(-1, *vae.event_shape)
    rule = optax.adam(optax.cosine_decay_schedule(_RATE, steps))
    start = _Fit(vae, jnp.eye(vae.latent, dtype=vae.dtype), jnp.zeros(vae.latent, vae.dtype))
    learnt, fixed = eqx.partition(start, _what_learns(start))
    state, looks = rule.init(learnt), _Looks(start, source, len(images(0)), tell, jax.random.fold_in(key, steps))
    for first in range(0, steps, _EVERY):
        until = min(first + _EVERY, steps)
        for step in range(first, until):
            learnt, state, report = _step(learnt, fixed, state, images(step), rule, jax.random.fold_in(key, step))
            raise_if_failed(report)
        if not looks.goes_on(eqx.combine(learnt, fixed), f"step {until}/{steps}"):
            break
    vae, enough = looks.best.vae, range(-(-_ROWS // len(images(0))))
    rows = [_looked(looks.best, images(step), jax.random.fold_in(key, steps + 1 + step))[-1] for step in enough]
    matrix, shift = _linear_map(*(np.concatenate([getattr(row, name) for row in rows]) for name in ("z", "start")))
    return eqx.tree_at(lambda vae: vae.decoder, vae, vae.decoder.after(matrix, shift))


class _Fit(eqx.Module):
    """An autoencoder whose flow learns, and z₀ ≈ L z + μ, which its decoder could take in."""

    vae: VAE
    matrix: Float[Array, "latent latent"]
    shift: Float[Array, " latent"]

    def cost(self, x: Array, key: PRNGKeyArray) -> tuple[Float[Array, ""], tuple[Float[Array, ""], Drawn]]:
        """What is minimised; and the KL term in it, with the points."""
        vae = self.vae
        drawn = vae.posterior.sample(jax.vmap(vae.encoder)(x / vae.pixels.top), train=True, key=key)
        kl = jnp.mean(drawn.log_prob - log_prior(drawn.z))
        residual = drawn.start - drawn.z @ self.matrix.T - self.shift
        curvature = jnp.maximum(1 / drawn.variance - 1, 0)
        return kl + _KEPT * 0.5 * jnp.mean(jnp.sum(curvature * residual**2, axis=1)), (kl, drawn)


class _Looks:
    """At the costs of validation images, always with the same noise; `best` is the fit that had the least."""

    def __init__(self, start: _Fit, source: Source, at_once: int, tell: Callable[[str], None], key: PRNGKeyArray):
        images = np.asarray(source.validation())[:_LOOKED_AT]
        whole = len(images) // at_once * at_once  # chunks of one shape, which is that of a step
        self._chunks = images[:whole].reshape(-1, at_once, *images.shape[1:]) if whole else images[None]
        self._tell, self._key, self._least, self._in_vain, self.best = tell, key, np.inf, 0, start
        self.goes_on(start, "start")

    def goes_on(self, fit: _Fit, when: str) -> bool:
        """Whether to go on after another look, or so many have brought nothing."""
        found = [_looked(fit, jnp.asarray(x), jax.random.fold_in(self._key, i)) for i, x in enumerate(self._chunks)]
        for *_, drawn in found:
            raise_if_failed(drawn.report)
        cost, kl = (float(np.mean(values)) for values in list(zip(*found, strict=True))[:2])
        told = f"KL of validation images {kl:.2f} nats, with what the decoder does not follow {cost:.2f}"
        self._tell(f"fitting the posterior's flow: {when}, {told}")
        if cost < self._least:
            self.best, self._least, self._in_vain = fit, cost, 0
        else:
            self._in_vain += 1
        return self._in_vain < _PATIENCE


@compiled
def _looked(fit: _Fit, x: Array, key: PRNGKeyArray) -> tuple[Float[Array, ""], Float[Array, ""], Drawn]:
    """The cost of images, the KL term in it, and their points."""
    cost, (kl, drawn) = fit.cost(x, key)
    return cost, kl, drawn


@compiled
def _step(
    learnt: PyTree, fixed: PyTree, state: Any, x: Array, rule: optax.GradientTransformation, key: PRNGKeyArray
) -> tuple[PyTree, Any, Report]:
    """A step on the cost."""
    of_learnt = lambda learnt: eqx.combine(learnt, fixed).cost(x, key)
    (_, (_, drawn)), grads = eqx.filter_value_and_grad(of_learnt, has_aux=True)(learnt)
    updates, state = rule.update(grads, state)
    return eqx.apply_updates(learnt, updates), state, drawn.report


def _what_learns(fit: _Fit) -> PyTree[bool]:
    """Which arrays learn: L, μ, and those of the flow that are not the linear map from an image to its own weights."""
    is_own = lambda node: isinstance(node, Amortized)

    def learns(node: Any) -> PyTree[bool]:
        arrays = jax.tree.map(eqx.is_inexact_array, node)
        none = lambda linear: jax.tree.map(lambda _: False, linear)
        return eqx.tree_at(lambda flow: flow.linear, arrays, replace_fn=none) if is_own(node) else arrays

    flow: AbstractBijection = jax.tree.map(learns, fit.vae.posterior.flow, is_leaf=is_own)
    parts = lambda fit: (fit.vae.posterior.flow, fit.matrix, fit.shift)
    return eqx.tree_at(parts, jax.tree.map(lambda _: False, fit), (flow, True, True))


def _linear_map(
    z: Float[np.ndarray, "n latent"], start: Float[np.ndarray, "n latent"]
) -> tuple[Float[Array, "latent latent"], Float[Array, " latent"]]:
    """L and μ of start ≈ L z + μ, by least squares."""
    with_one = np.append(z, np.ones((len(z), 1)), axis=1).astype(np.float64)
    found = np.linalg.lstsq(with_one, start.astype(np.float64), rcond=None)[0]
    return jnp.asarray(found[:-1].T, z.dtype), jnp.asarray(found[-1], z.dtype)
