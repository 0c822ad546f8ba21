"""Dynamics whose weights an encoder moves: (W + U(x) V(x)ᵀ) [t, h] + b + b(x) in every layer  (equation 10)."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ffjord.choices import Amortization, NonlinearityName
from ffjord.dynamics.mlp import nonlinearity as _sigma
from ffjord.dynamics.mlp import product_of, trace_with, value_and_slope

Parts = list[dict[str, Array]]
"""What of every layer depends on x, by name."""


class Prepared(NamedTuple):
    """A condition as every evaluation uses it."""

    parts: Parts
    product: Array | None = None
    """What the trace takes of the matrices, if it was asked for."""


Condition = Float[Array, " c"] | Parts | Prepared | None


class LowRankMLP(eqx.Module):
    """f(t, z; x) = layer_L(… σ(layer_1(z))), where layer(h) = (W + U(x) V(x)ᵀ) [t, h] + b + b(x).

    Every sample has its own U, V and b(x); W and b are shared. What depends on x is the condition c = (U, V, b(x)) of
    all layers: a linear map of an encoder's features makes it once, before the solve, and it stays as it is along the
    path. It comes as a vector for each part, of the sizes `part_sizes`, or as a single one, of the size
    `condition_size`, which has to be cut up. [t, h] is h with the time before it.

    **Arguments:**

    - `dim`: D, the size of z.
    - `hidden`: widths of the hidden layers.
    - `amortization`: what depends on x: low-rank (U, V and b), bias (b only), full (a whole matrix and b), or none.
    - `rank`: k, columns of U and V.
    - `matrix_scale`: factor with which U, or the whole matrix, is taken from c. With 1/k the matrix learns in steps as
      small as those of b(x): it is a sum of k products, all of which learn at once.
    """

    weights: tuple[Float[Array, "out in"], ...]
    times: tuple[Float[Array, " out"], ...]
    biases: tuple[Float[Array, " out"], ...]
    amortization: Amortization = eqx.field(static=True)
    rank: int = eqx.field(static=True)
    matrix_scale: float = eqx.field(static=True)
    nonlinearity: NonlinearityName = eqx.field(static=True)

    def __init__(
        self,
        dim: int,
        hidden: Sequence[int] = (512, 512),
        *,
        amortization: Amortization = "low-rank",
        rank: int = 20,
        matrix_scale: float = 1.0,
        nonlinearity: NonlinearityName = "softplus",
        key: PRNGKeyArray,
    ):
        sizes = [dim, *hidden, dim]
        if min(sizes) < 1:
            raise ValueError(f"dim and hidden widths must be positive; got dim={dim}, hidden={tuple(hidden)}.")
        if rank < 1:
            raise ValueError(f"rank must be at least 1; got {rank}.")
        if not 0 < matrix_scale < math.inf:
            raise ValueError(f"matrix_scale must be a positive number; got {matrix_scale}.")
        if amortization not in get_args(Amortization):
            known = ", ".join(get_args(Amortization))
            raise ValueError(f"amortization must be one of {known}; got {amortization!r}.")
        _sigma(nonlinearity)
        linears = [
            eqx.nn.Linear(m + 1, n, key=k)
            for m, n, k in zip(sizes[:-1], sizes[1:], jax.random.split(key, len(sizes) - 1), strict=True)
        ]
        self.weights = tuple(linear.weight[:, 1:] for linear in linears)
        self.times = tuple(linear.weight[:, 0] for linear in linears)
        self.biases = tuple(jnp.asarray(linear.bias) for linear in linears)
        self.amortization, self.rank, self.nonlinearity = amortization, rank, nonlinearity
        self.matrix_scale = matrix_scale

    @property
    def part_sizes(self) -> list[dict[str, int]]:
        """Sizes of the vectors that c is made of, by layer and name."""
        return [{name: int(np.prod(shape)) for name, shape in shapes.items()} for shapes in self._shapes()]

    @property
    def condition_size(self) -> int:
        """Size of c: 0 if nothing depends on x."""
        return sum(jax.tree.leaves(self.part_sizes))

    def prepare(self, condition: Float[Array, " c"] | Parts | None, *, trace: bool = False) -> Prepared:
        """The matrices and biases of c, which may stand in its place: made once, and not at every evaluation, where
        moving them would cost more than the products with them.

        With `trace`, also what the trace takes of the matrices: of one hidden layer H numbers a sample, of two H².
        """
        if condition is None:
            parts: Parts = [{} for _ in self.weights]
        else:
            vectors = condition if isinstance(condition, list) else self._cut(condition)
            parts = [
                {name: self._scale(name) * own[name].reshape(shape) for name, shape in shapes.items()}
                for own, shapes in zip(vectors, self._shapes(), strict=True)
            ]
        return Prepared(parts, self._product(parts) if trace else None)

    def _cut(self, condition: Float[Array, " c"]) -> Parts:
        """The vectors that stand in c one after another, layer by layer."""
        parts, start = [{} for _ in self.weights], 0
        for part, sizes in zip(parts, self.part_sizes, strict=True):
            for name, size in sizes.items():
                part[name], start = condition[start : start + size], start + size
        return parts

    def _scale(self, name: str) -> float:
        return self.matrix_scale if name in ("u", "w", "w_time") else 1.0

    def __call__(
        self, t: Float[Array, ""], z: Float[Array, " dim"], condition: Condition = None
    ) -> Float[Array, " dim"]:
        return self._run(t, z, self._prepared(condition).parts)[0]

    # The divergence in closed form.

    @property
    def has_closed_form(self) -> bool:
        """Whether `value_and_divergence` exists: it does for at most two hidden layers."""
        return len(self.weights) <= 3

    def value_and_divergence(
        self, t: Float[Array, ""], z: Float[Array, " dim"], condition: Condition = None
    ) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """f(t, z) and Tr(df/dz), exactly: see `MLP.value_and_divergence`. Every sample has its own matrices here, but
        they are the same along its path, and so is their product: it is made but once a solve."""
        own = condition if isinstance(condition, Prepared) else self.prepare(condition, trace=True)
        dz, slopes, _ = self._run(t, z, own.parts)
        return dz, trace_with(self._product(own.parts) if own.product is None else own.product, slopes)

    # Hutchinson's estimate, of which a part stays as it is along the path.

    @property
    def has_forms(self) -> bool:
        """Whether there is a hidden layer, and so something to prepare for `value_and_forms`."""
        return len(self.weights) > 1

    def prepare_forms(
        self, eps: Float[Array, "k dim"], condition: Condition = None
    ) -> tuple[Float[Array, "k first"], Float[Array, "k last"]]:
        """A_1 ε and A_Lᵀ ε of every ε: neither the matrices nor the noise change along the path."""
        own = self._prepared(condition).parts
        first = lambda e: self.weights[0] @ e + _moved(own[0], e)
        last = lambda e: e @ self.weights[-1] + _pulled(own[-1], e)
        return jax.vmap(first)(eps), jax.vmap(last)(eps)

    def value_and_forms(
        self,
        t: Float[Array, ""],
        z: Float[Array, " dim"],
        prepared: tuple[Float[Array, "k first"], Float[Array, "k last"]],
        condition: Condition = None,
    ) -> tuple[Float[Array, " dim"], Float[Array, " k"]]:
        """f(t, z) and εᵀ (df/dz) ε of every ε that was prepared. With s_l = σ' in the hidden layers it is

            (A_Lᵀ ε)ᵀ diag(s_{L-1}) A_{L-1} … A_2 diag(s_1) (A_1 ε),

        so that with one hidden layer an evaluation takes no product beyond those of f, and with two a single one."""
        moved, last = prepared
        dz, slopes, moved = self._run(t, z, self._prepared(condition).parts, moved)
        return dz, jnp.sum(last * slopes[-1] * moved, axis=1)

    def _prepared(self, condition: Condition) -> Prepared:
        return condition if isinstance(condition, Prepared) else self.prepare(condition)

    def _run(self, t: Array, z: Array, own: Parts, moved: Any = None) -> tuple[Array, list[Array], Any]:
        """f(t, z), σ' in every hidden layer, and A_{L-1} … A_2 diag(s_1) times each row of `moved`, if given."""
        h, slopes, last = z, [], len(self.weights) - 1
        for i, (weight, time, bias) in enumerate(zip(self.weights, self.times, self.biases, strict=True)):
            if moved is not None and 0 < i < last:
                rows = slopes[-1] * moved
                products = jnp.concatenate([h[None], rows]) @ weight.T  # W is read once for all of them
                own_too = lambda product, row, parts=own[i]: product + _moved(parts, row)
                product, moved = products[0], jax.vmap(own_too)(products[1:], rows)
            else:
                product = weight @ h
            h = product + (time * t + bias) + own[i].get("b", 0.0) + _moved(own[i], h, t)
            if i < last:
                h, slope = value_and_slope(_sigma(self.nonlinearity), h)
                slopes.append(slope)
        return h, slopes, moved

    def _product(self, own: Parts) -> Array:
        """What the trace takes of the matrices A = W + U Vᵀ."""
        if len(own) == 2 and "u" in own[0]:
            return _diagonal(self.weights, own)
        return product_of([weight + _matrix(parts) for weight, parts in zip(self.weights, own, strict=True)])

    def _shapes(self) -> list[dict[str, tuple[int, ...]]]:
        """What of every layer depends on x. U and V lie in memory as Uᵀ and Vᵀ, whose rows are long: products with them
        are as quick as they can be read."""
        k = self.rank
        kinds = {
            "low-rank": lambda m, n: {"u": (k, n), "v": (k, m), "v_time": (k,), "b": (n,)},
            "bias": lambda m, n: {"b": (n,)},
            "full": lambda m, n: {"w": (n, m), "w_time": (n,), "b": (n,)},
            "none": lambda m, n: {},
        }
        return [kinds[self.amortization](weight.shape[1], weight.shape[0]) for weight in self.weights]


