"""What simpler densities make of the same rows: one Gaussian, a mixture of Gaussians, a kernel density. Free of JAX.

With conditions all three are fitted to rows and conditions side by side, and give

    p(x | c) = p(x, c) / p(c),

where p(c) is the same density without its first columns: a block of each covariance, or the kernels in those columns.
"""

import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.spatial.distance import cdist
from scipy.special import logsumexp

from ffjord.table.prepare import Part, Prepared

_COMPONENTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_BANDWIDTHS = np.geomspace(0.05, 3, 18)
"""Times Scott's rule, n^(-1 / (d + 4))."""
_ROWS = 10_000
"""Training rows that the mixture and the kernel density get at most; a validation that chooses gets a fifth of it."""
_RIDGE = 1e-6
_CHUNK = 500


class Yardstick(NamedTuple):
    """A density fitted to the training rows: log-densities of the test rows in standardised units, and how."""

    name: str
    log_prob: np.ndarray
    about: dict[str, Any]


class _Rows(NamedTuple):
    """Rows and conditions side by side, with weights that add up to one."""

    joint: np.ndarray
    weights: np.ndarray

    def some(self, count: int, rng: np.random.Generator) -> "_Rows":
        """At most so many of the rows."""
        if len(self.joint) <= count:
            return self
        kept = rng.permutation(len(self.joint))[:count]
        return _Rows(self.joint[kept], self.weights[kept] / self.weights[kept].sum())


def yardsticks(prepared: Prepared, *, seed: int) -> Iterator[Yardstick]:
    """Fits all three to the training rows; validation rows choose what is to be chosen, test rows are scored."""
    rng, dim = np.random.default_rng(seed), len(prepared.layout.cell)
    train = _rows(prepared.train)
    if prepared.jitter is not None:
        train.joint[:, :dim] += prepared.jitter * rng.random((len(train.joint), dim))
    validation, test = _rows(prepared.validation).some(_ROWS // 5, rng), _rows(prepared.test)
    yield _gaussian(train, test, dim)
    some = train.some(_ROWS, rng)
    of = {"training_rows": len(some.joint), "all_training_rows": len(train.joint)}
    for fit in (_mixture, _kernels):
        name, log_prob, about = fit(some, validation, test, dim, seed)
        yield Yardstick(name, log_prob, about | of)


def _rows(part: Part) -> _Rows:
    joint = np.concatenate([part.x, part.conditions], axis=1, dtype=np.float64)
    weights = np.ones(len(joint)) if part.weights is None else part.weights
    return _Rows(joint, weights / weights.sum())


class _Gaussians(NamedTuple):
    """A mixture: weights (k,), means (k, d), covariances (k, d, d)."""

    weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray

    def log_prob(self, joint: np.ndarray, dim: int) -> np.ndarray:
        """log p(x | c) of rows whose first `dim` columns are x."""
        whole = self._density(joint, 0)
        return whole if joint.shape[1] == dim else whole - self._density(joint, dim)

    def _density(self, joint: np.ndarray, first: int) -> np.ndarray:
        """log p of the columns from `first` on."""
        terms = [
            np.log(weight) + _log_normal(joint[:, first:], mean[first:], covariance[first:, first:])
            for weight, mean, covariance in zip(*self, strict=True)
        ]
        return np.asarray(logsumexp(terms, axis=0))


def _log_normal(x: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    root = np.linalg.cholesky(covariance)
    z = solve_triangular(root, (x - mean).T, lower=True)
    return -0.5 * np.sum(z**2, axis=0) - np.log(np.diag(root)).sum() - 0.5 * len(mean) * np.log(2 * np.pi)


def _gaussian(train: _Rows, test: _Rows, dim: int) -> Yardstick:
    """One Gaussian with mean and covariance of the training rows, and a ridge if the covariance is singular."""
    mean = train.weights @ train.joint
    centred = train.joint - mean
    covariance = (train.weights * centred.T) @ centred
    with_ridge = np.linalg.eigvalsh(covariance)[0] < _RIDGE**2
    if with_ridge:
        covariance += _RIDGE * np.eye(len(mean))
    density = _Gaussians(np.ones(1), mean[None], covariance[None])
    return Yardstick("one Gaussian", density.log_prob(test.joint, dim), {"ridge": _RIDGE} if with_ridge else {})


def _mixture(train: _Rows, validation: _Rows, test: _Rows, dim: int, seed: int) -> Yardstick:
    """The number of Gaussians that validates best; it is not raised further once it was worse twice."""
    from sklearn.mixture import GaussianMixture

    joint, best, loss, worse, count = _resampled(train, seed), None, np.inf, 0, 0
    for components in (k for k in _COMPONENTS if 2 * k <= len(joint)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the last digit has not converged
            found = GaussianMixture(components, reg_covar=_RIDGE, random_state=seed % 2**32).fit(joint)
        density = _Gaussians(*map(np.asarray, (found.weights_, found.means_, found.covariances_)))
        validated = -validation.weights @ density.log_prob(validation.joint, dim)
        if validated < loss:
            best, loss, worse, count = density, validated, 0, components
        else:
            worse += 1
        if worse == 2:
            break
    assert best is not None
    return Yardstick("mixture of Gaussians", best.log_prob(test.joint, dim), {"components": count})


def _resampled(train: _Rows, seed: int) -> np.ndarray:
    """Rows drawn by their weights, where these differ: the mixture's fit knows no weights."""
    if np.ptp(train.weights) == 0:
        return train.joint
    return train.joint[np.random.default_rng(seed).choice(len(train.joint), len(train.joint), p=train.weights)]


def _kernels(train: _Rows, validation: _Rows, test: _Rows, dim: int, seed: int) -> Yardstick:
    """A Gaussian around every training row, with the width that validates best."""
    n, d = train.joint.shape
    widths = _BANDWIDTHS * n ** (-1 / (d + 4))
    tried = _kernel_log_prob(train, validation.joint, dim, widths)
    width = widths[[int(np.argmax(tried @ validation.weights))]]
    return Yardstick(
        "kernel density", _kernel_log_prob(train, test.joint, dim, width)[0], {"bandwidth": float(width[0])}
    )


def _kernel_log_prob(train: _Rows, joint: np.ndarray, dim: int, widths: np.ndarray) -> np.ndarray:
    """log p(x | c) of all rows with each width, shape (widths, rows)."""
    log_weights = np.log(train.weights)

    def density(rows: np.ndarray, first: int) -> np.ndarray:
        squares = cdist(rows[:, first:], train.joint[:, first:], "sqeuclidean")
        size = rows.shape[1] - first
        constants = -size * np.log(widths) - 0.5 * size * np.log(2 * np.pi)
        log_sums = [np.asarray(logsumexp(log_weights - squares / (2 * h**2), axis=1)) for h in widths]
        return np.stack(log_sums) + constants[:, None]

    given: Callable[[np.ndarray], Any] = lambda rows: 0.0 if joint.shape[1] == dim else density(rows, dim)
    chunks = (joint[start : start + _CHUNK] for start in range(0, len(joint), _CHUNK))
    return np.concatenate([density(rows, 0) - given(rows) for rows in chunks], axis=1)
