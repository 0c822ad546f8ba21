"""Deep dense sigmoidal flows: monotone networks of one number, and the autoregressive map that they make up.

Huang, Krueger, Lacoste and Courville, "Neural Autoregressive Flows" (2018). All averages are taken of logarithms, so
that nothing saturates: the networks are onto R, and need not be cut off at the ends as in the paper's release.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flowjax.masks import rank_based_mask
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped
from scipy.special import ndtri

from ffjord.bijections.base import AbstractBijection, Report, Transformed
from ffjord.choices import NonlinearityName
from ffjord.dynamics import nonlinearity as named

_STEEPER = float(np.sqrt(1 + np.pi / 8))  # so sigmoids whose shifts are spread like N(0, 1) average to about one
_START = float(np.log(np.expm1(_STEEPER)))  # softplus of it is that
_SMALLEST_SLOPE = 1e-6
_END = 44.0  # of what is searched, see `_bisect`
_LARGEST_LOGIT = 10.0  # of shared weights: sums of the weighted terms cannot vanish in 32 bits


class SigmoidLayer(eqx.Module):
    """h' = σ⁻¹(w σ(a ⊙ (u h) + b)), with a > 0, and averages as rows of w and u.

    The logits of w and u are those that all columns and samples share (the fields), plus one free number for every
    entry of what is averaged, as in the paper's release: so a sample has 4 free numbers a unit and not a matrix.
    The first layer has no u, for its h is one number. A part of b is shared too, so that units differ from the start;
    the layer starts near the identity.
    """

    inner: Float[Array, "units size_in"] | None
    outer: Float[Array, "size_out units"]
    shift: Float[Array, " units"]

    def __init__(self, size_in: int, units: int, size_out: int, *, key: PRNGKeyArray):
        key_inner, key_outer = jax.random.split(key)
        self.inner = jax.random.normal(key_inner, (units, size_in)) if size_in > 1 else None
        self.outer = jax.random.normal(key_outer, (size_out, units))
        self.shift = jnp.asarray(ndtri((np.arange(units) + 0.5) / units), float)

    @property
    def num_free(self) -> int:
        """How many numbers of `free` it takes."""
        return 3 * self.outer.shape[1] + (0 if self.inner is None else self.inner.shape[1])

    def __call__(
        self, h: Float[Array, "*n size_in"], log_slope: Float[Array, "*n size_in"], free: Float[Array, "*n free"]
    ) -> tuple[Float[Array, "*n size_out"], Float[Array, "*n size_out"]]:
        """h' and log dh'/dx, from h and log dh/dx."""
        units = self.outer.shape[1]
        scale, shift, outer, inner = jnp.split(free, [units, 2 * units, 3 * units], axis=-1)
        if self.inner is not None:
            log_slope = _log_sum(self.inner, inner + log_slope) - _log_sum(self.inner, inner)
            h = _average(self.inner, inner, h)
        a = jax.nn.softplus(scale + _START) + _SMALLEST_SLOPE
        y = a * h + self.shift + shift
        up, down = jax.nn.log_sigmoid(y), jax.nn.log_sigmoid(-y)
        below, above = _log_sum(self.outer, outer + up), _log_sum(self.outer, outer + down)
        rise = _log_sum(self.outer, outer + up + down + jnp.log(a) + log_slope) + _log_sum(self.outer, outer)
        return below - above, rise - below - above


class Sigmoids(eqx.Module):
    """R → R, increasing and onto: `depth` sigmoid layers of `units`, between one number and one number."""

    layers: tuple[SigmoidLayer, ...]

    def __init__(self, units: int, depth: int = 2, *, key: PRNGKeyArray):
        if units < 1 or depth < 1:
            raise ValueError(f"units and depth must be at least 1; got units={units}, depth={depth}.")
        sizes, keys = [1, *[units] * (depth - 1), 1], jax.random.split(key, depth)
        self.layers = tuple(
            SigmoidLayer(size_in, units, size_out, key=key)
            for size_in, size_out, key in zip(sizes[:-1], sizes[1:], keys, strict=True)
        )

    @property
    def num_free(self) -> int:
        """How many free numbers make one map of the family."""
        return sum(layer.num_free for layer in self.layers)

    def __call__(
        self, x: Float[Array, "*n"], free: Float[Array, "*n free"]
    ) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
        """f(x) and log f'(x)."""
        h, log_slope, start = x[..., None], jnp.zeros_like(x)[..., None], 0
        for layer in self.layers:
            h, log_slope = layer(h, log_slope, free[..., start : start + layer.num_free])
            start += layer.num_free
        return h[..., 0], log_slope[..., 0]

    def invert(self, y: Float[Array, " n"], free: Float[Array, "n free"]) -> Float[Array, " n"]:
        """The x with f(x) = y, by bisection to the numbers' precision; NaN if there is no such number.

        Its derivatives are those of the implicit function, for a bisection has none.
        """
        held = jax.lax.stop_gradient
        sigmoids, fixed = held(self), held(free)
        x = _bisect(lambda x: sigmoids(x, fixed)[0], held(y))
        value, log_slope = self(x, free)
        step = (y - value) * jnp.exp(-held(log_slope))
        return x + step - held(step)