def _diagonal(weights: Sequence[Array], own: Parts) -> Float[Array, " hidden"]:
    """diag(A1 A2) without ever making the A:

    diag(W1 W2) + diag(U1 (V1ᵀ W2)) + diag((W1 U2) V2ᵀ) + diag(U1 (V1ᵀ U2) V2ᵀ).
    """
    (w1, w2), (u1, v1, u2, v2) = weights, (part[name] for part in own for name in ("u", "v"))
    moved = u1 * (v1 @ w2 + (v1 @ u2.T) @ v2) + v2 * (u2 @ w1.T)
    return product_of([w1, w2]) + jnp.sum(moved, axis=0)


def _matrix(own: dict[str, Array]) -> Any:
    """U Vᵀ without the column of t, or what there is of it."""
    return own["u"].T @ own["v"] if "u" in own else own.get("w", 0.0)


def _moved(own: dict[str, Array], h: Array, t: Array | float = 0.0) -> Any:
    """(U Vᵀ) [t, h], or what there is of it."""
    if "u" in own:
        return (own["v"] @ h + own["v_time"] * t) @ own["u"]
    return own["w"] @ h + own["w_time"] * t if "w" in own else 0.0


def _pulled(own: dict[str, Array], e: Array) -> Any:
    """(U Vᵀ)ᵀ e without the entry of t, or what there is of it."""
    if "u" in own:
        return (own["u"] @ e) @ own["v"]
    return e @ own["w"] if "w" in own else 0.0
