"""BSDS300: patches of natural images, from the Berkeley segmentation data set.

An 8 × 8 patch of grey values is spread evenly over the unit to which each is rounded, divided by 256, and its mean is
subtracted; the last pixel, which the others then determine, is left out. Not standardised.

MAF distributes such patches. From the images they are cut here, at random places of random images: from 180 of the 200
training images for training, from the other 20 for validation, from the 100 test images for testing. These are other
patches than MAF's, so that figures compare with published ones nearly.
"""

from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from ffjord.data.split import Split
from ffjord.errors import InputError

ROWS = (1_000_000, 50_000, 250_000)
"""Of training, validation and test patches."""
_SIDE = 8
_HELD_OUT = 20


def from_images(folder: Path, rows: tuple[int, int, int] = ROWS) -> Split:
    """Patches of the images in `folder`/train and `folder`/test; `rows`: how many of each part."""
    train, test = (sorted((folder / name).glob("*.jpg")) for name in ("train", "test"))
    if len(train) <= _HELD_OUT or not test:
        raise InputError(
            f"{folder} must have the images of BSDS300 in train (200) and test (100); "
            f"found {len(train)} and {len(test)} files."
        )
    parts = (train[:-_HELD_OUT], train[-_HELD_OUT:], test)
    return Split(*(patches(files, n, seed) for seed, (files, n) in enumerate(zip(parts, rows, strict=True))))


def from_maf(path: Path) -> Split:
    """MAF's BSDS300.hdf5, with the arrays train, validation and test."""
    try:
        import h5py
    except ImportError as error:
        raise InputError(f"{path} needs the library h5py: pip install 'ffjord[hdf5]'.") from error
    try:
        with h5py.File(path, "r") as file:
            return Split(*(np.asarray(file[name], np.float32) for name in Split._fields))
    except (OSError, KeyError) as error:
        raise InputError(f"{path} is not MAF's file ({error}); download it again.") from error


def patches(files: list[Path], n: int, seed: int) -> np.ndarray:
    """n patches, in random order, of shape (n, 63)."""
    rng = np.random.default_rng([300, seed])
    counts = np.bincount(rng.integers(len(files), size=n), minlength=len(files)).tolist()
    rows = np.concatenate([_of_image(file, count, rng) for file, count in zip(files, counts, strict=True)])
    return rows[rng.permutation(n)]


def _of_image(file: Path, n: int, rng: np.random.Generator) -> np.ndarray:
    try:
        with Image.open(file) as image:
            grey = np.asarray(image.convert("L"), np.float32)
    except (UnidentifiedImageError, OSError) as error:
        raise InputError(f"{file} is not a picture that can be read ({error}).") from error
    if min(grey.shape) < _SIDE:
        raise InputError(f"{file} has {grey.shape[0]} × {grey.shape[1]} pixels; a patch needs {_SIDE} × {_SIDE}.")
    windows = np.lib.stride_tricks.sliding_window_view(grey, (_SIDE, _SIDE))
    rows = rng.integers(windows.shape[0], size=n)
    columns = rng.integers(windows.shape[1], size=n)
    patch = windows[rows, columns].reshape(n, _SIDE**2)
    patch = (patch + rng.random(patch.shape, np.float32)) / 256
    return (patch - patch.mean(axis=1, keepdims=True))[:, :-1]
