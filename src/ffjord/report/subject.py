"""A flow under examination, with the points it is examined by."""

import dataclasses
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ffjord.bijections import CNF, Numerics, continuous_parts, map_continuous_parts
from ffjord.compilation import compiled
from ffjord.data.source import Conditioned
from ffjord.divergence import AbstractDivergence, Skipped, automatic
from ffjord.errors import SolveError
from ffjord.flow import Flow
from ffjord.report.jacobian import Pushed, push
from ffjord.report.mass import Proposal
from ffjord.scoring import CHUNK, Scores, sample_blocks, score
from ffjord.solve import MESSAGES, OK, Solver

MOST_COLUMNS = 256
"""Columns up to which the Jacobian of the whole map is taken."""
_PUSHED = 128, 512
"""Points, at least and at most, at which it is taken."""
_TIGHTER = 10.0


class Subject:
    """A flow, test and training points (`Conditioned`, or points alone); what several checks need is computed once."""

    def __init__(self, flow: Flow, test: Any, train: Any, *, key: PRNGKeyArray):
        if len(flow.event_shape) != 1:
            raise ValueError(f"only flows over rows of numbers can be checked; this has {flow.event_shape}.")
        self.flow, self.dim = flow, flow.event_shape[0]
        self.test, self.train, self.key = Conditioned.of(test), Conditioned.of(train), key

    @property
    def cnfs(self) -> list[CNF]:
        """The continuous parts, from the base to the data."""
        return continuous_parts(self.flow)

    @cached_property
    def noisy(self) -> bool:
        """Whether testing estimates the trace."""
        return any(cnf.testing.divergence.stochastic for cnf in self.cnfs)

    @cached_property
    def exact(self) -> Flow:
        """The flow; with the exact trace where testing estimates it."""
        exact = lambda cnf: automatic(cnf.dynamics, self.flow.event_shape, max_products=self.dim)
        return with_divergence(self.flow, exact) if self.noisy else self.flow

    @cached_property
    def exact_log_prob(self) -> Float[np.ndarray, " n"]:
        """log p of the test points, without noise."""
        return (self.score(self.exact, self.test) if self.noisy else self.test_scores).log_prob

    @cached_property
    def test_scores(self) -> Scores:
        return self.score(self.flow, self.test)

    @cached_property
    def train_scores(self) -> Scores:
        return self.score(self.flow, self.train)

    @cached_property
    def samples(self) -> Float[np.ndarray, "n d"]:
        """As many samples as there are test points, with their conditions."""
        key = jax.random.fold_in(self.key, 1)
        blocks = sample_blocks(self.flow, len(self.test.x), conditions=self.test.condition, key=key)
        return np.concatenate([*blocks])

    @cached_property
    def round_trip(self) -> "RoundTrip":
        """Of the test points."""
        return round_trip(self.flow, self.test)

    @cached_property
    def spread(self) -> Float[np.ndarray, " d"]:
        """Standard deviation of every column of the test points."""
        spread = np.std(self.test.x, axis=0, dtype=np.float64)
        return np.where(spread > 0, spread, 1.0)

    @cached_property
    def pushed(self) -> tuple[Pushed, Proposal, Float[np.ndarray, " n"]]:
        """Points drawn for importance sampling, with their proposal density and the flow's own log p."""
        n, condition = int(np.clip(len(self.test.x), *_PUSHED)), self.test.condition
        condition = None if condition is None else np.resize(condition, (n, *condition.shape[1:]))
        seed = np.asarray(jax.random.key_data(self.key))
        proposal = Proposal.around(self.round_trip.z[: _PUSHED[1]], n, seed=seed)
        with jax.enable_x64(True):
            pushed = push(tightened(in_double(self.flow)), proposal.z, condition)
        own = self.score(self.exact, Conditioned(pushed.x.astype(self.flow.dtype), condition))
        return pushed, proposal, own.log_prob.astype(np.float64)

    def score(self, flow: Flow, given: Conditioned, *, draw: int = 0) -> Scores:
        """log p of points, with noise (if any is needed) of the given number."""
        key = jax.random.fold_in(self.key, 1000 + draw)
        return score(flow, given.x, conditions=given.condition, key=key)


def with_testing(flow: Flow, change: Callable[[CNF], Numerics]) -> Flow:
    """The flow with other numerics for testing in its continuous parts."""
    return map_continuous_parts(lambda cnf: eqx.tree_at(lambda cnf: cnf.testing, cnf, change(cnf)), flow)


def with_divergence(flow: Flow, choose: Callable[[CNF], AbstractDivergence]) -> Flow:
    """The flow with another trace in its testing numerics."""
    return with_testing(flow, lambda cnf: Numerics(choose(cnf), cnf.testing.solver))


def in_double(flow: Flow) -> Flow:
    """The same numbers in float64, where the rounding of float32 is not; under `jax.enable_x64(True)`."""
    double = lambda leaf: leaf.astype(jnp.float64) if eqx.is_inexact_array(leaf) else leaf
    return jax.tree.map(double, flow)


def tightened(flow: Flow) -> Flow:
    """The flow at a tenth of its testing tolerances; where steps are fixed, with twice as many."""
    return with_testing(flow, lambda cnf: dataclasses.replace(cnf.testing, solver=_tightened(cnf.testing.solver)))


class RoundTrip(NamedTuple):
    """z = inverse(x), and forward(z), which should be x."""

    z: Float[np.ndarray, "n d"]
    x: Float[np.ndarray, "n d"]


def round_trip(flow: Flow, given: Conditioned) -> RoundTrip:
    """There and back by the testing solver, without densities."""
    flow = with_divergence(flow, lambda cnf: Skipped())
    pieces = []
    for start in range(0, len(given.x), CHUNK):
        x, condition = (_rows(part, start, start + CHUNK) for part in given)
        z, again, outcome = _there_and_back(flow, x, condition)
        if np.any(np.asarray(outcome) != OK):
            raise SolveError(MESSAGES[int(np.max(outcome))])
        pieces.append((np.asarray(z), np.asarray(again)))
    return RoundTrip(*(np.concatenate(part) for part in zip(*pieces, strict=True)))


@compiled
def _there_and_back(flow: Flow, x: Any, condition: Any) -> Any:
    x, condition = (None if part is None else jnp.asarray(part, flow.dtype) for part in (x, condition))
    there = flow.bijection.inverse(x, condition=condition)  # pyright: ignore[reportArgumentType]
    back = flow.bijection.forward(there.value, condition=condition)
    return there.value, back.value, jnp.maximum(jnp.max(there.report.outcome), jnp.max(back.report.outcome))


def _tightened(solver: Solver) -> Solver:
    if solver.is_adaptive():
        tolerances = {"rtol": solver.rtol / _TIGHTER, "atol": solver.atol / _TIGHTER}
        return dataclasses.replace(solver, **tolerances, max_steps=4 * solver.max_steps)
    if solver.grid is None:
        return dataclasses.replace(solver, num_steps=2 * solver.num_steps)
    grid = np.asarray(solver.grid.array)
    number = np.arange(len(grid))
    return dataclasses.replace(solver, grid=np.interp(np.linspace(0, number[-1], 2 * len(grid) - 1), number, grid))


def _rows(rows: Any, start: int, stop: int) -> Any:
    return None if rows is None else rows[start:stop]
