"""Sets of pictures: what there is, and the pictures themselves. Free of JAX.

Pictures are arrays of bytes of shape (n, height, width, channels), with values from 0 to levels - 1.
"""

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ffjord.data.sets import Form, first_form
from ffjord.data.split import Split
from ffjord.data.tables import _split
from ffjord.errors import InputError


@dataclass(frozen=True)
class ImageSet:
    """A set of pictures."""

    name: str
    about: str
    shape: tuple[int, int, int]
    """Height, width and channels."""
    levels: int
    """How many values a byte may have."""
    rows: tuple[int, int, int]
    """Pictures for training, validation and testing."""
    forms: tuple[Form, ...]
    """None, of a set that comes with scikit-learn. A reader is given `rows` too."""


IMAGE_SETS: dict[str, ImageSet] = {
    images.name: images
    for images in (
        ImageSet("digits", "handwritten digits, small ones", (8, 8, 1), 17, (1_259, 179, 359), ()),
        ImageSet(
            "mnist",
            "handwritten digits",
            (28, 28, 1),
            256,
            (55_000, 5_000, 10_000),
            (
                Form("train-images-idx3-ubyte.gz", "idx.mnist", "the publisher's; with t10k-images-idx3-ubyte.gz"),
                Form("train-images-idx3-ubyte", "idx.mnist", "the same, unpacked; with t10k-images-idx3-ubyte"),
            ),
        ),
        ImageSet(
            "cifar10",
            "photographs of things and animals",
            (32, 32, 3),
            256,
            (45_000, 5_000, 10_000),
            (
                Form("cifar-10-batches-bin", "cifar.from_binary", "the publisher's binary version, unpacked"),
                Form("data_batch_1.bin", "cifar.from_binary", "the same without its folder; with the other batches"),
                Form("cifar-10-binary.tar.gz", "cifar.from_binary", "the same, the archive as it is"),
                Form("cifar-10-batches-py", "cifar.from_python", "the publisher's Python version, unpacked"),
                Form("data_batch_1", "cifar.from_python", "the same without its folder; with the other batches"),
                Form("cifar-10-python.tar.gz", "cifar.from_python", "the same, the archive as it is"),
            ),
        ),
    )
}


@functools.lru_cache(maxsize=1)
def load_images(name: str, data_dir: str | Path | None = None) -> Split:
    """The pictures of a set, in the first form that is there; refuses files that have not what they should have."""
    if name not in IMAGE_SETS:
        raise InputError(f"there is no set of pictures {name!r}; there are {', '.join(IMAGE_SETS)}.")
    about = IMAGE_SETS[name]
    if not about.forms:
        return _digits()
    form, path = first_form(name, about.forms, data_dir)
    return form.read(path, about.rows)


def _digits() -> Split:
    """The rows of the table of the same name, split and ordered as there."""
    from sklearn.datasets import load_digits

    values = np.asarray(load_digits(return_X_y=True)[0])
    return Split(*_split(values.astype(np.uint8).reshape(-1, *IMAGE_SETS["digits"].shape)))
