"""Likelihoods of dequantised images in bits a dimension, with error bars that say where the errors come from."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ffjord.bijections import continuous_parts
from ffjord.data.pictures import Pictures
from ffjord.flow import Flow
from ffjord.scoring import Scores, collect, score, score_blocks

_AGAIN = 256
Progress = Callable[[int, int], None]


class Bits(NamedTuple):
    """Bits a dimension of images under a flow, and their errors. Standard errors are in the same unit."""

    bits_per_dim: float
    stderr: float
    """Of the mean over images, of which another sample might have been had; it holds the part below."""
    trace_stderr: float
    """The part of it that is due to the trace's estimate; 0 if that is exact."""
    trace_variance: float
    """The same as a variance of the mean log-likelihood, in nats²."""
    noise_stderr: float | None
    """The part due to both kinds of noise, from how the draws of an image differ; None of a single draw."""
    images: int
    draws: int
    nfe: float
    accepted: float
    rejected: float


def bits_per_dim(
    flow: Flow,
    pictures: Pictures,
    *,
    limit: int | None = None,
    draws: int = 1,
    progress: Progress | None = None,
    key: PRNGKeyArray,
) -> Bits:
    """-log₂ p(x)/D + log₂ L over all test images, each averaged over `draws` draws of its dequantisation and of ε.

    With n images, K draws, b_ik the bits of draw k of image i and b_i their mean, the standard error of the mean is
    √(Σ (b_i - b)²/(n (n-1))). What is due to the trace is found by scoring some images again with the same
    dequantisation and other ε: half the mean squared difference estimates the variance v of one score, and
    √(v / (nK)) is its part in the standard error.
    """
    n = pictures.num_test if limit is None else min(limit, pictures.num_test)
    scores = [
        _drawn(flow, pictures.with_draw(k), n, _part(progress, k, draws), jax.random.fold_in(key, k))
        for k in range(draws)
    ]
    log_prob = np.stack([np.asarray(found.log_prob, np.float64) for found in scores])
    size = int(np.prod(pictures.event_shape))
    each = to_bits(log_prob, size, pictures.levels)
    of_images = each.mean(axis=0)
    variance = _trace_variance(flow, pictures, min(n, _AGAIN), jax.random.fold_in(key, 0)) / (n * draws)
    within = float(np.sqrt(each.var(axis=0, ddof=1).mean() / (n * draws))) if draws > 1 else None
    nfe, accepted, rejected = np.mean([found[1:] for found in scores], axis=0).tolist()
    return Bits(
        float(of_images.mean()),
        float(of_images.std(ddof=1) / np.sqrt(n)),
        float(np.sqrt(variance) / (size * np.log(2))),
        variance,
        within,
        n,
        draws,
        nfe,
        accepted,
        rejected,
    )


def to_bits(log_prob: Any, size: int, levels: int) -> Any:
    """Bits a dimension of log-densities in nats of `size` pixels in [0, 1] that had so many grey levels."""
    return -log_prob / (size * np.log(2)) + np.log2(levels)


def to_nats(bits: float, size: int, levels: int) -> float:
    """The negative log-density that so many bits a dimension are: the inverse of `to_bits`."""
    return (bits - np.log2(levels)) * size * np.log(2)


def _drawn(flow: Flow, pictures: Pictures, n: int, progress: Progress | None, key: PRNGKeyArray) -> Scores:
    """Scores of the first n test images with one draw of their noise."""
    return collect(score_blocks(flow, pictures.test_blocks(n), n, progress=progress, key=key), n)


def _part(progress: Progress | None, number: int, of: int) -> Progress | None:
    """Who is told of one of several draws."""
    return None if progress is None else lambda done, total: progress(number * total + done, of * total)


def _trace_variance(flow: Flow, pictures: Pictures, n: int, key: PRNGKeyArray) -> float:
    """The variance of one image's log p that is due to ε, in nats²: from two scores of the first n test images."""
    if not any(part.testing.divergence.stochastic for part in continuous_parts(flow)):
        return 0.0
    x = pictures.with_draw(0).test(n)
    twice = [_scores(flow, x, jax.random.fold_in(key, 1 + i)) for i in range(2)]
    return float(np.mean((twice[0] - twice[1]) ** 2) / 2)


def _scores(flow: Flow, x: np.ndarray, key: PRNGKeyArray) -> Float[np.ndarray, " n"]:
    return np.asarray(score(flow, x, key=key).log_prob, np.float64)
