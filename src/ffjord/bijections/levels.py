"""A map of dequantised pixels that gives frequent grey levels room, so that the flow need not separate them."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, Shaped
from scipy.special import ndtr

from ffjord.bijections.base import AbstractBijection, Report, Transformed
from ffjord.bijections.gaussianize import Knots

_ROWS = 2**14
_FREQUENT = 1.5
_LEAST = 0.002
_PARTS = 64
_TAIL = 3.0


class Levels(AbstractBijection):
    """z = F⁻¹(G(x)) at every pixel: G is the distribution of all pixels' values, F a smooth one with a bump for each
    grey level that is frequent.

    A dequantised pixel x = (v + u)/L, v = 0 … L-1, is uniform within its level v. Of the white paper of a drawing that
    is a density of 256 on [0, 1/256] and of almost nothing beside it: an edge that no smooth flow draws well, at four
    fifths of all pixels. Here the level becomes a Gaussian bump, with room around it. With w_v the share of level v,

        F = Σ_v w_v N(m_v, s_v²),   m_{v+1} - m_v = (l_v + l_{v+1})/2,

        l_v = √w_v,        s_v = l_v/6      for levels with more than 1.5 times the even share, w_v > τ = 1.5/L,
        l_v = w_v/√τ,      s_v = l_v        for the others, whose bumps so become one,

    scaled to mean 0 and variance 1. The w_v are those of the training images, found before the first step, and at least
    0.002/L: levels that never occur have room too. The map is not trained. It is linear between 64 knots a level.

        log |det dz/dx| = Σ_j log dz_j/dx_j
    """

    knots: Knots
    count: int = eqx.field(static=True)

    def __init__(self, count: int = 256):
        if count < 2:
            raise ValueError(f"count must be at least 2 grey levels; got {count}.")
        line = jnp.linspace(0.0, 1.0, count * _PARTS + 1)[:, None]
        self.knots, self.count = Knots(line, line), count

    def forward(
        self,
        z: Float[Array, "n *event"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        return _pixelwise(self.knots.back, z)

    def inverse(
        self,
        x: Float[Array, "n *event"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        return _pixelwise(self.knots, x)

    def rows_to_calibrate(self) -> int:
        return _ROWS

    def calibrate(
        self, x: Float[Array, "n *event"], *, condition: Shaped[Array, "n ..."] | None = None, key: PRNGKeyArray
    ) -> "Levels":
        level = np.clip(np.asarray(x) * self.count, 0, self.count - 1).astype(np.int64)
        shares = np.maximum(np.bincount(level.ravel(), minlength=self.count) / level.size, _LEAST / self.count)
        places, values = _knots(shares / shares.sum())
        like = lambda numbers, buffer: jnp.asarray(numbers[:, None], buffer.array.dtype)
        new = (like(places, self.knots.x), like(values, self.knots.z))
        return eqx.tree_at(lambda levels: (levels.knots.x.array, levels.knots.z.array), self, new)


def _pixelwise(function: Callable[[Array], tuple[Array, Array]], x: Array) -> Transformed:
    value, log_slope = function(x.reshape(-1, 1))
    return Transformed(value.reshape(x.shape), jnp.sum(log_slope.reshape(len(x), -1), axis=1), Report.nothing())


def _knots(shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places x and values z of the map, 64 a level: evenly spread over its bump, or over a level without one."""
    count = len(shares)
    bump = ndtr(np.linspace(-_TAIL, _TAIL, _PARTS + 1))
    within = np.where(_frequent(shares)[:, None], bump, np.linspace(0.0, 1.0, _PARTS + 1))[:, 1:]
    within[:, -1] = 1.0
    inside = (np.arange(count)[:, None] + within).ravel()
    reached = np.cumsum(shares)[:, None] - shares[:, None] * (1 - within)
    places, reached = np.append(0.0, inside / count), np.append(0.0, reached.ravel())
    middle, spread = _bumps(shares)
    grid = np.linspace(middle[0] - _TAIL * spread[0], middle[-1] + _TAIL * spread[-1], 100_001)
    values = np.interp(reached, _distribution(grid, shares, middle, spread), grid)
    mean = shares @ middle
    scale = np.sqrt(shares @ (spread**2 + (middle - mean) ** 2))
    return places, (values - mean) / scale


def _bumps(shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """m_v and s_v."""
    frequent = _frequent(shares)
    room = np.where(frequent, np.sqrt(shares), shares / np.sqrt(_FREQUENT / len(shares)))
    return np.cumsum(room) - room / 2, np.where(frequent, room / 6, room)


def _frequent(shares: np.ndarray) -> np.ndarray:
    return shares > _FREQUENT / len(shares)


def _distribution(grid: np.ndarray, shares: np.ndarray, middle: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """F on a grid that holds nearly all of it, from 0 to 1 and rising throughout."""
    total = sum(w * ndtr((grid - m) / s) for w, m, s in zip(shares, middle, spread, strict=True))
    rising = np.asarray(total) + 1e-12 * np.arange(len(grid))
    return (rising - rising[0]) / (rising[-1] - rising[0])
