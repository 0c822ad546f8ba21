"""Columns that are not continuous: their values lie on a grid, and a density would only grow spikes on it."""

import numpy as np

_TOLERANCE = 0.01  # parts of the spacing
_FEW = 50


def spacing(values: np.ndarray) -> float | None:
    """The distance of a grid low, low + d, low + 2 d, … on which all values lie; None if there is none.

    It is the least distance between two values, if all the others are whole multiples of it.
    """
    distinct = np.unique(values)
    if len(distinct) < 2:
        return None
    gaps = np.diff(distinct)
    least = float(gaps.min())
    counts = (distinct - distinct[0]) / least
    on_grid = np.abs(counts - np.round(counts)) <= _TOLERANCE
    if not on_grid.all() or least <= 8 * np.finfo(np.float64).eps * np.abs(distinct).max():
        return None
    return _rounded(distinct, least)


def looks_discrete(values: np.ndarray) -> bool:
    """Whether values are all whole numbers, or few and evenly spaced, and come again and again."""
    distinct = len(np.unique(values))
    again = distinct <= len(values) / 2
    if np.array_equal(values, np.round(values)):
        return again and spacing(values) is not None
    return again and distinct <= _FEW and spacing(values) is not None


def _rounded(distinct: np.ndarray, least: float) -> float:
    """The spacing without the error of subtraction: 1 rather than 0.9999999999, from the longest distance."""
    longest = float(distinct[-1] - distinct[0])
    return longest / round(longest / least)
