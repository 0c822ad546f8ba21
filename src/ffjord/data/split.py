"""Training, validation and test rows of a table, and the steps that the recipes of the paper's sets share."""

from typing import NamedTuple

import numpy as np


class Split(NamedTuple):
    """Rows of float32 numbers, in the units in which densities are reported; or images of bytes."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def from_the_end(rows: np.ndarray) -> Split:
    """The last tenth for testing, the last tenth of the rest for validation, as MAF has it."""
    rest = rows[: len(rows) - int(0.1 * len(rows))]
    first = len(rest) - int(0.1 * len(rest))
    return Split(rest[:first], rest[first:], rows[len(rest) :])


def standardized(split: Split, by: np.ndarray, *, ddof: int = 0) -> Split:
    """Every column less its mean, divided by its deviation, both over the rows of `by`."""
    mean, scale = by.mean(axis=0), by.std(axis=0, ddof=ddof)
    return Split(*(((part - mean) / scale).astype(np.float32) for part in split))


def varied(rows: np.ndarray) -> np.ndarray:
    """Which columns have a smallest value that occurs at most 5 times: the others are not continuous."""
    return (rows == rows.min(axis=0)).sum(axis=0) <= 5
