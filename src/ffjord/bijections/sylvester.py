"""Sylvester flows (van den Berg, Hasenclever, Tomczak and Welling, UAI 2018), with parameters given for every sample.

Base → data has a closed form. Data → base has none, and is not offered: a posterior needs only the one.
"""

from typing import Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Shaped

from ffjord.bijections.base import AbstractBijection, Report, Transformed
from ffjord.divergence import orthonormal_basis

Kind = Literal["orthogonal", "householder", "triangular"]


class Sylvester(AbstractBijection):
    """x = z + Q R₁ tanh(R₂ Qᵀ z + b), with the determinant Π_m (1 + tanh'(…)_m (R₁)_mm (R₂)_mm).

    R₁ and R₂ are upper triangular M × M, their diagonals in (-1, 1) so that every factor is positive; Q has M
    orthonormal columns. All of it is the condition of a sample, c = (R₁, R₂, b, what Q is made of), of the size
    `condition_size`.

    **Arguments:**

    - `dim`: D, the size of z.
    - `kind`: orthogonal: Q (D × `columns`) has the orthonormal columns that Gram and Schmidt make of given ones;
      householder: Q (D × D) is a product of `reflections`; triangular: Q is the identity, or with `reverse` the
      reversal of the order.
    """

    dim: int = eqx.field(static=True)
    kind: Kind = eqx.field(static=True, default="orthogonal")
    columns: int = eqx.field(static=True, default=32)
    reflections: int = eqx.field(static=True, default=8)
    reverse: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        if self.kind not in get_args(Kind):
            raise ValueError(f"kind must be one of {', '.join(get_args(Kind))}; got {self.kind!r}.")
        if self.kind == "orthogonal" and not 1 <= self.columns <= self.dim:
            raise ValueError(f"columns must be between 1 and dim, {self.dim}; got {self.columns}.")

    @property
    def rank(self) -> int:
        """M."""
        return self.columns if self.kind == "orthogonal" else self.dim

    @property
    def condition_size(self) -> int:
        """Size of c."""
        return sum(int(np.prod(shape)) for shape in self._shapes().values())

    @property
    def outer(self) -> Bool[np.ndarray, " condition_size"]:
        """Which entries of c are those of R₁: where they are 0, the flow is the identity, whatever the others are."""
        triangle, first = np.triu(np.ones((self.rank, self.rank), bool), 1), np.ones(self.rank, bool)
        mine = np.concatenate([triangle.ravel(), first])
        return np.concatenate([mine, np.zeros(self.condition_size - len(mine), bool)])

    def start(self, key: PRNGKeyArray) -> Float[Array, " condition_size"]:
        """A random c with R₁ = 0: an identity that learns at once, for the gradient of R₁ is tanh(R₂ Qᵀ z + b).

        With R₁ and R₂ both near 0, either one's gradient would be as small as the other.
        """
        deviations = {"r": self.rank**-0.5, "diagonals": 1.0, "b": 0.5, "q": 1.0}
        scales = [np.full(int(np.prod(shape)), deviations[name]) for name, shape in self._shapes().items()]
        scale = np.where(self.outer, 0, np.concatenate(scales))
        return jnp.asarray(scale) * jax.random.normal(key, (self.condition_size,))

    def forward(
        self,
        z: Float[Array, "n dim"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        if condition is None:
            raise ValueError("condition is missing: a Sylvester flow takes its matrices from it.")
        return Transformed(*jax.vmap(self._one)(z, condition), Report.nothing())

    def inverse(
        self,
        x: Float[Array, "n dim"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        raise NotImplementedError("a Sylvester flow has no inverse in closed form; use it as a posterior, forwards.")

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """Parts of the condition. The upper triangles of both R are one matrix: R₂ is kept below the diagonal."""
        made_of = {"orthogonal": (self.dim, self.rank), "householder": (self.reflections, self.dim), "triangular": ()}
        shapes = {"r": (self.rank, self.rank), "diagonals": (2, self.rank), "b": (self.rank,)}
        return shapes | ({} if self.kind == "triangular" else {"q": made_of[self.kind]})

    def _one(self, z: Array, condition: Array) -> tuple[Array, Array]:
        own, start = {}, 0
        for name, shape in self._shapes().items():
            size = int(np.prod(shape))
            own[name] = condition[start : start + size].reshape(shape)
            start += size
        first, second = jnp.tanh(own["diagonals"])
        r1 = jnp.triu(own["r"], 1) + jnp.diag(first)
        r2 = jnp.tril(own["r"], -1).T + jnp.diag(second)
        into, back = self._basis(own.get("q"))
        h = jnp.tanh(r2 @ into(z) + own["b"])
        return z + back(r1 @ h), jnp.sum(jnp.log1p((1 - h**2) * first * second))

    def _basis(self, made_of: Array | None):
        """The maps z → Qᵀz and y → Qy."""
        if self.kind == "triangular" or made_of is None:
            turn = (lambda y: y[::-1]) if self.reverse else (lambda y: y)
            return turn, turn
        if self.kind == "orthogonal":
            q = orthonormal(made_of)
            return (lambda z: q.T @ z), (lambda y: q @ y)
        unit = made_of / jnp.linalg.norm(made_of, axis=1, keepdims=True)

        def reflected(y: Array, vectors: Array) -> Array:
            for v in vectors:
                y = y - 2 * (v @ y) * v
            return y

        return (lambda z: reflected(z, unit)), (lambda y: reflected(y, unit[::-1]))


@jax.custom_vjp
def orthonormal(matrix: Float[Array, "dim m"]) -> Float[Array, "dim m"]:
    """Q of M = Q R with a positive diagonal of R: what Gram and Schmidt make of the columns, smooth in M.

    Van den Berg et al. take the nearest matrix with orthonormal columns, by an iteration. Both reach all of them; this
    one's gradient takes a tenth of the time.
    """
    return orthonormal_basis(matrix.T).T


def _orthonormal_forward(matrix: Array) -> tuple[Array, tuple[Array, Array]]:
    q = orthonormal(matrix)
    return q, (q, jnp.triu(q.T @ matrix))


def _orthonormal_backward(kept: tuple[Array, Array], q_bar: Array | np.ndarray) -> tuple[Array]:
    """M̄ = (Q̄ - Q (L + Lᵀ)) R⁻ᵀ, where L is the lower triangle of Q̄ᵀ Q with half of its diagonal."""
    (q, r), q_bar = kept, jnp.asarray(q_bar)
    product = q_bar.T @ q
    lower = jnp.tril(product, -1) + 0.5 * jnp.diag(jnp.diagonal(product))
    right = q_bar - q @ (lower + lower.T)

    def solve(x: Array, number: Array) -> tuple[Array, None]:  # X Rᵀ = right, from the last column on
        return x.at[:, number].set((right[:, number] - x @ r[number]) / r[number, number]), None

    return (jax.lax.scan(solve, jnp.zeros_like(right), jnp.arange(r.shape[0]), reverse=True)[0],)


orthonormal.defvjp(_orthonormal_forward, _orthonormal_backward)
