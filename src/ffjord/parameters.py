"""Which arrays of a model are trained, and which only ride along."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree
from paramax import NonTrainable


class Buffer(eqx.Module):
    """An array that belongs to a model but is set by data or by hand, never by the optimiser."""

    array: Array

    @property
    def value(self) -> Array:
        return jax.lax.stop_gradient(self.array)


class Counter(eqx.Module):
    """A zero whose *gradient* counts something: the number of evaluations in a backward solve.

    The backward pass can return nothing but gradients, so that is the way its cost comes out.
    """

    array: Float[Array, ""]

    def __init__(self):
        self.array = jnp.zeros(())


def trainable(model: PyTree) -> PyTree[bool]:
    """A filter: true at the arrays that the optimiser may change."""
    return jax.tree.map(lambda leaf: False if _is_fixed(leaf) else eqx.is_inexact_array(leaf), model, is_leaf=_is_fixed)


def count_parameters(model: PyTree) -> int:
    """Number of trained numbers in a model."""
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(model, trainable(model))))


def backward_nfe(grads: PyTree) -> Float[Array, ""]:
    """Evaluations spent in the backward solves of all flows, read off a gradient of the model."""
    counters = [leaf for leaf in jax.tree.leaves(grads, is_leaf=_is_fixed) if isinstance(leaf, Counter)]
    return jnp.sum(jnp.stack([counter.array for counter in counters])) if counters else jnp.zeros(())


def _is_fixed(leaf: Any) -> bool:
    return isinstance(leaf, Buffer | Counter | NonTrainable)
