"""Dynamics whose weights an encoder moves: (W + U(x) V(x)ᵀ) [t, h] + b + b(x) in every layer  (equation 10)."""

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


class Prepared(NamedTuple):
    """A condition with what the trace takes of the matrices that it makes."""

    condition: Array | None
    product: Array


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
        self.weights = tuple(linear.weight for linear in linears)
        self.biases = tuple(jnp.asarray(linear.bias) for linear in linears)
        self.amortization, self.rank, self.nonlinearity = amortization, rank, nonlinearity

    @property
    def condition_size(self) -> int:
        """Size of c: 0 if nothing depends on x."""
        return sum(int(np.prod(shape)) for shapes in self._shapes() for shape in shapes.values())

    def __call__(
        self, t: Float[Array, ""], z: Float[Array, " dim"], condition: Float[Array, " c"] | Prepared | None = None
    ) -> Float[Array, " dim"]:
        return self._run(t, z, condition.condition if isinstance(condition, Prepared) else condition)[0]

    # The divergence in closed form.

    @property
    def has_closed_form(self) -> bool:
        """Whether `value_and_divergence` exists: it does for at most two hidden layers."""
        return len(self.weights) <= 3

    def prepare(self, condition: Float[Array, " c"] | None) -> Prepared:
        """What is the same along a whole path: for one hidden layer H numbers a sample, for two H²."""
        matrices = [w[:, 1:] + _matrix(own) for w, own in zip(self.weights, self._own(condition), strict=True)]
        return Prepared(condition, product_of(matrices))

    def value_and_divergence(
        self, t: Float[Array, ""], z: Float[Array, " dim"], condition: Float[Array, " c"] | Prepared | None = None
    ) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """f(t, z) and Tr(df/dz), exactly: see `MLP.value_and_divergence`. Here every sample has its own matrices, so
        that their product is dear, and made but once a solve."""
        known = condition if isinstance(condition, Prepared) else self.prepare(condition)
        dz, slopes = self._run(t, z, known.condition)
        return dz, trace_with(known.product, slopes)

    def _run(self, t: Array, z: Array, condition: Array | None) -> tuple[Array, list[Array]]:
        """f(t, z), and σ' in every hidden layer."""
        h, slopes, last = z, [], len(self.weights) - 1
        for i, (weight, bias, own) in enumerate(zip(self.weights, self.biases, self._own(condition), strict=True)):
            h = h @ weight[:, 1:].T + (weight[:, 0] * t + bias) + _moved(own, t, h)
            if i < last:
                h, slope = value_and_slope(_sigma(self.nonlinearity), h)
                slopes.append(slope)
        return h, slopes

    def _shapes(self) -> list[dict[str, tuple[int, ...]]]:
        """What of every layer depends on x."""
        k = self.rank
        kinds = {
            "low-rank": lambda m, n: {"u": (n, k), "v": (m, k), "b": (n,)},
            "bias": lambda m, n: {"b": (n,)},
            "full": lambda m, n: {"w": (n, m), "b": (n,)},
            "none": lambda m, n: {},
        }
        return [kinds[self.amortization](weight.shape[1], weight.shape[0]) for weight in self.weights]

    def _own(self, condition: Array | None) -> list[dict[str, Array]]:
        """The parts of the condition by layer and name."""
        parts: list[dict[str, Array]] = []
        start = 0
        for shapes in self._shapes():
            parts.append({})
            if condition is None:
                continue
            for name, shape in shapes.items():
                size = int(np.prod(shape))
                parts[-1][name] = condition[start : start + size].reshape(shape)
                start += size
        return parts


def _matrix(own: dict[str, Array]) -> Any:
    """U Vᵀ without the column of t, or what there is of it."""
    if "u" in own:
        return own["u"] @ own["v"][1:].T
    return own["w"][:, 1:] if "w" in own else 0.0


def _moved(own: dict[str, Array], t: Array, h: Array) -> Any:
    """(U Vᵀ) [t, h] + b(x), or what there is of it."""
    y: Any = own.get("b", 0.0)
    if "u" in own:
        y = y + own["u"] @ (own["v"][1:].T @ h + own["v"][0] * t)
    if "w" in own:
        y = y + own["w"][:, 1:] @ h + own["w"][:, 0] * t
    return y
