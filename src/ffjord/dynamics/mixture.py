"""The velocity of pixels that are mixtures: what its own value tells in closed form, the rest by a network."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.signal import find_peaks, peak_widths
from sklearn.mixture import GaussianMixture

from ffjord.parameters import Buffer

_VALUES = 2**17
"""Values that the mixture is fitted to."""
_NARROWEST = 1e-2
"""The least σ_k."""
_BINS = 256
_PROMINENT = 4.0
"""By how much the root of a bin's count, whose error is about 1/2, must stand out for a peak."""


class PixelMixture(eqx.Module):
    """The velocity of straight paths to pixels that are mixtures of Gaussians, whose shares a network tells.

    Let a pixel x of the data be of class k with probability π_k, and then N(μ_k, σ_k²). On the straight path
    z_s = (1 - s) z + s x from a base point z ~ N(0, 1), class k has at time s the density and the mean velocity

        N(z_s; s μ_k, v_k),        u_k = ((1 - s) μ_k + (s σ_k² - (1 - s)) z_s) / v_k,        v_k = s² σ_k² + (1 - s)²,

    and the velocity of the flow is the mean of the u_k with the classes' probabilities given z_s,

        f(s, z) = Σ_k w_k u_k,      w_k ∝ π_k exp(g_k(s, z, w⁰)) N(z_s; s μ_k, v_k).

    With g = 0 this takes N(0, I) to independent pixels exactly, however narrow the σ_k. The network g, which sees all
    pixels, has to tell only how probable the classes of each become by the others. w⁰ are the w_k with g = 0. The
    mixture is fitted to training images, before the first step. Time goes from 0 to 1.

    Dieleman et al., Continuous diffusion for categorical data, 2022, interpolate the scores of words likewise.

    **Arguments:**

    - `network`: g, `(t, (h, w, c (1 + K))) -> (h, w, c K)`; at the start it should be zero.
    - `components`: K.
    """

    network: Any
    log_shares: Buffer
    means: Buffer
    deviations: Buffer

    def __init__(self, network: Any, components: int):
        if components < 1:
            raise ValueError(f"components must be at least 1; got {components}.")
        self.network = network
        self.log_shares = Buffer(jnp.full(components, -np.log(components)))
        self.means, self.deviations = Buffer(jnp.zeros(components)), Buffer(jnp.ones(components))

    def __call__(self, t: Float[Array, ""], z: Float[Array, "h w c"]) -> Float[Array, "h w c"]:
        means, squares = self.means.value, self.deviations.value**2
        spread = t**2 * squares + (1 - t) ** 2
        pixel = z[..., None]
        alone = self.log_shares.value - 0.5 * ((pixel - t * means) ** 2 / spread + jnp.log(spread))
        seen = jnp.concatenate([pixel, jax.nn.softmax(alone)], axis=-1)
        told = self.network(t, seen.reshape(*z.shape[:2], -1)).reshape(alone.shape)
        velocities = ((1 - t) * means + (t * squares - (1 - t)) * pixel) / spread
        return jnp.sum(jax.nn.softmax(alone + told) * velocities, axis=-1)

    def rows_to_calibrate(self) -> int:
        """How many images `calibrate` should see."""
        return 1024

    def calibrate(self, x: Float[Array, "n h w c"]) -> "PixelMixture":
        """Itself with its mixture fitted to the values of pixels."""
        values = np.random.default_rng(0).permutation(np.asarray(x, np.float64).ravel())[:_VALUES]
        found: Any = _fitted(values, self.means.array.size)
        like = self.means.array.dtype
        arrays = (np.log(found.weights_), found.means_[:, 0], np.sqrt(found.covariances_[:, 0]))
        where = lambda mixture: (mixture.log_shares.array, mixture.means.array, mixture.deviations.array)
        return eqx.tree_at(where, self, tuple(jnp.asarray(array, like) for array in arrays))


def _fitted(values: np.ndarray, components: int) -> GaussianMixture:
    """By expectation maximisation, from a component at each peak of the histogram and the others even between them."""
    counts, edges = np.histogram(values, _BINS)
    roots, width = np.sqrt(np.pad(counts, 1)), edges[1] - edges[0]
    peaks = find_peaks(roots, prominence=_PROMINENT)[0]
    peaks = peaks[np.argsort(-roots[peaks])][:components]
    _, _, left, right = peak_widths(roots, peaks, rel_height=0.7)
    places = np.arange(_BINS) + 1
    free = places[np.all((places[:, None] < left) | (places[:, None] > right), axis=1)]
    even = np.quantile(
        free if len(free) else places, (np.arange(components - len(peaks)) + 0.5) / max(1, components - len(peaks))
    )
    means = edges[0] + width * (np.append(peaks, even) - 0.5)
    deviations = width * np.append((right - left) / 3, np.full(len(even), len(free) / max(1, len(even)) / 2))
    near = np.argmin(np.abs(values[:, None] - means), axis=1)
    shares = np.bincount(near, minlength=components) + 1.0
    return GaussianMixture(
        components,
        covariance_type="diag",
        weights_init=shares / shares.sum(),
        means_init=means[:, None],
        precisions_init=np.maximum(deviations, _NARROWEST)[:, None] ** -2.0,
        reg_covar=_NARROWEST**2,
        max_iter=200,
        tol=1e-4,
    ).fit(values[:, None])
