"""Bounds and likelihoods of many images under an autoencoder, with their standard errors."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ffjord import devices
from ffjord.data.source import Source
from ffjord.scoring import Moments, asked, costs, rows_at_once
from ffjord.vae.model import VAE

Progress = Callable[[int, int], None]


class Estimate(NamedTuple):
    """A mean over images in nats, and its standard error."""

    mean: float
    stderr: float

    @classmethod
    def of(cls, values: Float[np.ndarray, " n"]) -> "Estimate":
        moments = Moments()
        moments.add(values)
        return cls(moments.mean, moments.standard_error)


class Bounds(NamedTuple):
    """The negative bound -E[log p(x | z)] + KL on test images, in nats an image, and what the solves took."""

    negative_elbo: Estimate
    """The error is that of the mean over images; the noise of z is a part of it."""
    reconstruction: Estimate
    """-E[log p(x | z)]."""
    kl: Estimate
    images: int
    draws: int
    nfe: float
    accepted: float
    rejected: float
    each: Float[np.ndarray, " n"]
    """The negative bound of every image."""


def bounds(
    vae: VAE,
    source: Source,
    *,
    limit: int | None = None,
    draws: int = 1,
    progress: Progress | None = None,
    key: PRNGKeyArray,
) -> Bounds:
    """The bound on all test images, or the first so many, each averaged over `draws` draws of z."""
    n = _count(source, limit)
    parts, spent = np.zeros((2, n)), []
    for draw in range(draws):
        told = None if progress is None else lambda done, total, d=draw: progress(d * total + done, draws * total)
        done = 0
        for found, cost in _bounds_of(vae, source, n, told, jax.random.fold_in(key, draw)):
            parts[:, done : done + found.shape[1]] += found / draws
            done += found.shape[1]
            spent.append(cost)
    likelihood, kl = parts
    whole, first, second = (Estimate.of(values) for values in (kl - likelihood, -likelihood, kl))
    nfe, accepted, rejected = np.mean(spent, axis=0).tolist()
    return Bounds(whole, first, second, n, draws, nfe, accepted, rejected, kl - likelihood)


def importance_sampled(
    vae: VAE,
    source: Source,
    samples: int,
    *,
    limit: int | None = None,
    progress: Progress | None = None,
    key: PRNGKeyArray,
) -> Estimate:
    """The negative log-likelihood of test images by importance sampling: an estimate from above, closer the more
    samples an image has (Burda et al. 2016)."""
    n, at_once = _count(source, limit), rows_at_once(vae)
    images = max(1, int(np.sqrt(at_once)))
    values, x = np.empty(n), np.asarray(source.test(n))
    for start in range(0, n, images):
        rows = x[start : start + images]
        filled = np.concatenate([rows, np.repeat(rows[-1:], images - len(rows), axis=0)])  # of one shape
        key_rows = jax.random.fold_in(key, start)
        found = vae.log_prob(filled, samples=samples, chunk=min(samples, at_once // images), key=key_rows)
        values[start : start + len(rows)] = -np.asarray(found)[: len(rows)]
        if progress is not None:
            progress(start + len(rows), n)
    return Estimate.of(values)


def _count(source: Source, limit: int | None) -> int:
    return source.num_test if limit is None else min(limit, source.num_test)


def _bounds_of(
    vae: VAE, source: Source, n: int, progress: Progress | None, key: PRNGKeyArray
) -> Iterator[tuple[Float[np.ndarray, "2 rows"], list[float]]]:
    """log p(x | z) and KL of every image, chunk by chunk, and what each chunk took."""
    vae = devices.copied(vae)
    ask = lambda x, condition, key: vae.elbo(x, key=key)
    blocks = (np.asarray(block) for block in source.test_blocks(n))
    for elbo, rows in asked(ask, blocks, n, rows_at_once(vae), progress=progress, key=key):
        found = np.stack([devices.fetch(part)[:rows] for part in (elbo.log_likelihood, elbo.kl)])
        yield found.astype(np.float64), costs(elbo.report)
