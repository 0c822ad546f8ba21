"""Discrete images: every pixel is a whole number, as the likelihood of an autoencoder has it."""

from collections.abc import Iterator

import numpy as np

from ffjord.data.binarized import binarized
from ffjord.data.images import IMAGE_SETS, ImageSet
from ffjord.data.source import Rows
from ffjord.data.split import Split

_PREFIX = "vae/"
_PIXELS = 20
_BLOCK = 2000


def is_discrete(name: str) -> bool:
    """Whether the name of a data set, such as "vae/frey", is one of images for an autoencoder."""
    return name.startswith(_PREFIX)


def discrete_set(name: str) -> ImageSet:
    """What there is to know of the set of images with such a name."""
    return IMAGE_SETS[name.removeprefix(_PREFIX)]


class Discrete:
    """A source over images of L levels: v in {0, …, L - 1}, as float32; 0 and 1 where images are black and white.

    Nothing is divided by L - 1: a model divides what it takes in, and has v itself as its target.

    Training images of float32 are probabilities of a pixel 1. They are binarised anew for every batch (dynamic
    binarisation, Salakhutdinov & Murray 2008), by noise that derives from (seed, step). All others are handed out as
    they are.

    **Arguments:**

    - `split`: training, validation and test images (n, height, width, channels), uint8; or float32, for training.
    """

    def __init__(self, split: Split, *, batch_size: int, seed: int):
        size = min(batch_size, len(split.train))
        self.split, self.seed, self._rows = split, seed, Rows(*split, batch_size=size, seed=seed)

    @property
    def event_shape(self) -> tuple[int, ...]:
        return self.split.train.shape[1:]

    @property
    def dynamic(self) -> bool:
        """Whether training pixels are drawn anew for every batch."""
        return self.split.train.dtype.kind == "f"

    def batches(self, step: int, count: int) -> np.ndarray:
        images = np.asarray(self._rows.batches(step, count))
        if self.dynamic:
            images = np.stack([self._drawn(images[i], step + i) for i in range(count)])
        return images.astype(np.float32)

    def validation(self) -> np.ndarray:
        return self.split.validation.astype(np.float32)

    @property
    def num_test(self) -> int:
        return len(self.split.test)

    def test(self, limit: int | None = None) -> np.ndarray:
        return self.split.test[:limit].astype(np.float32)

    def test_blocks(self, limit: int | None = None) -> Iterator[np.ndarray]:
        test = self.split.test[:limit]
        yield from (test[start : start + _BLOCK].astype(np.float32) for start in range(0, len(test), _BLOCK))

    def _drawn(self, probabilities: np.ndarray, step: int) -> np.ndarray:
        return binarized(probabilities, np.random.default_rng([self.seed, _PIXELS, step]))
