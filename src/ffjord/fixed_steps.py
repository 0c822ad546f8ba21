"""Fixed steps in place of adaptive ones: how few keep the likelihood?

An adaptive solve tells where a flow is hard: there its steps are short. N(t), the number of steps it has accepted by
time t, is the share of the difficulty before t, and a grid of n steps spreads the difficulty evenly where

    N(t_i) = (i / n) N(1),   i = 0 … n,

with N linear between its steps. Such a grid needs no error estimate, rejects nothing, and costs the same for all
inputs. Times are fractions of a flow's time: 0 at the base, 1 at the data.

Few steps change the log-density of each point by some Δ. The mean of Δ may be small by chance where the Δ are large and
of both signs, and then is not small for other points. So it must be small but for the chance of the points at hand:

    |mean(Δ)| + 2 std(Δ) / √n ≤ within.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ffjord.bijections import continuous_parts, map_continuous_parts
from ffjord.choices import MethodName
from ffjord.errors import SolveError
from ffjord.flow import Flow
from ffjord.runge_kutta import equal_steps
from ffjord.scoring import CHUNK, Moments, Scores, score
from ffjord.solve import MESSAGES, OK, Solver

Points = Float[np.ndarray, "n *event"] | Float[Array, "n *event"]
Grid = Float[np.ndarray, " _"] | Float[Array, " _"]

_AT_LEAST = 64
"""Numbers of steps that are tried before giving up, however few the adaptive solve takes."""
_SURE = 2.0
"""Standard errors by which the mean difference of points like those given may be larger than that of those given."""


class FixedSteps(NamedTuple):
    """A flow with fixed steps in its testing numerics, and what that changed."""

    flow: Flow
    method: MethodName
    steps: tuple[int, ...]
    """Of each continuous part, from the base to the data."""
    nfe: float
    nll: float
    """Mean negative log-likelihood of the points the steps were chosen for, in nats."""
    adaptive_nll: float
    adaptive_nfe: float


def fewest_steps(
    flow: Flow,
    x: Points,
    *,
    conditions: np.ndarray | None = None,
    within: float = 0.01,
    method: MethodName | Sequence[MethodName] | None = None,
    key: PRNGKeyArray | None = None,
) -> FixedSteps:
    """The flow with as few fixed steps as keep its mean negative log-likelihood of x near that of the adaptive solve.

    Numbers of steps are doubled, then bisected. One is taken if the likelihood is near (the inequality at the top)
    there and at the next larger number tried. Several continuous parts have steps in proportion to those of their
    adaptive solves. All numbers are tried in one compiled program.

    **Arguments:**

    - `x`: points that stand for those the flow will meet, two or more; with more points fewer steps may be seen to do.
        The density of steps comes from the first 2048. `conditions`: a row for each, if the flow has any.
    - `within`: the largest difference of the mean, in nats.
    - `method`: of the fixed steps, or several, of which the one with the fewest evaluations is taken; the flow's own if
        not given.
    - `key`: for divergences that need noise.
    """
    if not isinstance(method, str | None):
        return _cheapest([_tried(flow, x, conditions, within, m, key) for m in method])
    found = _tried(flow, x, conditions, within, method, key)
    if isinstance(found, ValueError):
        raise found
    return found


def _cheapest(found: Sequence[FixedSteps | ValueError]) -> FixedSteps:
    """The one with the fewest evaluations, or the first error if there are errors only."""
    some = [one for one in found if isinstance(one, FixedSteps)]
    errors = [one for one in found if isinstance(one, ValueError)]
    if not some:
        raise errors[0] if errors else ValueError("method must name at least one method; got none.")
    return min(some, key=lambda one: one.nfe)


def _tried(
    flow: Flow,
    x: Points,
    conditions: np.ndarray | None,
    within: float,
    method: MethodName | None,
    key: PRNGKeyArray | None,
) -> FixedSteps | ValueError:
    """The fewest steps of a method, or the error that says that there is no such number."""
    if not 0 < within < math.inf:
        raise ValueError(f"within must be a positive number of nats; got {within}.")
    if not all(solver.is_adaptive() for solver in _solvers(flow)):
        raise ValueError("the flow's testing solver must choose its steps, as dopri5 does; they are fixed already.")
    with_steps(flow, 1, method=method)  # refuses what cannot have fixed steps before any work is done
    x = np.asarray(x)
    if len(x) < 2:
        raise ValueError(f"x must have at least two rows, to tell a small difference from chance; got {len(x)}.")
    scores_of = lambda flow: score(flow, x, conditions=conditions, key=key)
    given = None if conditions is None else conditions[:CHUNK]
    adaptive, times = scores_of(flow), step_times(flow, x[:CHUNK], conditions=given, key=key)
    limit = _power_of_two(max(_AT_LEAST, math.ceil(2 * adaptive.accepted)))
    with_count = lambda count: with_steps(flow, _grids(times, count, 2 * limit), method=method)

    @functools.cache
    def scored(count: int) -> Scores | None:
        try:
            return scores_of(with_count(count))
        except SolveError:  # steps too long to stay among the finite numbers
            return None

    is_near = lambda scores: scores is not None and _is_within(within, scores.log_prob - adaptive.log_prob)
    count = _smallest(lambda count: is_near(scored(count)), limit)
    chosen = None if count is None else scored(count)
    if count is None or chosen is None:
        return ValueError(
            f"up to {limit} fixed steps do not keep the negative log-likelihood within {within:g} nats of the adaptive "
            f"one ({_nll(adaptive):.4f}); allow a larger difference, name a method of higher order, or stay adaptive."
        )
    name, counts = method or _solvers(flow)[0].method, _counts(times, count)
    return FixedSteps(with_count(count), name, counts, chosen.nfe, _nll(chosen), _nll(adaptive), adaptive.nfe)


def step_times(
    flow: Flow, x: Points, *, conditions: np.ndarray | None = None, key: PRNGKeyArray | None = None
) -> list[np.ndarray]:
    """Where the flow's testing solver, on the way from x to the base, begins and ends its accepted steps.

    **Returns:** for each continuous part, from the base to the data, rising times from 0 to 1. Where samples have their
    own steps these are the times of all.
    """
    record = lambda solver: dataclasses.replace(solver, record=True)
    recording = _with_solvers(flow, [record(solver) for solver in _solvers(flow)])
    report = recording.density(x, condition=conditions, key=key).report
    outcomes = np.asarray(report.outcome)
    if np.any(outcomes != OK):
        raise SolveError(MESSAGES[int(outcomes.max())])
    way_back = jax.tree.leaves(report.observed)  # from the data to the base; in testing, only solves observe
    return [np.unique(1 - np.asarray(part, np.float64)) for part in reversed(way_back)]


def grid_of(times: Grid, count: int) -> Float[np.ndarray, " {count}+1"]:
    """A grid of `count` steps that are relatively as dense as the given ones (the equation at the top)."""
    if count < 1:
        raise ValueError(f"count must be at least 1; got {count}.")
    number = np.arange(len(times))
    return np.interp(np.linspace(0, number[-1], count + 1), number, times)


def with_steps(flow: Flow, steps: int | Grid | Sequence[Grid], *, method: MethodName | None = None) -> Flow:
    """The flow with fixed steps in its testing numerics.

    **Arguments:**

    - `steps`: a number of steps of equal length; or a grid of times from 0 (base) to 1 (data) for all continuous parts;
        or a list of grids, one for each part from the base to the data.
    - `method`: any explicit one; the flow's own if not given.
    """
    solvers = _solvers(flow)
    if isinstance(steps, int):
        if steps < 1:
            raise ValueError(f"steps must be at least 1; got {steps}.")
        steps = equal_steps(steps)
    grids = [steps] * len(solvers) if np.ndim(steps[0]) == 0 else steps
    if len(grids) != len(solvers):
        raise ValueError(f"steps must have a grid for each of the {len(solvers)} continuous parts; got {len(grids)}.")
    fixed = lambda solver, grid: dataclasses.replace(
        solver, method=method or solver.method, grid=jnp.asarray(grid, flow.dtype)
    )
    return _with_solvers(flow, [fixed(*pair) for pair in zip(solvers, grids, strict=True)])


def _smallest(good: Callable[[int], bool], limit: int) -> int | None:
    """The smallest number, found by doubling and bisection, that is good and so is the next larger one tried."""
    high = 1
    while not (good(high) and good(2 * high)):
        high *= 2
        if high > limit:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if good(middle) else (middle, high)
    return high


def _counts(times: list[np.ndarray], count: int) -> tuple[int, ...]:
    """`count` steps for the part that takes the most, and their share for the others."""
    numbers = [len(part) - 1 for part in times]
    return tuple(-(-count * number // max(numbers)) for number in numbers)


def _grids(times: list[np.ndarray], count: int, size: int) -> list[np.ndarray]:
    """Grids of one length, for up to `size` steps."""
    grids = [grid_of(part, n) for part, n in zip(times, _counts(times, count), strict=True)]
    return [np.pad(grid, (0, size + 1 - len(grid)), constant_values=1) for grid in grids]


def _is_within(within: float, differences: np.ndarray) -> bool:
    """The inequality at the top."""
    moments = Moments()
    moments.add(differences)
    return abs(moments.mean) + _SURE * moments.standard_error <= within


def _nll(scores: Scores) -> float:
    return -float(np.mean(scores.log_prob, dtype=np.float64))


def _power_of_two(number: int) -> int:
    """The smallest one that is not less."""
    return 1 << (number - 1).bit_length()


def _solvers(flow: Flow) -> list[Solver]:
    """The testing solvers of the continuous parts, from the base to the data."""
    solvers = [part.testing.solver for part in continuous_parts(flow.bijection)]
    if not solvers:
        raise ValueError("the flow must have a continuous part (CNF) to have steps; it has none.")
    return solvers


def _with_solvers(flow: Flow, solvers: Sequence[Solver]) -> Flow:
    rest = iter(solvers)
    replaced = lambda cnf: eqx.tree_at(lambda cnf: cnf.testing.solver, cnf, next(rest))
    bijection = map_continuous_parts(replaced, flow.bijection)
    return eqx.tree_at(lambda flow: flow.bijection, flow, bijection)
