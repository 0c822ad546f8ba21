"""Samples against data, column by column: the two-sample Kolmogorov-Smirnov test.

    d = max_x |F(x) - G(x)|

is the largest difference of the two empirical distribution functions. If both samples come from one distribution,

    P(d ≥ found) ≈ 2 Σ_k (-1)^(k-1) exp(-2 k² λ²),   λ = (e + 0.12 + 0.11 / e) d,   e² = n m / (n + m)

(Stephens, 1970).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Comparison(NamedTuple):
    """Of every column: d, and how probable one as large is by chance."""

    distance: Float[np.ndarray, " d"]
    probability: Float[np.ndarray, " d"]


def compare(x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "m d"]) -> Comparison:
    """The test for every column of two tables."""
    distance = np.asarray([ks_distance(x[:, j], y[:, j]) for j in range(x.shape[1])])
    return Comparison(distance, np.asarray([ks_probability(d, len(x), len(y)) for d in distance]))


def ks_distance(x: Float[np.ndarray, " n"], y: Float[np.ndarray, " m"]) -> float:
    """max |F - G|."""
    at = np.concatenate([x, y])
    below = lambda values: np.searchsorted(np.sort(values), at, side="right") / len(values)
    return float(np.max(np.abs(below(x) - below(y))))


def ks_probability(distance: float, n: int, m: int) -> float:
    """How probable a distance as large is between n and m points of one distribution."""
    root = np.sqrt(n * m / (n + m))
    scaled = (root + 0.12 + 0.11 / root) * distance
    if scaled < 0.2:  # where the series converges slowly, the sum is 1 to twelve digits
        return 1.0
    k = np.arange(1, 101)
    return float(np.clip(2 * np.sum((-1.0) ** (k - 1) * np.exp(-2 * (k * scaled) ** 2)), 0, 1))
