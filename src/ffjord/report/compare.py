"""Runs side by side: the likelihood of each, how it stands to another's on the same points, and what it takes."""

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ffjord.data.source import Held
from ffjord.errors import SolveError
from ffjord.flow import Flow
from ffjord.progress import rows_bar
from ffjord.scoring import CHUNK, Moments, Scores, sample_blocks, score

Row = dict[str, Any]
"""What is known of a run, by the names of `COLUMNS`; None where there is nothing to know, or where it failed."""

COLUMNS = (
    "run",
    "path",
    "parameters",
    "steps",
    "train_seconds",
    "points",
    "test_nll",
    "test_nll_stderr",
    "better_by",
    "better_by_stderr",
    "nfe",
    "points_per_second",
    "samples",
    "sample_seconds",
    "score_error",
    "sample_error",
)
_TAIL = 65_536
_T = TypeVar("_T")


class Comparison(NamedTuple):
    """Rows of runs, a short name of each, the number of the one to which differences are taken, and on what points."""

    rows: list[Row]
    names: list[str]
    to: int
    points: str


class Measured(NamedTuple):
    """What a flow did with the points; None where it failed, and why in `errors`, by "score" and "sample"."""

    log_prob: Float[np.ndarray, " n"] | None
    """In the data's own units."""
    nfe: float | None
    points_per_second: float | None
    sample_seconds: float | None
    errors: dict[str, str]


def measure(
    flow: Flow,
    points: Held,
    samples: int,
    *,
    log_scale: float = 0.0,
    label: str = "",
    score_key: PRNGKeyArray,
    sample_key: PRNGKeyArray,
) -> Measured:
    """Scores the points and draws samples, both timed after compilation. If one of them fails, the other is kept.

    **Arguments:**

    - `points`: with their conditions, if the density has any; samples are then given the same ones, in turns.
    - `log_scale`: what the data's units add to a negative log-likelihood.
    - `label`: what the progress bar calls the flow.
    """
    errors: dict[str, str] = {}
    scored = _tried("score", errors, lambda: _scores(flow, points, f"scoring {label}", score_key))
    drawn = _tried("sample", errors, lambda: _draws(flow, points, samples, f"drawing {label}", sample_key))
    if scored is None:
        return Measured(None, None, None, drawn, errors)
    scores, seconds = scored
    log_prob = scores.log_prob.astype(np.float64) - log_scale
    return Measured(log_prob, scores.nfe or None, len(log_prob) / seconds, drawn, errors)


def side_by_side(
    about: Sequence[Row], measured: Sequence[Measured], points: Held, samples: int, *, to: int = 0
) -> list[Row]:
    """A row for each run, with the mean of log p(x_i) - log p_to(x_i) over the points and its standard error.

    **Arguments:**

    - `about`: of each run, what is known without measuring.
    - `to`: number of the run to take differences to.
    """
    other, rows = measured[to].log_prob, []
    for known, found in zip(about, measured, strict=True):
        row = dict.fromkeys(COLUMNS) | known | {"points": len(points.x), "samples": samples}
        row |= {name: getattr(found, name) for name in ("nfe", "points_per_second", "sample_seconds")}
        if found.log_prob is not None:
            row["test_nll"], row["test_nll_stderr"] = _moments(-found.log_prob, points.weight)
        if found.log_prob is not None and other is not None:
            row["better_by"], row["better_by_stderr"] = _moments(found.log_prob - other, points.weight)
        rows.append(row | {f"{name}_error": message for name, message in found.errors.items()})
    return rows


def trained(metrics: Path) -> tuple[int, float] | None:
    """Steps and seconds of a training, by the last whole line of its metrics; None where there are none."""
    try:
        with metrics.open("rb") as file:
            file.seek(max(0, metrics.stat().st_size - _TAIL))
            lines = file.read().splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        with contextlib.suppress(ValueError, TypeError, KeyError):
            row = json.loads(line)
            return int(row["step"]), float(row["seconds"])
    return None


def _scores(flow: Flow, points: Held, what: str, key: PRNGKeyArray) -> tuple[Scores, float]:
    """Scores, and the seconds that they took."""
    with rows_bar(what) as progress:
        first = points.first(CHUNK)
        score(flow, first.x, conditions=first.condition, key=key)  # compiles
        began = time.perf_counter()
        scores = score(flow, points.x, conditions=points.condition, progress=progress, key=key)
        seconds = time.perf_counter() - began
    _check_finite(scores.log_prob, "log-densities")
    return scores, seconds


def _draws(flow: Flow, points: Held, samples: int, what: str, key: PRNGKeyArray) -> float:
    """The seconds that samples took."""
    given = points.condition
    conditions = None if given is None else np.resize(given, (samples, *given.shape[1:]))
    with rows_bar(what) as progress:
        next(sample_blocks(flow, samples, conditions=conditions, key=key))  # compiles
        began = time.perf_counter()
        x = np.concatenate([*sample_blocks(flow, samples, conditions=conditions, progress=progress, key=key)])
        seconds = time.perf_counter() - began
    _check_finite(x, "coordinates")
    return seconds


def _check_finite(values: np.ndarray, what: str) -> None:
    bad = np.sum(~np.isfinite(values))
    if bad:
        raise SolveError(f"{bad:,} of {values.size:,} {what} are not finite numbers.")


def _tried(what: str, errors: dict[str, str], work: Callable[[], _T]) -> _T | None:
    try:
        return work()
    except SolveError as error:
        errors[what] = str(error)
        return None


def _moments(values: np.ndarray, weights: np.ndarray | None) -> tuple[float, float]:
    moments = Moments()
    moments.add(values, weights)
    return moments.mean, moments.standard_error
