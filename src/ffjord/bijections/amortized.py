"""A map whose conditions are a linear function of what is given: an encoder's features become a flow's own weights."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from ffjord.bijections.base import AbstractBijection, Report, Transformed


class Amortized(AbstractBijection):
    """The inner map, given c = s (A features + a) + c₀ instead of the features.

    c is computed once for all that happens inside: along the path of a continuous flow, it stays as it is.

    **Arguments:**

    - `inner`: a map with conditions of the size `condition_size`.
    - `features`: size of what is given.
    - `scale`: s, small where all samples should start with nearly the same map. A and a start as those of any linear
      layer. As s stays a factor, c also learns in small steps: Adam moves every entry of A by the learning rate, and
      thus c by the sum of that over all features, which may be too much for the weights of a network.
    - `shared`: c₀, with which training starts: what all samples have in common, learnt at the full rate. None where
      the inner map has such weights of its own.
    """

    inner: AbstractBijection
    linear: eqx.nn.Linear
    shared: Float[Array, " condition_size"] | None
    scale: float = eqx.field(static=True)

    def __init__(
        self,
        inner: AbstractBijection,
        condition_size: int,
        features: int,
        *,
        scale: float = 1.0,
        shared: Float[Array, " condition_size"] | None = None,
        key: PRNGKeyArray,
    ):
        self.inner, self.scale, self.shared = inner, scale, shared
        self.linear = eqx.nn.Linear(features, condition_size, key=key)

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

    def _inner_condition(self, features: Array | None) -> Array:
        if features is None:
            raise ValueError("condition is missing: an amortised map takes its weights from it.")
        own = self.scale * (features @ self.linear.weight.T + jnp.asarray(self.linear.bias))
        return own if self.shared is None else own + self.shared


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
