"""The toy densities of the paper: eight in two dimensions, one in one, and any picture.

Samples are drawn afresh for every batch. Definitions follow the authors' release.
"""

from collections.abc import Callable

import numpy as np

Draw = Callable[[int, np.random.Generator], np.ndarray]


def swissroll(n: int, rng: np.random.Generator) -> np.ndarray:
    from sklearn.datasets import make_swiss_roll

    points, _ = make_swiss_roll(n, noise=1.0, random_state=_legacy(rng))
    return points[:, [0, 2]] / 5


def eight_gaussians(n: int, rng: np.random.Generator) -> np.ndarray:
    angles = rng.integers(8, size=n) * (np.pi / 4)
    centers = 4 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return (centers + 0.5 * rng.standard_normal((n, 2))) / 1.414


def pinwheel(n: int, rng: np.random.Generator, arms: int = 5) -> np.ndarray:
    radial, tangential = (rng.standard_normal((n, 2)) * (0.3, 0.1) + (1.0, 0.0)).T
    angles = rng.integers(arms, size=n) * (2 * np.pi / arms) + 0.25 * np.exp(radial)
    cos, sin = np.cos(angles), np.sin(angles)
    return 2 * np.stack([cos * radial - sin * tangential, sin * radial + cos * tangential], axis=1)


def circles(n: int, rng: np.random.Generator) -> np.ndarray:
    from sklearn.datasets import make_circles

    points, _ = make_circles(n, factor=0.5, noise=0.08, random_state=_legacy(rng))
    return 3 * np.asarray(points)


def moons(n: int, rng: np.random.Generator) -> np.ndarray:
    from sklearn.datasets import make_moons

    points, _ = make_moons(n, noise=0.1, random_state=_legacy(rng))
    return 2 * np.asarray(points) + (-1.0, -0.2)


def two_spirals(n: int, rng: np.random.Generator) -> np.ndarray:
    angles = np.sqrt(rng.random(n)) * 540 * (2 * np.pi / 360)
    jitter = rng.random((n, 2)) / 2
    arm = np.stack([-np.cos(angles) * angles, np.sin(angles) * angles], axis=1) + jitter
    side = rng.choice([-1.0, 1.0], size=(n, 1))
    return side * arm / 3 + 0.1 * rng.standard_normal((n, 2))


def checkerboard(n: int, rng: np.random.Generator) -> np.ndarray:
    x1 = 4 * rng.random(n) - 2
    x2 = rng.random(n) - 2 * rng.integers(2, size=n) + np.floor(x1) % 2
    return 2 * np.stack([x1, x2], axis=1)


def rings(n: int, rng: np.random.Generator) -> np.ndarray:
    radii = 0.25 * rng.integers(1, 5, size=n)
    angles = 2 * np.pi * rng.random(n)
    points = radii[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return 3 * points + 0.08 * rng.standard_normal((n, 2))


_MEANS, _VARIANCE = (-2.8, -0.9, 2.0), 0.4


def mixture_1d(n: int, rng: np.random.Generator) -> np.ndarray:
    """Three equal Gaussians on a line (the paper's Figure 1)."""
    means = rng.choice(_MEANS, size=(n, 1))
    return means + np.sqrt(_VARIANCE) * rng.standard_normal((n, 1))


def mixture_1d_density(x: np.ndarray) -> np.ndarray:
    """Their density at every x."""
    squares = (x[..., None] - np.asarray(_MEANS)) ** 2 / _VARIANCE
    return np.mean(np.exp(-0.5 * squares), axis=-1) / np.sqrt(2 * np.pi * _VARIANCE)


TOYS: dict[str, Draw] = {
    "swissroll": swissroll,
    "8gaussians": eight_gaussians,
    "pinwheel": pinwheel,
    "circles": circles,
    "moons": moons,
    "2spirals": two_spirals,
    "checkerboard": checkerboard,
    "rings": rings,
    "1d": mixture_1d,
}
"""Name → (n, rng) → n points."""


def _legacy(rng: np.random.Generator) -> np.random.RandomState:
    """scikit-learn wants a generator of the older kind."""
    return np.random.RandomState(rng.integers(2**32, dtype=np.uint32))
