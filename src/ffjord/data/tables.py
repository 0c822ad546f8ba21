"""Tables that come with scikit-learn: real data without a download.

Each is split once and for all (a fifth for testing, a tenth for validation), and its columns are standardised by mean
and deviation of the training rows: log-densities are those of standardised columns.
"""

from typing import NamedTuple

import numpy as np


class Table(NamedTuple):
    """A table in standardised columns, float32."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    jitter: np.ndarray | None
    """Of whole numbers: how wide the cell of one is in every column, for `Rows` to spread training rows in. Validation
    and test rows are spread already, once. None where the numbers are not whole."""


def breast_cancer() -> Table:
    """569 tumours, 30 measurements each."""
    from sklearn.datasets import load_breast_cancer

    train, validation, test = _split(np.asarray(load_breast_cancer(return_X_y=True)[0]))
    return _standardized(train, validation, test, train.mean(axis=0), train.std(axis=0), None)


def digits() -> Table:
    """1,797 handwritten digits, 8 × 8 pixels with values 0 … 16, dequantised: each spread over the unit above it."""
    from sklearn.datasets import load_digits

    train, validation, test = _split(np.asarray(load_digits(return_X_y=True)[0]))
    rng = np.random.default_rng(0)
    validation, test = (rows + rng.random(rows.shape) for rows in (validation, test))
    spread = train + rng.random(train.shape)
    return _standardized(train, validation, test, spread.mean(axis=0), spread.std(axis=0), np.ones(64))


TABLES = {"digits": digits, "breast-cancer": breast_cancer}


def _split(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training, validation and test rows."""
    order, n = np.random.default_rng(0).permutation(len(rows)), len(rows)
    first, second = n // 5, n // 5 + n // 10
    return rows[order[second:]], rows[order[first:second]], rows[order[:first]]


def _standardized(
    train: np.ndarray,
    validation: np.ndarray,
    test: np.ndarray,
    mean: np.ndarray,
    scale: np.ndarray,
    cell: np.ndarray | None,
) -> Table:
    standard = lambda rows: ((rows - mean) / scale).astype(np.float32)
    jitter = None if cell is None else (cell / scale).astype(np.float32)
    return Table(standard(train), standard(validation), standard(test), jitter)
