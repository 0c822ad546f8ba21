"""A map whose conditions are a linear function of what is given: an encoder's features become a flow's own weights."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from ffjord.bijections.base import AbstractBijection, Report, Transformed


class Amortized(AbstractBijection):
    """The inner map, given c = A features + a instead of the features.

    A and a are computed once for all that happens inside: along the path of a continuous flow, c stays as it is.

    **Arguments:**

    - `inner`: a map with conditions of the size `condition_size`.
    - `features`: size of what is given.
    - `scale`: of A at the start, relative to a usual linear layer: small, so that all samples start with nearly the
      same map.
    """

    inner: AbstractBijection
    linear: eqx.nn.Linear

    def __init__(
        self, inner: AbstractBijection, condition_size: int, features: int, *, scale: float = 1.0, key: PRNGKeyArray
    ):
        self.inner = inner
        self.linear = jax.tree.map(lambda p: scale * p, eqx.nn.Linear(features, condition_size, key=key))

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
        return features @ self.linear.weight.T + jnp.asarray(self.linear.bias)


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
