"""The convolutional network of the benchmark: the paper's for MNIST, with given weights, for every library alike."""

import itertools

import numpy as np

from .work import Work

SIDE = 28


def kernels(work: Work) -> list[dict[str, np.ndarray]]:
    """Kernel (3, 3, 1 + in, out) with the time as first channel, and bias of every layer: variance 2 / inputs."""
    rng = np.random.default_rng(work.seed)
    normal = lambda *shape, scale=1.0: (scale * rng.normal(size=shape)).astype(np.float32)
    return [
        {"kernel": normal(3, 3, 1 + n_in, n_out, scale=(2 / (9 * n_in)) ** 0.5), "bias": normal(n_out, scale=0.1)}
        for n_in, n_out in itertools.pairwise((1, *work.hidden, 1))
    ]


def images(work: Work) -> np.ndarray:
    """A batch of Gaussian noise: what a flow of this kind sees at the start of training is no simpler."""
    return np.random.default_rng(work.seed + 1).normal(size=(work.batch, SIDE, SIDE, 1)).astype(np.float32)


def operations(work: Work) -> float:
    """Floating-point operations of one evaluation of the network on a batch."""
    return sum(2.0 * work.batch * SIDE**2 * layer["kernel"].size for layer in kernels(work))
