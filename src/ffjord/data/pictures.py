"""Dequantised images: every pixel is spread evenly over its grey level."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from ffjord.data.images import IMAGE_SETS, ImageSet
from ffjord.data.source import Rows
from ffjord.data.split import Split
from ffjord.errors import InputError

_PREFIX = "image/"
_VALIDATION, _TEST, _NOISE, _FLIP, _GIVEN = range(10, 15)
_BLOCK = 2000
_MOST = np.float32(1 - 2**-16)
"""The largest noise: with more, 255 + u is 256 in float32."""


def is_image(name: str) -> bool:
    """Whether the name of a data set, such as "image/mnist", is one of images."""
    return name.startswith(_PREFIX)


def image_set(name: str) -> ImageSet:
    """What there is to know of the set of images with such a name."""
    return IMAGE_SETS[name.removeprefix(_PREFIX)]


def spread(images: np.ndarray, levels: int, rng: np.random.Generator) -> np.ndarray:
    """(v + u)/L, with u uniform and so far below 1 that rounding does not reach the next level."""
    noise = np.minimum(rng.random(images.shape, dtype=np.float32), _MOST)
    return (images.astype(np.float32) + noise) / np.float32(levels)


def read_images(path: Path, shape: tuple[int, ...], levels: int, *, seed: int) -> np.ndarray:
    """Images of a .npy file as pixels in [0, 1], float32: whole grey levels are dequantised, others are as they are."""
    try:
        images = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path} cannot be read as a .npy file of images: {error}") from error
    if not isinstance(images, np.ndarray) or images.shape[1:] != shape or not len(images):
        got = getattr(images, "shape", "an archive of arrays")
        raise InputError(f"{path}: images must have the shape ({', '.join(['n', *map(str, shape)])}); got {got}.")
    whole = images.dtype.kind in "iub"
    top = levels - 1 if whole else 1.0
    if images.dtype.kind not in "iubf" or not (np.min(images) >= 0 and np.max(images) <= top):
        found = f"{np.min(images)} to {np.max(images)}" if images.dtype.kind in "iubf" else f"type {images.dtype}"
        raise InputError(
            f"{path}: pixels must be whole numbers from 0 to {levels - 1}, or numbers from 0 to 1; got {found}."
        )
    return spread(images, levels, np.random.default_rng([seed, _GIVEN])) if whole else images.astype(np.float32)


class Pictures:
    """A source over images of L grey levels: x = (v + u)/L in [0, 1), with u uniform (Theis et al. 2016).

    The density of x bounds the probability of the image, log₂ P(v) ≥ E_u[log₂ p(x)] - D log₂ L: hence bits a dimension,

        -log₂ p(x) / D + log₂ L.

    The noise of a training batch derives from (seed, step), that of validation and test images from the seed and
    `draw`: a figure can be had again, and so can another draw of it. Images are read when they are first needed; a
    trained model can be used where they are not.

    **Arguments:**

    - `event_shape`: (height, width, channels).
    - `read`: gives training, validation and test images, uint8 of shape (n, height, width, channels).
    - `levels`: L. `num_test`: how many test images there are.
    - `flips`: whether training images are mirrored left to right, half of them at random.
    """

    def __init__(
        self,
        event_shape: tuple[int, ...],
        read: Callable[[], Split],
        *,
        levels: int,
        num_test: int,
        batch_size: int,
        seed: int,
        flips: bool = False,
        draw: int = 0,
    ):
        self.event_shape, self._read, self.levels, self.num_test = event_shape, read, levels, num_test
        self.batch_size, self.seed, self.flips, self.draw = batch_size, seed, flips, draw

    @functools.cached_property
    def split(self) -> Split:
        split = self._read()
        if any(part.dtype != np.uint8 for part in split):
            raise ValueError(f"images must be whole grey levels, uint8; got {[str(part.dtype) for part in split]}.")
        return split

    def with_draw(self, draw: int) -> "Pictures":
        """The same images with other noise in validation and test."""
        return Pictures(
            self.event_shape,
            lambda: self.split,
            levels=self.levels,
            num_test=self.num_test,
            batch_size=self.batch_size,
            seed=self.seed,
            flips=self.flips,
            draw=draw,
        )

    def batches(self, step: int, count: int) -> np.ndarray:
        images = np.asarray(self._rows.batches(step, count))
        return np.stack([self._spread(self._flipped(images[i], step + i), _NOISE, step + i) for i in range(count)])

    def validation(self) -> np.ndarray:
        return self._spread(self.split.validation, _VALIDATION, self.draw)

    def test(self, limit: int | None = None) -> np.ndarray:
        return np.concatenate([*self.test_blocks(limit)])

    def test_blocks(self, limit: int | None = None) -> Iterator[np.ndarray]:
        wanted = len(self.split.test[:limit])
        for start in range(0, wanted, _BLOCK):
            block = self.split.test[start : start + _BLOCK]  # whole, so that the noise does not depend on the limit
            yield self._spread(block, _TEST, self.draw, start)[: wanted - start]

    @functools.cached_property
    def _rows(self) -> Rows:
        size = min(self.batch_size, len(self.split.train))
        return Rows(*self.split, batch_size=size, seed=self.seed)

    def _spread(self, images: np.ndarray, *stream: int) -> np.ndarray:
        return spread(images, self.levels, np.random.default_rng([self.seed, *stream]))

    def _flipped(self, images: np.ndarray, step: int) -> np.ndarray:
        if not self.flips:
            return images
        flip = np.random.default_rng([self.seed, _FLIP, step]).random(len(images)) < 0.5
        return np.where(flip[:, None, None, None], images[:, :, ::-1], images)
