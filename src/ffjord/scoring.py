"""Log-densities of many points, in chunks of one shape, so that nothing compiles twice and memory stays flat."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from ffjord.errors import SolveError
from ffjord.flow import Flow
from ffjord.solve import MESSAGES, OK

CHUNK = 2048


class Scores(NamedTuple):
    """Log-densities and what the solves took, averaged over chunks."""

    log_prob: np.ndarray
    nfe: float
    accepted: float
    rejected: float


def score(
    flow: Flow,
    x: np.ndarray,
    *,
    chunk: int = CHUNK,
    progress: Callable[[int, int], None] | None = None,
    key: PRNGKeyArray | None = None,
) -> Scores:
    """log p(x) for every row of x.

    The last chunk is filled up with copies of its last row, which are cut off again. `progress` is told how many rows
    are done, of how many. A solve that fails raises `SolveError`: there is no partial answer.
    """
    n = len(x)
    chunk = min(chunk, _bucket(n))
    pieces, reports = [], []
    for start in range(0, n, chunk):
        rows = x[start : start + chunk]
        padded = np.concatenate([rows, np.repeat(rows[-1:], chunk - len(rows), axis=0)])
        chunk_key = None if key is None else jax.random.fold_in(key, start)
        density = flow.density(padded, key=chunk_key)
        _check(np.asarray(density.report.outcome), start, start + len(rows))
        pieces.append(np.asarray(density.log_prob)[: len(rows)])
        reports.append(
            [float(np.mean(v)) for v in (density.report.nfe, density.report.accepted, density.report.rejected)]
        )
        if progress is not None:
            progress(start + len(rows), n)
    return Scores(np.concatenate(pieces), *np.mean(reports, axis=0).tolist())


def _bucket(n: int) -> int:
    """The next power of two, at least 16: few shapes, whatever the callers' row counts."""
    return max(16, 1 << (n - 1).bit_length())


def _check(outcome: np.ndarray, start: int, stop: int) -> None:
    if np.any(outcome != OK):
        raise SolveError(f"rows {start} to {stop - 1}: {MESSAGES[int(outcome.max())]}")