class MaskedNetwork(eqx.Module):
    """(x, c) → `num_out` numbers for every column, those of column i from x_1 … x_{i-1} and c alone (MADE)."""

    layers: tuple[eqx.nn.Linear, ...]
    dim: int = eqx.field(static=True)
    condition_size: int = eqx.field(static=True)
    nonlinearity: NonlinearityName = eqx.field(static=True)

    def __init__(
        self,
        dim: int,
        num_out: int,
        hidden: Sequence[int],
        *,
        nonlinearity: NonlinearityName,
        condition_size: int = 0,
        key: PRNGKeyArray,
    ):
        sizes = [dim + condition_size, *hidden, dim * num_out]
        if dim < 1 or min(sizes) < 1:
            raise ValueError(f"dim and hidden widths must be positive; got dim={dim}, hidden={tuple(hidden)}.")
        least = dim if condition_size else dim - 1  # one unit for every set of columns that another depends on
        if min(sizes[1:]) < least:
            raise ValueError(f"hidden layers must have {least} units at least for {dim} columns; got {tuple(hidden)}.")
        named(nonlinearity)
        keys = jax.random.split(key, len(sizes) - 1)
        self.layers = tuple(
            eqx.nn.Linear(before, after, key=key)
            for before, after, key in zip(sizes[:-1], sizes[1:], keys, strict=True)
        )
        self.dim, self.condition_size, self.nonlinearity = dim, condition_size, nonlinearity

    def __call__(
        self, x: Float[Array, "n dim"], condition: Shaped[Array, "n ..."] | None = None
    ) -> Float[Array, "n dim out"]:
        return jnp.einsum("nh,dkh->ndk", self._features(x, condition), self._last()[0]) + self._last()[1]

    def column(
        self, x: Float[Array, "n dim"], condition: Shaped[Array, "n ..."] | None, i: Int[Array, ""]
    ) -> Float[Array, "n out"]:
        """The numbers of column i only."""
        weight, bias = self._last()
        return self._features(x, condition) @ weight[i].T + bias[i]

    def _features(self, x: Array, condition: Array | None) -> Array:
        h = x if condition is None or not self.condition_size else jnp.concatenate([x, condition], axis=1)
        for i, linear in enumerate(self.layers[:-1]):
            mask = rank_based_mask(self._ranks(i), self._ranks(i + 1), eq=True)
            masked = eqx.tree_at(lambda linear: linear.weight, linear, linear.weight * mask)
            h = named(self.nonlinearity)(jax.vmap(masked)(h))
        return h

    def _last(self) -> tuple[Array, Array]:
        """Weights (dim, out, features) and biases (dim, out) of the last layer."""
        last = self.layers[-1]
        mask = rank_based_mask(self._ranks(len(self.layers) - 1), jnp.arange(self.dim))
        assert last.bias is not None
        return last.weight.reshape(self.dim, -1, last.in_features) * mask[:, None], last.bias.reshape(self.dim, -1)

    def _ranks(self, i: int) -> Array:
        """The last column that each entry of the i-th layer's input may depend on; -1 for conditions alone."""
        if i == 0:
            return jnp.concatenate([jnp.arange(self.dim), jnp.full(self.condition_size, -1)])
        lowest = -1 if self.condition_size else 0
        return lowest + jnp.arange(self.layers[i].in_features) % max(1, self.dim - 1 - lowest)


