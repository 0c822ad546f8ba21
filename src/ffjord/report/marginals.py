"""Samples against data, column by column: the two-sample Kolmogorov-Smirnov test.

    d = max_x |F(x) - G(x)|

is the largest difference of the two empirical distribution functions.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.stats import ks_2samp


class Comparison(NamedTuple):
    """Of every column: d, and how probable one as large is by chance if both come from one distribution."""

    distance: Float[np.ndarray, " d"]
    probability: Float[np.ndarray, " d"]


def compare(x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "m d"]) -> Comparison:
    """The test for every column of two tables."""
    found = [ks_2samp(*columns, method="asymp") for columns in zip(x.T, y.T, strict=True)]
    return Comparison(*(np.array([getattr(one, name) for one in found]) for name in ("statistic", "pvalue")))
