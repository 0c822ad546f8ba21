"""A map whose conditions are a linear function of what is given: an encoder's features become a flow's own weights."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, Shaped

from ffjord.bijections.base import AbstractBijection, Report, Transformed


class Amortized(AbstractBijection):
    """The inner map, given c = s (A features + a) + c₀ instead of the features.

    c is computed once for all that happens inside: along the path of a continuous flow, it stays as it is.

    **Arguments:**

    - `inner`: a map with conditions.
    - `condition_size`: size of c, or a pytree of sizes where c is made of several vectors. Each of these has rows of A
      of its own: what a product of matrices has written is used as it is, and not cut up first.
    - `features`: size of what is given.
    - `scale`: s, small where all samples should start with nearly the same map. A and a start as those of any linear
      layer. As s stays a factor, c also learns in small steps: Adam moves every entry of A by the learning rate, and
      thus c by the sum of that over all features, which may be too much for the weights of a network.
    - `shared`: c₀, with which training starts: what all samples have in common, learnt at the full rate. None where
      the inner map has such weights of its own.
    """

    inner: AbstractBijection
    linear: PyTree[eqx.nn.Linear]
    shared: PyTree[Float[Array, " _"]] | None
    scale: float = eqx.field(static=True)

    def __init__(
        self,
        inner: AbstractBijection,
        condition_size: PyTree[int],
        features: int,
        *,
        scale: float = 1.0,
        shared: PyTree[Float[Array, " _"]] | None = None,
        key: PRNGKeyArray,
    ):
        self.inner, self.scale, self.shared = inner, scale, shared
        sizes, structure = jax.tree.flatten(condition_size)
        keys = jax.random.split(key, len(sizes))
        linears = [eqx.nn.Linear(features, size, key=k) for size, k in zip(sizes, keys, strict=True)]
        self.linear = jax.tree.unflatten(structure, linears)

    def forward(
        self,
        z: Float[Array, "n *event"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        return self.inner.forward(z, condition=self._inner_condition(condition), train=train, key=key)

    def inverse(
        self,
        x: Float[Array, "n *event"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        return self.inner.inverse(x, condition=self._inner_condition(condition), train=train, key=key)

    def until(self, fraction: Float[Array, ""]) -> "Amortized":
        return eqx.tree_at(lambda a: a.inner, self, self.inner.until(fraction))

    def _inner_condition(self, features: Array | None) -> Any:
        if features is None:
            raise ValueError("condition is missing: an amortised map takes its weights from it.")
        one = lambda linear: self.scale * (features @ linear.weight.T + linear.bias)
        own = jax.tree.map(one, self.linear, is_leaf=_is_linear)
        return own if self.shared is None else jax.tree.map(jnp.add, own, self.shared)


def _is_linear(node: Any) -> bool:
    return isinstance(node, eqx.nn.Linear)


class Identity(AbstractBijection):
    """z = x: the posterior without a flow."""

    def forward(
        self,
        z: Float[Array, "n *event"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        return Transformed(z, jnp.zeros(len(z), z.dtype), Report.nothing())

    def inverse(
        self,
        x: Float[Array, "n *event"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        return Transformed(x, jnp.zeros(len(x), x.dtype), Report.nothing())
