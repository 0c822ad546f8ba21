"""Dynamics whose weights an encoder moves: (W + U(x) V(x)ᵀ) [t, h] + b + b(x) in every layer  (equation 10)."""

from collections.abc import Sequence
from typing import Any, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ffjord.choices import Amortization, NonlinearityName
from ffjord.dynamics.mlp import nonlinearity as _sigma


Prepared = list[dict[str, Array]]
"""A condition, cut up."""


class LowRankMLP(eqx.Module):
    """f(t, z; x) = layer_L(… σ(layer_1(z))), where layer(h) = (W + U(x) V(x)ᵀ) [t, h] + b + b(x).

    Every sample has its own U, V and b(x); W and b are shared. What depends on x comes in one vector, the condition
    c = (U, V, b(x)) of all layers one after another, of the size `condition_size`: a linear map of an encoder's
    features makes it once, before the solve, and it stays as it is along the path. [t, h] is h with the time before it.

    **Arguments:**

    - `dim`: D, the size of z.
    - `hidden`: widths of the hidden layers.
    - `amortization`: what depends on x: low-rank (U, V and b), bias (b only), full (a whole matrix and b), or none.
    - `rank`: k, columns of U and V.
    """

    weights: tuple[Float[Array, "out in"], ...]
    times: tuple[Float[Array, " out"], ...]
    biases: tuple[Float[Array, " out"], ...]
    amortization: Amortization = eqx.field(static=True)
    rank: int = eqx.field(static=True)
    nonlinearity: NonlinearityName = eqx.field(static=True)

    def __init__(
        self,
        dim: int,
        hidden: Sequence[int] = (512, 512),
        *,
        amortization: Amortization = "low-rank",
        rank: int = 20,
        nonlinearity: NonlinearityName = "softplus",
        key: PRNGKeyArray,
    ):
        sizes = [dim, *hidden, dim]
        if min(sizes) < 1:
            raise ValueError(f"dim and hidden widths must be positive; got dim={dim}, hidden={tuple(hidden)}.")
        if rank < 1:
            raise ValueError(f"rank must be at least 1; got {rank}.")
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

    @property
    def condition_size(self) -> int:
        """Size of c: 0 if nothing depends on x."""
        return sum(int(np.prod(shape)) for shapes in self._shapes() for shape in shapes.values())

    def prepare(self, condition: Float[Array, " c"] | None) -> Prepared:
        """The parts of c by layer and name, which may stand in its place: cut up once, and not at every evaluation,
        where moving them would cost more than the products with them."""
        parts: Prepared = []
        start = 0
        for shapes in self._shapes():
            parts.append({})
            for name, shape in shapes.items() if condition is not None else ():
                size = int(np.prod(shape))
                parts[-1][name] = condition[start : start + size].reshape(shape)
                start += size
        if self.has_closed_form:
            parts[0]["diagonal"] = self._diagonal(*parts)
        return parts

    def __call__(
        self, t: Float[Array, ""], z: Float[Array, " dim"], condition: Float[Array, " c"] | Prepared | None = None
    ) -> Float[Array, " dim"]:
        own = condition if isinstance(condition, list) else self.prepare(condition)
        h = z
        for i in range(len(self.weights) - 1):
            h = _sigma(self.nonlinearity)(self._layer(i, own[i], t, h))
        return self._layer(-1, own[-1], t, h)

    @property
    def has_closed_form(self) -> bool:
        """Whether `value_and_divergence` exists: it does for one hidden layer."""
        return len(self.weights) == 2

    def value_and_divergence(
        self, t: Float[Array, ""], z: Float[Array, " dim"], condition: Float[Array, " c"] | Prepared | None = None
    ) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """f(t, z) and Tr(df/dz), exactly, for no more than f(t, z).

        With one hidden layer, u = A1 z + …, f = A2 σ(u) + …, each sample with its own A1 and A2,

            Tr(df/dz) = Tr(A2 diag(σ'(u)) A1) = σ'(u) · diag(A1 A2),

        and the diagonal is the same along the whole path: it is computed once, before the solve.
        """
        if not self.has_closed_form:
            raise ValueError(f"there is a closed form for one hidden layer; this network has {len(self.weights) - 1}.")
        own = condition if isinstance(condition, list) else self.prepare(condition)
        u, sigma = self._layer(0, own[0], t, z), _sigma(self.nonlinearity)
        h, slope = jax.jvp(sigma, (u,), (jnp.ones_like(u),))
        return self._layer(1, own[1], t, h), slope @ own[0]["diagonal"]

    def _layer(self, i: int, own: dict[str, Array], t: Array, h: Array) -> Array:
        return self.weights[i] @ h + (self.times[i] * t + self.biases[i]) + _moved(own, t, h)

    def _diagonal(self, first: dict[str, Array], second: dict[str, Array]) -> Float[Array, " hidden"]:
        """diag(A1 A2) with A = W + U Vᵀ, without ever making the A:

        diag(W1 W2) + diag(U1 (V1ᵀ W2)) + diag((W1 U2) V2ᵀ) + diag(U1 (V1ᵀ U2) V2ᵀ).
        """
        w1, w2 = self.weights
        if "w" in first:
            w1, w2 = w1 + first["w"], w2 + second["w"]
        diagonal = jnp.sum(w1 * w2.T, axis=1)
        if "u" in first:
            u1, v1, u2, v2 = (own[name] for own in (first, second) for name in ("u", "v"))
            diagonal += jnp.sum(u1 * (v1 @ w2 + (v1 @ u2.T) @ v2) + v2 * (u2 @ w1.T), axis=0)
        return diagonal

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


def _moved(own: dict[str, Array], t: Array, h: Array) -> Any:
    """(U Vᵀ) [t, h] + b(x), or what there is of it."""
    y: Any = own.get("b", 0.0)
    if "u" in own:
        y = y + (own["v"] @ h + own["v_time"] * t) @ own["u"]
    if "w" in own:
        y = y + own["w"] @ h + own["w_time"] * t
    return y
