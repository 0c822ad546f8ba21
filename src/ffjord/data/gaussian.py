"""One Gaussian with a full covariance: the plainest density, by which the preparation of a table is checked."""

import numpy as np

from ffjord.errors import InputError

_BLOCK = 100_000


def gaussian_log_likelihood(train: np.ndarray, test: np.ndarray) -> float:
    """Mean log-density in nats of the test rows under a Gaussian with mean and covariance of the training rows."""
    mean = train.mean(axis=0, dtype=np.float64)
    covariance = sum(block.T @ block for block in _blocks(train, mean)) / len(train)
    try:
        root = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError as error:
        raise InputError("the columns depend on one another linearly; no Gaussian density fits them.") from error
    squares = sum(float(np.sum(np.linalg.solve(root, block.T) ** 2)) for block in _blocks(test, mean))
    log_volume = float(np.log(np.diag(root)).sum()) + 0.5 * len(mean) * np.log(2 * np.pi)
    return float(-0.5 * squares / len(test) - log_volume)


def _blocks(rows: np.ndarray, mean: np.ndarray):
    return (rows[start : start + _BLOCK] - mean for start in range(0, len(rows), _BLOCK))
