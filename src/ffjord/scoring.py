"""Log-densities and samples by the million, in chunks of one shape: nothing compiles twice and memory stays flat."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from ffjord import devices
from ffjord.bijections.base import Report
from ffjord.errors import SolveError
from ffjord.flow import Density
from ffjord.solve import MESSAGES, OK

CHUNK = 2048
"""Rows at once, of rows with few columns."""
_NUMBERS = 2**18


@runtime_checkable
class Scored(Protocol):
    """What can be scored: a `Flow`, or an autoencoder by its bound."""

    @property
    def event_shape(self) -> tuple[int, ...]: ...
    @property
    def density(self) -> Callable[..., Density]: ...


@runtime_checkable
class Sampled(Protocol):
    """What samples can be drawn from."""

    @property
    def event_shape(self) -> tuple[int, ...]: ...
    @property
    def sample(self) -> Callable[..., Any]: ...


class Scores(NamedTuple):
    """Log-densities and what the solves took, averaged over chunks."""

    log_prob: np.ndarray
    nfe: float
    accepted: float
    rejected: float


class Moments:
    """Mean and standard error of numbers that come in blocks, in float64 and without keeping them.

    With weights w (1 if not given), W = Σ w_i and m = Σ w_i x_i / W, the standard error is that of a ratio,

        √(n / (n - 1) Σ w_i² (x_i - m)²) / W.

    The sums B = Σ w_i², A = Σ w_i² (x_i - m) and M = Σ w_i² (x_i - m)² follow a mean that moves by d:

        M ← M - 2 d A + d² B,   A ← A - d B              (after Chan, Golub and LeVeque, 1979)
    """

    def __init__(self):
        self.count, self.mean, self._weight = 0, 0.0, 0.0
        self._sums = np.zeros(3)  # B, A, M

    def add(self, values: np.ndarray, weights: np.ndarray | None = None) -> None:
        w = np.ones(len(values)) if weights is None else np.asarray(weights, np.float64)
        with np.errstate(invalid="ignore"):  # log 0 = -inf makes the mean -inf and the error NaN
            mean, part = np.average(np.asarray(values, np.float64), weights=w), w.sum()
            powers = np.stack([np.ones(len(values)), values - mean, (values - mean) ** 2])
            share = part / (self._weight + part)
            moved = float((1 - share) * self.mean + share * mean)
            self._sums = _moved(self._sums, moved - self.mean) + _moved(powers @ w**2, moved - mean)
        self.mean, self._weight = moved, self._weight + part
        self.count += len(values)

    @property
    def standard_error(self) -> float:
        """The equation above, for n ≥ 2."""
        return float(np.sqrt(self.count / (self.count - 1) * self._sums[2]) / self._weight)


def _moved(sums: np.ndarray, d: float) -> np.ndarray:
    """The sums B, A, M about a mean that is larger by d."""
    b, a, m = sums
    return np.array([b, a - d * b, m - 2 * d * a + d**2 * b])


def score(
    flow: Scored,
    x: np.ndarray,
    *,
    conditions: np.ndarray | None = None,
    chunk: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    key: PRNGKeyArray | None = None,
) -> Scores:
    """log p(x) for every row of an array, or log p(x | c) with a row of conditions for each; see `score_blocks`."""
    size = chunk or rows_at_once(flow)
    cut = lambda rows: (rows[start : start + size] for start in range(0, len(x), size))
    given = None if conditions is None else cut(conditions)
    pieces = score_blocks(flow, cut(x), len(x), conditions=given, chunk=chunk, progress=progress, key=key)
    return collect(pieces, len(x))


def collect(pieces: Iterable[Scores], n: int) -> Scores:
    """The n scores of all chunks in one array."""
    log_prob, done, costs = np.empty(0), 0, []
    for piece in pieces:
        log_prob = log_prob if done else np.empty(n, piece.log_prob.dtype)
        log_prob[done : done + len(piece.log_prob)] = piece.log_prob
        done += len(piece.log_prob)
        costs.append(piece[1:])
    return Scores(log_prob, *np.mean(costs, axis=0).tolist())


def score_blocks(
    flow: Scored,
    blocks: Iterable[np.ndarray],
    n: int,
    *,
    conditions: Iterable[np.ndarray] | None = None,
    chunk: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    key: PRNGKeyArray | None = None,
) -> Iterator[Scores]:
    """log p(x) of n rows that come in blocks of any lengths, chunk by chunk and in their order.

    `conditions` come in blocks too, a row for each row of x. The last chunk is filled up with copies of its last row,
    which are cut off again. `progress` is told how many rows are done, of how many. A solve that fails raises
    `SolveError`.
    """
    flow, size = devices.copied(flow), chunk or rows_at_once(flow)
    ask = lambda x, condition, key: flow.density(x, condition=condition, key=key)
    for density, rows in asked(ask, blocks, n, size, conditions=conditions, progress=progress, key=key):
        yield Scores(devices.fetch(density.log_prob)[:rows], *costs(density.report))


def asked(
    ask: Callable[[Any, Any, PRNGKeyArray | None], Any],
    blocks: Iterable[np.ndarray],
    n: int,
    size: int,
    *,
    conditions: Iterable[np.ndarray] | None = None,
    progress: Callable[[int, int], None] | None = None,
    key: PRNGKeyArray | None = None,
) -> Iterator[tuple[Any, int]]:
    """What `ask(x, condition, key)` says of chunks of at most `size` rows, and how many rows of each are not filled up.

    Its answers have a `report`, and arrays with a row for each of x. The rest is as in `score_blocks`.
    """
    if n < 1:
        raise ValueError("there must be at least one row to score; got none.")
    chunk, done = _size(n, size), 0
    given = itertools.repeat(None) if conditions is None else _regrouped(conditions, chunk)
    for rows, condition in zip(_regrouped(blocks, chunk), given, strict=False):
        x, condition = _padded(rows, chunk), None if condition is None else _padded(condition, chunk)
        chunk_key = None if key is None else devices.copied(jax.random.fold_in(key, done))
        with devices.spread():
            answer = ask(x, condition, chunk_key)
        _check(devices.fetch(answer.report.outcome), done, done + len(rows))
        done += len(rows)
        yield answer, len(rows)
        if progress is not None:
            progress(done, n)


def costs(report: Report) -> list[float]:
    """Evaluations, accepted and rejected steps of a chunk's solves."""
    return [float(np.mean(devices.fetch(cost))) for cost in (report.nfe, report.accepted, report.rejected)]


