"""Maps at the data's end that make data nearly Gaussian in closed form, so that the flow has only the rest to learn.

They are fitted to training rows before the first step, and are not trained. What they know, the network need not learn:
heavy tails, spikes, and scales that differ by orders of magnitude are hard for a smooth network and easy here.

Lyu and Simoncelli, Nonlinear extraction of independent components of natural images using radial Gaussianization, 2009.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, Shaped
from scipy.special import gammaincinv, ndtr, ndtri

from ffjord.bijections.base import AbstractBijection, Report, Transformed
from ffjord.parameters import Buffer

_ROWS = 2**19
_TAIL = 4.0
_TINY = 1e-30


class Knots(eqx.Module):
    """A rising, piecewise linear function of every column; the first and last pieces go on for ever."""

    x: Buffer
    z: Buffer

    def __init__(self, x: Float[Array | np.ndarray, "knots columns"], z: Float[Array | np.ndarray, "knots columns"]):
        self.x, self.z = Buffer(jnp.asarray(x)), Buffer(jnp.asarray(z))

    def __call__(self, x: Float[Array, "n columns"]) -> tuple[Float[Array, "n columns"], Float[Array, "n columns"]]:
        """The values and the logarithms of the slopes."""
        return _piecewise(x, self.x.value, self.z.value)

    def back(self, z: Float[Array, "n columns"]) -> tuple[Float[Array, "n columns"], Float[Array, "n columns"]]:
        """The same for the inverse function."""
        return _piecewise(z, self.z.value, self.x.value)


class Marginals(AbstractBijection):
    """Every column on its own becomes Gaussian: z_j = Φ⁻¹(F_j(x_j)), with F_j the distribution of the training rows.

    F_j is known at `knots` quantiles, half of them evenly spread in probability and half in z, and Φ⁻¹ ∘ F_j is linear
    between them. A column of few values does not get a density without bound: between neighbouring values it is linear.

        log |det dz/dx| = Σ_j log dz_j/dx_j
    """

    knots: Knots

    def __init__(self, dim: int, *, knots: int = 256):
        self.knots = _identity(knots, dim)

    def forward(
        self,
        z: Float[Array, "n dim"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        x, log_slope = self.knots.back(z)
        return Transformed(x, jnp.sum(log_slope, axis=1), Report.nothing())

    def inverse(
        self,
        x: Float[Array, "n dim"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        z, log_slope = self.knots(x)
        return Transformed(z, jnp.sum(log_slope, axis=1), Report.nothing())

    def rows_to_calibrate(self) -> int:
        return _ROWS

    def calibrate(
        self, x: Float[Array, "n dim"], *, condition: Shaped[Array, "n ..."] | None = None, key: PRNGKeyArray
    ) -> "Marginals":
        return eqx.tree_at(lambda m: m.knots, self, _fitted(self.knots, np.asarray(x), ndtri))


class Radial(AbstractBijection):
    """Whitened rows get the lengths of Gaussian ones:

        y = L⁻¹ (x - mean),   z = y |z| / |y|,   log |z| = g(log |y|),
        log |det dz/dx| = D log(|z| / |y|) + log g'(log |y|) - Σ_j log L_jj,

    with mean and covariance L Lᵀ of the training rows, and g rising, linear between `knots` quantiles, such that |z|
    has the distribution of the length of D standard Gaussians. A Gaussian of unknown scale becomes an exact Gaussian.
    """

    mean: Buffer
    factor: Buffer
    knots: Knots

    def __init__(self, dim: int, *, knots: int = 256):
        self.mean, self.factor, self.knots = Buffer(jnp.zeros(dim)), Buffer(jnp.eye(dim)), _identity(knots, 1)

    def forward(
        self,
        z: Float[Array, "n dim"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        y, log_det = _stretched(z, self.knots.back)
        x = self.mean.value + y @ self.factor.value.T
        return Transformed(x, log_det + self._log_volume(), Report.nothing())

    def inverse(
        self,
        x: Float[Array, "n dim"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        z, log_det = _stretched(self._whitened(x), self.knots)
        return Transformed(z, log_det - self._log_volume(), Report.nothing())

    def rows_to_calibrate(self) -> int:
        return _ROWS

    def calibrate(
        self, x: Float[Array, "n dim"], *, condition: Shaped[Array, "n ..."] | None = None, key: PRNGKeyArray
    ) -> "Radial":
        rows = np.asarray(x, np.float64)
        factor = np.linalg.cholesky(np.cov(rows.T))
        white = eqx.tree_at(lambda r: (r.mean.array, r.factor.array), self, (_like(x, rows.mean(0)), _like(x, factor)))
        lengths = np.asarray(_log_length(white._whitened(x)))
        log_chi = lambda level: 0.5 * np.log(2 * gammaincinv(rows.shape[1] / 2, level))
        return eqx.tree_at(lambda r: r.knots, white, _fitted(self.knots, lengths, log_chi))

    def _whitened(self, x: Array) -> Array:
        return jax.scipy.linalg.solve_triangular(self.factor.value, (x - self.mean.value).T, lower=True).T

    def _log_volume(self) -> Array:
        return jnp.sum(jnp.log(jnp.diagonal(self.factor.value)))


def _identity(knots: int, columns: int) -> Knots:
    """Knots of the identity, before they are fitted."""
    if knots < 4 or knots % 2:
        raise ValueError(f"knots must be even and at least 4; got {knots}.")
    line = jnp.broadcast_to(jnp.linspace(-_TAIL, _TAIL, knots)[:, None], (knots, columns))
    return Knots(line, line)


def _stretched(y: Array, function: Any) -> tuple[Array, Array]:
    """y with the logarithm of its length mapped, and the log-determinant of that."""
    before = _log_length(y)
    after, log_slope = function(before)
    return y * jnp.exp(after - before), (y.shape[1] * (after - before) + log_slope)[:, 0]


def _log_length(y: Array) -> Array:
    return 0.5 * jnp.log(jnp.sum(y**2, axis=1, keepdims=True) + _TINY)


def _piecewise(x: Array, from_: Array, to: Array) -> tuple[Array, Array]:
    """Values and log-slopes of the functions that take `from_` to `to`, a column each."""

    def of_column(x: Array, from_: Array, to: Array) -> tuple[Array, Array]:
        left = jnp.clip(jnp.searchsorted(from_, x) - 1, 0, len(from_) - 2)
        slope = jnp.diff(to)[left] / jnp.diff(from_)[left]
        return to[left] + slope * (x - from_[left]), jnp.log(slope)

    return jax.vmap(of_column, in_axes=1, out_axes=1)(x, from_, to)


def _fitted(knots: Knots, rows: np.ndarray, quantile: Any) -> Knots:
    """Knots that take the quantiles of every column to those of another distribution."""
    count = len(knots.x.array)
    even = (np.arange(count // 2) + 0.5) / (count // 2)
    levels = np.sort(np.concatenate([even, ndtr(np.linspace(-_TAIL, _TAIL, count // 2))]))
    columns = [_column(column, levels, quantile) for column in np.asarray(rows, np.float64).T]
    x, z = (np.stack(side, axis=1) for side in zip(*columns, strict=True))
    return Knots(_like(knots.x.array, x), _like(knots.z.array, z))


def _column(values: np.ndarray, levels: np.ndarray, quantile: Any) -> tuple[np.ndarray, np.ndarray]:
    """Knots of one column: where quantiles coincide they become one, and the last piece is continued for the others."""
    x, z = np.quantile(values, levels).astype(np.float32), quantile(levels)
    places = np.unique(x)
    if len(places) < 2:
        raise ValueError("a column is constant, or nearly so, and has no density; leave it out.")
    middle = np.array([z[x == place].mean() for place in places])
    missing = np.arange(1, len(x) - len(places) + 1)
    extended = lambda known: np.concatenate([known, known[-1] + missing * (known[-1] - known[-2])])
    return extended(places.astype(np.float64)), extended(middle)


def _like(array: Array, values: np.ndarray) -> Array:
    return jnp.asarray(values, array.dtype)
