"""∫ p(x) dx of a flow: 1 if its log-densities are those of a density, and not of something else.

In one and two dimensions it is summed over the cells of a grid, in float64, and cells that hold mass are split until
that changes nothing. Beyond, it is estimated by importance sampling,

    ∫ p dx = E_q[p(x) / q(x)] ≈ mean of w_i,   w_i = p(x_i) / q(x_i),   x_i ~ q,

which needs a q that is near p, that covers it, and whose own density is beyond doubt. We have one: points z of a
mixture of the base and of small Gaussians around the data's own z, sent through the flow's map g; their density is
known by the determinant of g's Jacobian (`ffjord.report.jacobian`), without the trace that is under examination:

    q(g(z)) = r(z) / |det dg/dz|,   r = ½ N(0, I) + ½ mean_j N(z_j, s² I).

If p is right its weights are N(z) / r(z) ≤ 2, so that many dimensions do no harm. As many points are drawn from the one
half as from the other (stratified), and what spread remains is the standard error. (Σw)² / Σw² is the effective sample
size: where it is small, some weights are far above all others, and the estimate says little.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped

from ffjord.report.grid import Extent, grid_points

LogProb = Callable[[Float[np.ndarray, "n d"]], Float[np.ndarray, " n"]]

_FIRST = {1: 512, 2: 64}
_LAST = {1: 1 << 17, 2: 2048}
"""Cells along a side, of the first grid and at most, by dimension."""
_UNCHANGED = 1e-3
"""A change, or a mass at the edge, that does not matter."""
_WIDEST = 2.0
"""The largest margin, in sizes of the cloud."""
_REMAINDER = 5e-4
"""Mass, or its change by the last split, in cells that are not split further."""
_WIDTH = 0.5
"""s."""


class GridMass(NamedTuple):
    """A sum over the cells of a grid."""

    value: float
    change: float
    """By how much the last split changed it."""
    border: float
    """What lies near the box's edge: where that is not nothing, there is more beyond."""
    points: int


def mass_on_grid(log_prob: LogProb, cloud: Float[np.ndarray, "m d"], *, most: int = 60_000) -> GridMass:
    """∫ p over a box that holds the cloud of points (samples and data) with room to spare.

    Cells that hold mass or points of the cloud are split, with their neighbours; then those again that this changed,
    until the sum stays the same.
    """
    dim = cloud.shape[1]
    size, halves = _FIRST[dim], 2**dim
    extent, density, border = _box(log_prob, cloud, size)
    cells = np.stack(np.unravel_index(np.arange(density.size), (size,) * dim), axis=-1)
    mass, points, settled, change = density * extent.volume / density.size, density.size, 0.0, np.inf
    unsettled = mass
    for level in range(1, 99):
        held = _cells_of(cloud if level <= 2 else cloud[:0], extent, size)
        active = _busy(cells, unsettled, held, size)[tuple(cells.T)]
        split = _split(cells[active])
        if size == _LAST[dim] or points + len(split) > most:
            break
        before, settled, size = mass[active], settled + mass[~active].sum(), 2 * size
        cells, points = split, points + len(split)
        mass = _density(log_prob, extent.low + (cells + 0.5) * extent.size / size) * np.prod(extent.size / size)
        changes = mass.reshape(-1, halves).sum(axis=1) - before
        unsettled, change = np.repeat(np.abs(changes) / halves, halves), abs(changes.sum())
        if level >= 2 and change <= _UNCHANGED:
            break
    return GridMass(float(settled + mass.sum()), float(change), border, points)