def sample_blocks(
    flow: Sampled,
    n: int,
    *,
    conditions: np.ndarray | None = None,
    progress: Callable[[int, int], None] | None = None,
    key: PRNGKeyArray,
) -> Iterator[np.ndarray]:
    """n samples, chunk by chunk, each with its row of `conditions` if there are any; the last chunk is cut off."""
    chunk = _size(n, rows_at_once(flow))
    for start in range(0, n, chunk):
        given = {} if conditions is None else {"condition": _padded(conditions[start : start + chunk], chunk)}
        yield np.asarray(flow.sample(chunk, **given, key=jax.random.fold_in(key, start)))[: n - start]
        if progress is not None:
            progress(min(start + chunk, n), n)


def rows_at_once(flow: Scored | Sampled) -> int:
    """How many rows are scored together: fewer where they are long, as images are, whose layers are longer still."""
    rows = max(16, _NUMBERS // math.prod(flow.event_shape))
    return min(CHUNK, 1 << rows.bit_length() - 1)


def _size(n: int, chunk: int) -> int:
    """Rows a chunk: where there are few rows, the next power of two, at least 16, so that there are few shapes."""
    return devices.padded_size(min(chunk, max(16, 1 << (n - 1).bit_length())))


def _padded(rows: np.ndarray, size: int) -> Any:
    """The rows, filled up to `size` with copies of the last, spread over devices."""
    return devices.split(np.concatenate([rows, np.repeat(rows[-1:], size - len(rows), axis=0)]))


def _regrouped(blocks: Iterable[np.ndarray], size: int) -> Iterator[np.ndarray]:
    """The same rows in blocks of `size`; only the last may be shorter."""
    held, count = [], 0
    for block in blocks:
        held.append(block)
        count += len(block)
        if count >= size:
            rows, whole = np.concatenate(held), count - count % size
            yield from (rows[start : start + size] for start in range(0, whole, size))
            held, count = [rows[whole:]], count - whole
    if count:
        yield np.concatenate(held)


def _check(outcome: np.ndarray, start: int, stop: int) -> None:
    if np.any(outcome != OK):
        raise SolveError(f"rows {start} to {stop - 1}: {MESSAGES[int(outcome.max())]}")
