"""What a picture needs to know of a flow: densities and samples at any time, quickly.

Everything runs in chunks of one shape, through the flow's own `log_prob` and `sample`, with the time as an array: the
two compile once, and then serve every time of every picture of a flow.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ffjord.bijections import CNF, Numerics, map_continuous_parts
from ffjord.divergence import Exact
from ffjord.flow import Flow
from ffjord.report.grid import Extent, grid_points

POINTS = {1: 512, 2: 48 * 48}
"""Points a solve, by dimension. Grids with a multiple of 48 cells a side need no padding."""

SAMPLES = 1024
"""Samples a solve."""

_TOLERANCE = 2e-3
_FINE_AS_IT_IS = ("euler", "midpoint", "rk4", "kvaerno5")

T = TypeVar("T")


def dimension_of(flow: Flow) -> int:
    """1 or 2; anything else has no picture."""
    if flow.event_shape not in ((1,), (2,)):
        raise ValueError(
            f"pictures are drawn of flows with event shape (1,) or (2,); this flow has {flow.event_shape}. "
            "Draw samples with flow.sample and plot two of their coordinates instead."
        )
    return flow.event_shape[0]


def check_data(flow: Flow, data: Float[Array | np.ndarray, "n *event"]) -> Float[np.ndarray, "n *event"]:
    """The data as a NumPy array, or an error if they are not points of the flow's own space."""
    if data.shape[1:] != flow.event_shape or len(data) == 0:
        wanted = ", ".join(["n", *map(str, flow.event_shape)])
        raise ValueError(f"data must have shape ({wanted}) with n at least 1; got {tuple(data.shape)}.")
    return np.asarray(data)


def for_pictures(flow: Flow) -> Flow:
    """The flow with the exact divergence and a solver that is quick, and off by a fraction of a percent.

    At such tolerances the third-order method needs half the evaluations of the fifth-order ones. Methods of fixed
    steps stay, because they are part of what the flow is; the implicit one, because it has its reasons.
    """
    return map_continuous_parts(_soften, flow)


def _soften(cnf: CNF) -> CNF:
    solver = cnf.testing.solver
    if solver.method not in _FINE_AS_IT_IS:
        solver = dataclasses.replace(solver, method="bosh3", rtol=_TOLERANCE, atol=_TOLERANCE, steps="batch")
    return eqx.tree_at(lambda c: c.testing, cnf, Numerics(Exact(), solver))


def density_at(flow: Flow, x: Float[Array | np.ndarray, "n d"], time: float = 1.0) -> Float[np.ndarray, " n"]:
    """p(z(t)) at n points."""
    stopped = flow.at(jnp.asarray(time, flow.dtype))
    size = POINTS[x.shape[1]]
    count = -(-len(x) // size)
    padded = np.resize(np.asarray(x, flow.dtype), (count * size, x.shape[1]))
    log_prob = [np.asarray(stopped.log_prob(chunk)) for chunk in np.split(padded, count)]
    return np.exp(np.concatenate(log_prob)[: len(x)])


def density_on_grid(flow: Flow, extent: Extent, *, size: int, time: float = 1.0) -> Float[np.ndarray, "*cells"]:
    """p(z(t)) at the cells of a grid: rows are the second coordinate, columns the first, as `imshow` wants them."""
    return density_at(flow, grid_points(extent, size), time).reshape((size,) * len(extent.low))


def samples_at(flow: Flow, n: int, *, time: float = 1.0, key: PRNGKeyArray) -> Float[np.ndarray, "n d"]:
    """n samples of p(z(t)); with the same key at another time they are the same samples, moved."""
    stopped = flow.at(jnp.asarray(time, flow.dtype))
    keys = jax.random.split(key, -(-n // SAMPLES))
    return np.concatenate([np.asarray(stopped.sample(SAMPLES, key=part)) for part in keys])[:n]


def at_all(times: Sequence[float] | np.ndarray, evaluate: Callable[[float], T]) -> Iterator[T]:
    """`evaluate` at each time, in order, on two threads: solves of this size leave a second core idle."""
    double = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]

    def evaluate_in_thread(time: float) -> T:
        with jax.enable_x64(double):  # such a setting may belong to the caller's thread alone
            return evaluate(time)

    first = evaluate(times[0])  # compiles, which two threads would both do
    with ThreadPoolExecutor(2) as pool:
        rest = pool.map(evaluate_in_thread, times[1:])
        yield first
        yield from rest
