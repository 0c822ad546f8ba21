"""A table's columns: their mean and spread, conditions beside them, and which rows are held out."""

from typing import Any

import numpy as np
from sklearn.utils import check_array

from ffjord.errors import InputError

_LARGEST = 1e306  # leaves room for samples a hundred standard deviations away
_FAR = 1e30  # standard deviations; squared it is beyond float32, so the log-density is -inf there and further out


def statistics(rows: np.ndarray, names: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of every column; a column without spread has no density, and is an error.

    The columns are scaled by powers of two, which rounds nothing, so that no square over- or underflows.
    """
    if np.max(np.abs(rows)) > _LARGEST:
        raise ValueError(f"X holds numbers beyond ±{_LARGEST:g}, so that samples would overflow; change its units.")
    exponent = np.frexp(np.max(np.abs(rows), axis=0))[1]
    unit = np.ldexp(rows, -exponent)
    mean, scale = np.ldexp(unit.mean(axis=0), exponent), np.ldexp(unit.std(axis=0), exponent)
    constant = np.flatnonzero((rows.min(axis=0) == rows.max(axis=0)) | (scale == 0))
    if constant.size:
        listed = ", ".join(repr(names[j]) if names is not None else str(j) for j in constant)
        raise ValueError(f"X has constant columns ({listed}), which have no density; leave them out.")
    return mean, scale


def standardized(rows: np.ndarray, mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """z = (x - mean) / scale, computed in float64, returned in float32."""
    with np.errstate(over="ignore"):
        return np.clip((rows.astype(np.float64) - mean) / scale, -_FAR, _FAR).astype(np.float32)


def condition_rows(conditions: Any, n: int) -> np.ndarray:
    """Conditions as a table of n rows."""
    rows = np.asarray(conditions)
    rows = rows[:, None] if rows.ndim == 1 else rows
    rows = check_array(rows, dtype="float64", input_name="conditions")
    if len(rows) != n:
        raise InputError(f"conditions must have a row for each of the {n} rows; got {len(rows)}.")
    return rows


def condition_statistics(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the conditions' columns; one that does not vary keeps its scale."""
    scale = rows.std(axis=0)
    return rows.mean(axis=0), np.where(scale > 0, scale, 1.0)


def split(n: int, fraction: float, rng: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the rows for training and of those held out, at least one of each."""
    if not 0 < fraction < 1:
        raise ValueError(f"validation_fraction must be between 0 and 1; got {fraction}.")
    count = min(max(1, round(fraction * n)), n - 1)
    order = rng.permutation(n)
    return order[count:], order[:count]
