"""Spectral normalisation: the largest singular values of weight matrices are bounded, and with them df/dz."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ffjord.bijections.repeated import Repeated
from ffjord.parameters import trainable

_ITERATIONS = 20


def limit_norms(model: PyTree, limit: float) -> PyTree:
    """W / max(1, σ(W) / limit) for every trained matrix W, where σ is its largest singular value.

    A kernel of a convolution is taken as the matrix (places × in, out). Vectors, and matrices of one row or column
    (gates and shifts of the time), stay as they are. In a `Repeated`, every layer has its own matrices.
    """
    params, rest = eqx.partition(model, trainable(model))
    one = lambda weight: _limited(weight, limit)
    each = lambda node: jax.tree.map(jax.vmap(one), node) if isinstance(node, Repeated) else one(node)
    limited = jax.tree.map(each, params, is_leaf=lambda node: isinstance(node, Repeated))
    return eqx.combine(limited, rest)


def largest_singular_value(matrix: Float[Array, "m n"]) -> Float[Array, ""]:
    """By power iteration on WᵀW from a fixed start: from below, within a few percent where the next one is near."""
    v = jax.random.normal(jax.random.key(0), matrix.shape[1:], matrix.dtype)
    unit = lambda v: v / jnp.maximum(jnp.linalg.norm(v), jnp.finfo(v.dtype).tiny)
    v = jax.lax.fori_loop(0, _ITERATIONS, lambda _, v: unit(matrix.T @ (matrix @ v)), unit(v))
    return jnp.linalg.norm(matrix @ v)


def _limited(weight: Array, limit: float) -> Array:
    matrix = weight.reshape(-1, weight.shape[-1]) if weight.ndim > 2 else weight
    if matrix.ndim < 2 or min(matrix.shape) < 2:
        return weight
    return weight / jnp.maximum(1.0, largest_singular_value(matrix) / limit)
