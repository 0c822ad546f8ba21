"""Invertible linear maps of the channels: on vectors, or at every place of an image (Glow's 1×1 convolution)."""

from collections.abc import Callable
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import jax.scipy.linalg
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from ffjord.bijections.base import AbstractBijection, Report, Transformed
from ffjord.parameters import Buffer

Start = Literal["identity", "rotation"]


class LULinear(AbstractBijection):
    """z = P L U x, with log |det dz/dx| = Σ log |U_ii|.

    P is a fixed permutation, L lower triangular with ones on its diagonal, U upper triangular; the signs of its
    diagonal are fixed too, so that W = P L U stays invertible. Data → base is a product of matrices; base → data solves
    with L and U.

    **Arguments:**

    - `dim`: the size of x.
    - `start`: W at the start, the identity or a random rotation (possibly with a reflection).
    """

    factors: Float[Array, "dim dim"]
    """L below the diagonal, U above it, log |U_ii| on it."""
    signs: Buffer
    order: Buffer
    """(P y)_i = y[order_i]."""

    def __init__(self, dim: int, *, start: Start = "rotation", key: PRNGKeyArray):
        if start not in get_args(Start):
            raise ValueError(f"start must be identity or rotation; got {start!r}.")
        matrix = jnp.eye(dim) if start == "identity" else jax.random.orthogonal(key, dim)
        permutation, lower, upper = jax.scipy.linalg.lu(matrix)
        diagonal = jnp.diagonal(upper)
        self.factors = jnp.tril(lower, -1) + jnp.triu(upper, 1) + jnp.diag(jnp.log(jnp.abs(diagonal)))
        self.signs, self.order = Buffer(jnp.sign(diagonal)), Buffer(jnp.argmax(permutation, axis=1))

    def matrix(self) -> Float[Array, "dim dim"]:
        """W."""
        lower, upper = self._triangles()
        return (lower @ upper)[self.order.value]

    def forward(
        self,
        z: Float[Array, "n dim"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        lower, upper = self._triangles()
        y = _substitute(lower, z[:, jnp.argsort(self.order.value)])
        return self._transformed(_substitute(upper, y, reverse=True), -1)

    def inverse(
        self,
        x: Float[Array, "n dim"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        return self._transformed(x @ self.matrix().T, 1)

    def _triangles(self) -> tuple[Array, Array]:
        diagonal = self.signs.value * jnp.exp(jnp.diagonal(self.factors))
        lower = jnp.tril(self.factors, -1) + jnp.eye(len(diagonal), dtype=diagonal.dtype)
        return lower, jnp.triu(self.factors, 1) + jnp.diag(diagonal)

    def _transformed(self, value: Array, direction: int) -> Transformed:
        log_det = direction * jnp.trace(self.factors)
        return Transformed(value, jnp.broadcast_to(log_det, value.shape[:1]), Report.nothing())


class EachPlace(AbstractBijection):
    """A bijection of vectors at every place of an image whose last axis is the channels; log-determinants add up.

    With `LULinear` it is a 1×1 convolution, with `ActNorm` a norm whose parameters all places share, in its start too.
    """

    inner: AbstractBijection

    def forward(
        self,
        z: Float[Array, "n *places channels"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        return self._rows(self.inner.forward, z, condition=condition, train=train, key=key)

    def inverse(
        self,
        x: Float[Array, "n *places channels"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        return self._rows(self.inner.inverse, x, condition=condition, train=train, key=key)

    def rows_to_calibrate(self) -> int:
        return self.inner.rows_to_calibrate()

    def calibrate(
        self,
        x: Float[Array, "n *places channels"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        key: PRNGKeyArray,
    ) -> "EachPlace":
        return EachPlace(self.inner.calibrate(_flat(x), condition=_spread(condition, x), key=key))

    def absorb(self, observed: Any) -> "EachPlace":
        return EachPlace(self.inner.absorb(observed))

    def _rows(
        self, direction: Callable[..., Transformed], x: Array, *, condition: Array | None, **kwargs: Any
    ) -> Transformed:
        out = direction(_flat(x), condition=_spread(condition, x), **kwargs)
        return Transformed(out.value.reshape(x.shape), jnp.sum(out.log_det.reshape(len(x), -1), axis=1), out.report)


def _flat(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1])


def _spread(condition: Array | None, x: Array) -> Array | None:
    """A row of the condition for every place."""
    return None if condition is None else jnp.repeat(condition, x[0, ..., 0].size, axis=0)


def _substitute(
    triangle: Float[Array, "dim dim"], rows: Float[Array, "n dim"], *, reverse: bool = False
) -> Float[Array, "n dim"]:
    """Solves T x = b for every row b, from the first unknown to the last (T lower) or in reverse (T upper).

    LAPACK's solution is a call out of the compiled program, see `ffjord.divergence`.
    """

    def solve(x: Array, i: Array) -> tuple[Array, None]:
        return x.at[:, i].set((rows[:, i] - x @ triangle[i]) / triangle[i, i]), None  # x_j = 0 for those to come

    return jax.lax.scan(solve, jnp.zeros_like(rows), jnp.arange(rows.shape[1]), reverse=reverse)[0]
