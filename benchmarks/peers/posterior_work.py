"""The posteriors of the paper's autoencoders: networks with low-rank weights of each sample's own, for every library.

    layer(h) = (W + U(x) V(x)ᵀ) [t, h] + b + b(x)          (equation 10)

U, V and b(x) are given here: what makes them from an image is a linear map before the solve, the same for all.
"""

import itertools

import numpy as np

from .work import Work

WORKS = {
    name: (Work(name, 64, hidden, nonlinearity, 100, end_time=0.5), rank)
    for name, hidden, nonlinearity, rank in (
        ("mnist", (1024, 1024), "softplus", 64),
        ("omniglot, frey", (512, 512), "softplus", 20),
        ("caltech", (2048,), "tanh", 20),
    )
}
"""The paper's best architectures, with their ranks."""
_STRETCH = 2.5
"""By how much the weights W are larger than usual: flows like trained ones, of about twenty evaluations."""


def layers(work: Work) -> list[dict[str, np.ndarray]]:
    """Every layer's W (out, in), its column for the time, b, and of every sample Uᵀ (rank, out), Vᵀ (rank, in), V's row
    for the time, and b(x)."""
    rng, (_, rank) = np.random.default_rng(work.seed), WORKS[work.name]
    normal = lambda *shape, scale: (scale * rng.normal(size=shape)).astype(np.float32)
    n = work.batch
    return [
        {
            "weight": normal(n_out, n_in, scale=_STRETCH * (3 * n_in) ** -0.5),
            "time": normal(n_out, scale=0.1),
            "bias": normal(n_out, scale=0.1),
            "u": normal(n, rank, n_out, scale=0.05),
            "v": normal(n, rank, n_in, scale=0.05),
            "v_time": normal(n, rank, scale=0.05),
            "b": normal(n, n_out, scale=0.05),
        }
        for n_in, n_out in itertools.pairwise((work.dim, *work.hidden, work.dim))
    ]
