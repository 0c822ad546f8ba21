"""Where to look: extents and grids."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float

_LARGEST_STRETCH = 4.0


class Extent(NamedTuple):
    """A box: its lowest and its highest corner."""

    low: Float[np.ndarray, " d"]
    high: Float[np.ndarray, " d"]

    @property
    def size(self) -> Float[np.ndarray, " d"]:
        return self.high - self.low

    @property
    def volume(self) -> float:
        return float(np.prod(self.size))


def extent_of(*clouds: Float[Array | np.ndarray, "_ d"], margin: float = 0.12, outside: float = 0.001) -> Extent:
    """A box that holds all but a few outliers of every cloud of points, with a margin.

    It is a square, so that shapes keep their proportions, unless the axes' units are plainly not comparable.

    **Arguments:**

    - `margin`: room on each side, as a fraction of the size.
    - `outside`: fraction of each cloud's points that may lie beyond each side.
    """
    quantiles = np.stack([np.quantile(np.asarray(cloud, float), [outside, 1 - outside], axis=0) for cloud in clouds])
    if not np.all(np.isfinite(quantiles)):
        raise ValueError("a picture needs finite points; got NaN or infinity. Remove those rows first.")
    low, high = quantiles[:, 0].min(axis=0), quantiles[:, 1].max(axis=0)
    half = np.maximum((high - low) / 2, 1e-6 * (1 + np.abs(low)))
    if half.max() <= _LARGEST_STRETCH * half.min():
        half = np.full_like(half, half.max())
    middle, half = (low + high) / 2, half * (1 + 2 * margin)
    return Extent(middle - half, middle + half)


def grid_points(extent: Extent, size: int) -> Float[np.ndarray, "n d"]:
    """The centres of `size` cells along each axis, the first coordinate running fastest."""
    centres = (np.arange(size) + 0.5) / size
    axes = [low + centres * (high - low) for low, high in zip(*extent, strict=True)]
    return np.stack([axis.ravel() for axis in np.meshgrid(*axes)], axis=-1)


def brightest(density: Float[np.ndarray, "*cells"], mass: float = 0.98) -> float:
    """The density below which lies a fraction of the mass: where a colour scale may end without heeding spikes."""
    levels = np.sort(density, axis=None)
    below = np.cumsum(levels)
    level = levels[min(np.searchsorted(below, mass * below[-1]), levels.size - 1)]
    return max(float(level), np.finfo(float).tiny)
