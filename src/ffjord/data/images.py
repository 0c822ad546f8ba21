"""Sets of pictures: what there is, and the pictures themselves. Free of JAX.

Pictures are arrays of bytes of shape (n, height, width, channels), with values from 0 to levels - 1. Those of
`omniglot` for training are probabilities of a pixel 1, float32, from which pixels are drawn anew in every batch.
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
    """None, of a set that comes with scikit-learn. A reader is given `rows` too, and a seed if there is `shuffle`."""
    shuffle: int | None = None
    """The seed by which pictures are split, unless another is asked for; None, of a set that is split by its files."""


_FROM_GREY = ("binarized.from_mnist", "the grey digits of mnist")
_DRAWN = (
    "binarised here by a fixed seed, with probabilities v/255 from MNIST's bytes v: other pixels than in Larochelle's "
    "files, with which the literature's figures were had"
)

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
        ImageSet(
            "binary-mnist",
            "MNIST's digits in black and white, binarised once",
            (28, 28, 1),
            2,
            (50_000, 10_000, 10_000),
            (
                Form(
                    "binarized_mnist_train.amat",
                    "binarized.from_text",
                    "Larochelle's; with binarized_mnist_valid.amat and binarized_mnist_test.amat",
                    folders=("binarized_mnist", "mnist"),
                ),
                Form("train-images-idx3-ubyte.gz", *_FROM_GREY, folders=("mnist",), note=_DRAWN),
                Form("train-images-idx3-ubyte", *_FROM_GREY, folders=("mnist",), note=_DRAWN),
            ),
        ),
        ImageSet(
            "omniglot",
            "drawn characters of fifty alphabets, black and white",
            (28, 28, 1),
            2,
            (23_000, 1_345, 8_070),
            (
                Form("chardata.mat", "matlab.omniglot", "Burda's"),
                Form(
                    "omniglot28_substitute.npz",
                    "binarized.from_arrays",
                    "drawings that were resized otherwise; arrays train and test of bytes",
                    folders=("omniglot28",),
                    note="the drawings were resized and split otherwise than in the literature: figures on them cannot "
                    "be compared with published ones",
                ),
            ),
            shuffle=123,
        ),
        ImageSet(
            "frey",
            "a man's face in a video",
            (28, 20, 1),
            256,
            (1_565, 200, 200),
            (Form("frey_rawface.mat", "matlab.frey", "the publisher's", folders=("freyfaces",)),),
            shuffle=123,
        ),
        ImageSet(
            "caltech",
            "silhouettes of things and animals",
            (28, 28, 1),
            2,
            (4_100, 2_264, 2_307),
            (
                Form(
                    "caltech101_silhouettes_28_split1.mat",
                    "matlab.caltech",
                    "the publisher's",
                    folders=("caltech101_silhouettes",),
                ),
            ),
        ),
    )
}


@functools.lru_cache(maxsize=1)
def load_images(name: str, data_dir: str | Path | None = None, shuffle: int | None = None) -> Split:
    """The pictures of a set, in the first form that is there; refuses files that have not what they should have.

    `shuffle`: the seed by which `omniglot` and `frey` are split, if not by theirs.
    """
    about = _known(name)
    if shuffle is not None and about.shuffle is None:
        raise InputError(f"{name} is split by its files; leave shuffle={shuffle} out.")
    if not about.forms:
        return _digits()
    form, path = first_form(name, about.forms, data_dir)
    seed = about.shuffle if shuffle is None else shuffle
    return form.read(path, about.rows, *(() if seed is None else (seed,)))


def note(name: str, data_dir: str | Path | None = None) -> str:
    """How the pictures that `load_images` gives differ from what the literature has; empty if they do not."""
    about = _known(name)
    return first_form(name, about.forms, data_dir)[0].note if about.forms else ""


def _known(name: str) -> ImageSet:
    if name not in IMAGE_SETS:
        raise InputError(f"there is no set of pictures {name!r}; there are {', '.join(IMAGE_SETS)}.")
    return IMAGE_SETS[name]


def _digits() -> Split:
    """The rows of the table of the same name, split and ordered as there."""
    from sklearn.datasets import load_digits

    values = np.asarray(load_digits(return_X_y=True)[0])
    return Split(*_split(values.astype(np.uint8).reshape(-1, *IMAGE_SETS["digits"].shape)))