def _box(log_prob: LogProb, cloud: np.ndarray, size: int, margin: float = 0.25) -> tuple[Extent, np.ndarray, float]:
    """A box with next to nothing at its edge, the density at its cells (the last coordinate running fastest), and how
    much there is at the edge."""
    low, high = cloud.min(axis=0).astype(np.float64), cloud.max(axis=0).astype(np.float64)
    extent = Extent(low - margin * (high - low), high + margin * (high - low))
    whole = _density(log_prob, grid_points(extent, size)).reshape((size,) * len(low)).T
    inner = whole[(slice(size // 16, -(size // 16)),) * len(low)]
    border = float(whole.sum() - inner.sum()) * extent.volume / whole.size
    if border > _UNCHANGED and margin < _WIDEST:
        return _box(log_prob, cloud, size, 3 * margin)
    return extent, whole.ravel(), border


def _density(log_prob: LogProb, x: np.ndarray) -> np.ndarray:
    return np.exp(np.asarray(log_prob(x.astype(np.float32)), np.float64))


def _busy(cells: Int[np.ndarray, "c d"], weight: np.ndarray, held: Int[np.ndarray, "m d"], size: int) -> np.ndarray:
    """A picture of the grid: true where all but a remainder of the weight is, in the cells held, and next to those."""
    order = np.argsort(weight)
    notable = np.zeros(len(weight), bool)
    notable[order[np.cumsum(weight[order]) > _REMAINDER]] = True
    busy = np.zeros((size,) * cells.shape[1], bool)
    busy[tuple(cells[notable].T)] = busy[tuple(held.T)] = True
    for axis in range(busy.ndim):
        padded = np.pad(busy, [(1, 1) if i == axis else (0, 0) for i in range(busy.ndim)])
        cut = lambda start, axis=axis, padded=padded: np.take(padded, np.arange(start, start + size), axis)
        busy = cut(0) | cut(1) | cut(2)
    return busy


def _cells_of(cloud: np.ndarray, extent: Extent, size: int) -> Int[np.ndarray, "m d"]:
    return np.clip(((cloud - extent.low) / extent.size * size).astype(int), 0, size - 1)


def _split(cells: Int[np.ndarray, "c d"]) -> Int[np.ndarray, "k d"]:
    """The 2^d halves, quarters … of each cell."""
    corners = np.stack(np.meshgrid(*[[0, 1]] * cells.shape[1], indexing="ij"), axis=-1).reshape(-1, cells.shape[1])
    return (2 * cells[:, None] + corners).reshape(-1, cells.shape[1])


class Proposal(NamedTuple):
    """Points z, the first half of the base and the second of the data's neighbourhood, with log r(z)."""

    z: Float[np.ndarray, "n d"]
    log_density: Float[np.ndarray, " n"]

    @classmethod
    def around(cls, centres: Float[np.ndarray, "m d"], n: int, *, seed: Shaped[np.ndarray, "..."]) -> "Proposal":
        """n points, with z_j at the centres."""
        rng, (m, dim) = np.random.default_rng(seed), centres.shape
        noise = rng.normal(size=(n, dim))
        near = rng.choice(m, n - n // 2)
        z = np.concatenate([noise[: n // 2], centres[near] + _WIDTH * noise[n // 2 :]])
        squares = np.sum(z**2, 1)[:, None] + np.sum(centres**2.0, 1) - 2 * z @ centres.T.astype(np.float64)
        constant = -0.5 * dim * np.log(2 * np.pi)
        base = constant - 0.5 * np.sum(z**2, 1)
        kernels = constant - dim * np.log(_WIDTH) - 0.5 * squares / _WIDTH**2
        around = np.logaddexp.reduce(kernels, axis=1) - np.log(m)
        return cls(z, np.logaddexp(base, around) - np.log(2))


class SampledMass(NamedTuple):
    """An estimate by importance sampling."""

    value: float
    standard_error: float
    effective: float
    """(Σw)² / Σw²."""


def mass_by_sampling(log_weights: Float[np.ndarray, " n"]) -> SampledMass:
    """The mean of the weights, of which the first half comes from the one part of q and the rest from the other."""
    with np.errstate(over="ignore", invalid="ignore"):
        weights = np.exp(log_weights)
        halves: list[Any] = [weights[: len(weights) // 2], weights[len(weights) // 2 :]]
        variance = sum(part.var(ddof=1) / len(part) / 4 for part in halves)
        scaled = np.exp(log_weights - np.max(log_weights))
        effective = scaled.sum() ** 2 / np.sum(scaled**2)
        return SampledMass(float(np.mean([h.mean() for h in halves])), float(np.sqrt(variance)), float(effective))
