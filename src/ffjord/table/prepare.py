"""From the numbers of a table to training, validation and test rows: split by seed, standardised by training rows."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ffjord import columns
from ffjord.errors import InputError
from ffjord.table.choose import Chosen
from ffjord.table.layout import Layout, group
from ffjord.table.spacing import looks_discrete, spacing

LEAST_ROWS = 20
"""A table must have so many rows, and twice as many as columns."""
_SPLIT, _NOISE = 0, 1


class Part(NamedTuple):
    """Rows of one part, in standardised units and float32; conditions have no columns where there are none."""

    x: np.ndarray
    conditions: np.ndarray
    weights: np.ndarray | None


class Prepared(NamedTuple):
    """A table, ready to be learnt."""

    layout: Layout
    train: Part
    """Not dequantised: every batch has fresh noise."""
    validation: Part
    test: Part
    jitter: np.ndarray | None
    """Widths of the noise for training, in standardised units."""


def prepare(chosen: Chosen, *, seed: int, dequantize: Sequence[int] = ()) -> Prepared:
    """Splits rows 80 : 10 : 10 by the seed; mean and scale are those of the training rows, in float64.

    Of the columns to `dequantize`, validation and test rows get noise once, and mean and scale are those of training
    rows with noise: mean + cell/2 and √(scale² + cell²/12).
    """
    check_rows(chosen)
    cell = _cells(chosen, dequantize)
    parts = _split(len(chosen.x), seed)
    _check_spread(chosen, parts)
    mean, scale = _statistics(chosen, chosen.x[parts[0]])
    mean, scale = mean + cell / 2, np.hypot(scale, cell / np.sqrt(12))
    given = columns.condition_statistics(chosen.conditions[parts[0]])
    table, roles = chosen.table, chosen.roles
    groups = group(table, roles.columns, mean, scale), group(table, roles.conditions, *given)
    low = tuple(chosen.x.min(axis=0).tolist())
    layout = Layout(*groups, tuple(cell.tolist()), low, len(table.names), table.named)
    rng = np.random.default_rng([seed, _NOISE])
    rows = [chosen.x[parts[0]], *(layout.spread(chosen.x[part], rng) for part in parts[1:])]
    train, validation, test = (_part(layout, chosen, x, part) for x, part in zip(rows, parts, strict=True))
    return Prepared(layout, train, validation, test, (cell / scale).astype(np.float32) if cell.any() else None)


def discrete(chosen: Chosen) -> list[int]:
    """Numbers of the data columns that look discrete."""
    return [column for j, column in enumerate(chosen.roles.columns) if looks_discrete(chosen.x[:, j])]


def check_rows(chosen: Chosen) -> None:
    """Refuses a table with too few rows to be split and learnt."""
    n, dim = chosen.x.shape
    least = max(LEAST_ROWS, 2 * dim)
    if n < least:
        raise InputError(
            f"{chosen.table.path} has {n} rows that can be used; {dim} columns need at least {least} (twice as many as "
            f"columns, and {LEAST_ROWS}). Use more rows or fewer columns: --columns NAMES."
        )


def _cells(chosen: Chosen, dequantize: Sequence[int]) -> np.ndarray:
    """The spacing of each column that is dequantised, 0 of the others."""
    cells = np.zeros(chosen.x.shape[1])
    for column in dequantize:
        if column not in chosen.roles.columns:
            raise InputError(f"--dequantize names {chosen.table.title(column)}, which is not among those to learn.")
        j = chosen.roles.columns.index(column)
        found = spacing(chosen.x[:, j])
        if found is None:
            raise InputError(
                f"{chosen.table.path}: --dequantize cannot be used for {chosen.table.title(column)}, because its "
                "values are not evenly spaced."
            )
        cells[j] = found
    return cells


def _split(n: int, seed: int) -> list[np.ndarray]:
    """Numbers of the rows for training, validation and testing."""
    order, tenth = np.random.default_rng([seed, _SPLIT]).permutation(n), n // 10
    return [order[2 * tenth :], order[tenth : 2 * tenth], order[:tenth]]


def _check_spread(chosen: Chosen, parts: list[np.ndarray]) -> None:
    """Refuses a column that varies, but not in the training rows."""
    groups = ((chosen.x, chosen.roles.columns), (chosen.conditions, chosen.roles.conditions))
    for rows, numbers in groups:
        train = rows[parts[0]]
        for j in np.flatnonzero((train.min(axis=0) == train.max(axis=0)) if train.size else []):
            other = int(np.flatnonzero(rows[:, j] != train[0, j])[0])
            place = chosen.table.place(chosen.places[other], numbers[j])
            raise InputError(
                f"{place}: the column has one value, {train[0, j]:g}, in all {len(train)} training rows, and another, "
                f"{rows[other, j]:g}, here; it has no density. Leave it out: --columns NAMES, or try another --seed."
            )


def _statistics(chosen: Chosen, train: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    try:
        return columns.statistics(train, None)
    except ValueError as error:
        raise InputError(f"{chosen.table.path}: {error}") from error


def _part(layout: Layout, chosen: Chosen, x: np.ndarray, part: np.ndarray) -> Part:
    weights = None if chosen.weights is None else chosen.weights[part]
    return Part(layout.data.standardized(x), layout.given.standardized(chosen.conditions[part]), weights)
