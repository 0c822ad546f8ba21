"""Where to look, and how dense it is there: extents, grids and densities on them."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ffjord.bijections import CNF, Numerics
from ffjord.divergence import Exact
from ffjord.flow import Flow

CHUNK = {1: 512, 2: 4096}
"""Points a solve, by dimension: one shape for every picture, so that one compilation serves them all."""

_TOLERANCE = 2e-3
_FINE_AS_IT_IS = ("euler", "midpoint", "rk4", "kvaerno5")
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


def density_at(flow: Flow, x: Float[Array | np.ndarray, "n d"], time: float = 1.0) -> Float[np.ndarray, " n"]:
    """p(z(t)) at n points, in chunks of one shape; the time is an array, so all times share one compilation."""
    stopped = for_pictures(flow).at(jnp.asarray(time, flow.dtype))
    x = np.asarray(x, flow.dtype)
    chunks = -(-len(x) // CHUNK[x.shape[1]])
    padded = np.resize(x, (chunks * CHUNK[x.shape[1]], x.shape[1]))
    log_prob = [np.asarray(stopped.log_prob(chunk)) for chunk in np.split(padded, chunks)]
    return np.exp(np.concatenate(log_prob)[: len(x)])


def density_on_grid(flow: Flow, extent: Extent, *, size: int, time: float = 1.0) -> Float[np.ndarray, "*cells"]:
    """p(z(t)) at the cells of a grid: rows are the second coordinate, columns the first, as `imshow` wants them."""
    return density_at(flow, grid_points(extent, size), time).reshape((size,) * len(extent.low))


def brightest(density: Float[np.ndarray, "*cells"], mass: float = 0.98) -> float:
    """The density below which lies a fraction of the mass: where a colour scale may end without heeding spikes."""
    levels = np.sort(density, axis=None)
    below = np.cumsum(levels)
    return float(levels[min(np.searchsorted(below, mass * below[-1]), levels.size - 1)])


def for_pictures(flow: Flow) -> Flow:
    """The flow with the exact divergence and a solver that is quick, and off by a fraction of a percent.

    At such tolerances the third-order method needs half the evaluations of the fifth-order ones. Methods of fixed
    steps stay, because they are part of what the flow is; the implicit one, because it has its reasons.
    """
    is_cnf = lambda node: isinstance(node, CNF)
    soften = lambda node: _soften(node) if is_cnf(node) else node
    return Flow(flow.base, jax.tree.map(soften, flow.bijection, is_leaf=is_cnf))


def _soften(cnf: CNF) -> CNF:
    solver = cnf.testing.solver
    if solver.method not in _FINE_AS_IT_IS:
        solver = dataclasses.replace(solver, method="bosh3", rtol=_TOLERANCE, atol=_TOLERANCE, steps="batch")
    return eqx.tree_at(lambda c: c.testing, cnf, Numerics(Exact(), solver))


def dimension_of(flow: Flow) -> int:
    """1 or 2; anything else has no picture."""
    if flow.event_shape not in ((1,), (2,)):
        raise ValueError(
            f"pictures are drawn of flows with event shape (1,) or (2,); this flow has {flow.event_shape}. "
            "Draw samples with flow.sample and plot two of their coordinates instead."
        )
    return flow.event_shape[0]