class SigmoidalAutoregressive(AbstractBijection):
    """z_i = f(x_i; θ_i(x_1, …, x_{i-1}, c)), with f the monotone network of `Sigmoids`.

    Data → base is one pass, in closed form. Base → data is numerical: D passes, each with a bisection to the numbers'
    precision. Only what comes from beyond ±6·10¹⁸ is not found, but NaN.

    **Arguments:**

    - `dim`: D, the number of columns.
    - `units`: sigmoids in each of the two layers of f.
    - `hidden`, `nonlinearity`: of the masked network that gives θ.
    - `condition_size`: size of the condition c; 0 for none.
    """

    exact_inverse: ClassVar[bool] = False
    """Whether both directions are in closed form."""
    sigmoids: Sigmoids
    network: MaskedNetwork

    def __init__(
        self,
        dim: int,
        units: int = 16,
        hidden: Sequence[int] = (100, 100),
        *,
        nonlinearity: NonlinearityName = "elu",
        condition_size: int = 0,
        key: PRNGKeyArray,
    ):
        key_sigmoids, key_network = jax.random.split(key)
        self.sigmoids = Sigmoids(units, key=key_sigmoids)
        network = MaskedNetwork(
            dim,
            self.sigmoids.num_free,
            hidden,
            nonlinearity=nonlinearity,
            condition_size=condition_size,
            key=key_network,
        )
        last = lambda network: (network.layers[-1].weight, network.layers[-1].bias)
        self.network = eqx.tree_at(last, network, replace_fn=lambda array: 0.1 * array)  # near the identity

    def forward(
        self,
        z: Float[Array, "n dim"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        def add_column(x: Array, i: Array) -> tuple[Array, None]:
            free = self.network.column(x, condition, i)
            return x.at[:, i].set(self.sigmoids.invert(z[:, i], free)), None

        x, _ = jax.lax.scan(add_column, jnp.zeros_like(z), jnp.arange(z.shape[1]))
        return Transformed(x, -self.inverse(x, condition=condition).log_det, Report.nothing())

    def inverse(
        self,
        x: Float[Array, "n dim"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        z, log_slope = self.sigmoids(x, self.network(x, condition))
        return Transformed(z, jnp.sum(log_slope, axis=1), Report.nothing())


def _weights(logits: Array) -> Array:
    return jnp.exp(_LARGEST_LOGIT * jnp.tanh(logits / _LARGEST_LOGIT))


def _log_sum(logits: Float[Array, "m k"], terms: Float[Array, "*n k"]) -> Float[Array, "*n m"]:
    """log Σ_j exp(logits_ij + terms_j): a product of matrices, for the logits are the same in all rows."""
    largest = jax.lax.stop_gradient(jnp.max(terms, axis=-1, keepdims=True))
    return jnp.log(jnp.exp(terms - largest) @ _weights(logits).T) + largest


def _average(logits: Float[Array, "m k"], terms: Float[Array, "*n k"], h: Float[Array, "*n k"]) -> Float[Array, "*n m"]:
    """Σ_j softmax_j(logits_ij + terms_j) h_j."""
    share, weights = jax.nn.softmax(terms, axis=-1), _weights(logits).T
    return (share * h) @ weights / (share @ weights)


def _bisect(f: Callable[[Array], Array], y: Float[Array, " n"]) -> Float[Array, " n"]:
    """The x with f(x) = y for an increasing f, each row by itself; NaN beyond ±6·10¹⁸.

    It is halved in t, where x = sinh t: one interval then holds small and large numbers to the same precision.
    """

    def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = 0.5 * (ends[0] + ends[1])
        right = f(jnp.sinh(middle)) < y
        return jnp.where(right, middle, ends[0]), jnp.where(right, ends[1], middle)

    end = jnp.full_like(y, _END)
    low, high = jax.lax.fori_loop(0, np.finfo(y.dtype).nmant + 10, halve, (-end, end))
    found = (low > -_END) & (high < _END)  # neither end is where it was
    return jnp.where(found, jnp.sinh(0.5 * (low + high)), jnp.nan)
