"""Pictures of black and white pixels that are drawn from grey ones: MNIST's digits, and Omniglot's drawings.

A pixel is 1 with the probability that its grey level states. Which are 1 is part of a set: it does not depend on the
seed of a run, except where training draws pixels anew.
"""

from pathlib import Path

import numpy as np

from ffjord.data.idx import mnist
from ffjord.data.lines import opened
from ffjord.data.split import Split
from ffjord.errors import InputError

_SHAPE = (28, 28, 1)
_PIXELS = 28 * 28
_LINE = 2 * _PIXELS
"""Bytes of a line: digits with a space after each, and the end of the line after the last."""
_SEED = 777
_AGAIN = "The file is damaged or another; get it again."


def binarized(probabilities: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Pixels of 0 and 1, uint8, each 1 with its probability."""
    return (rng.random(probabilities.shape, dtype=np.float32) < probabilities).astype(np.uint8)


def from_text(path: Path, rows: tuple[int, int, int]) -> Split:
    """MNIST as Larochelle binarised it, uint8 (n, 28, 28, 1): `path` has the pictures for training, the files beside
    it those for validation and testing."""
    files = [path.with_name(f"binarized_mnist_{part}.amat") for part in ("train", "valid", "test")]
    missing = ", ".join(file.name for file in files if not file.is_file())
    if missing:
        raise InputError(f"{path} is there, but beside it {missing} is missing; the set comes in three files.")
    return Split(*(_text(file, count) for file, count in zip(files, rows, strict=True)))


def from_mnist(path: Path, rows: tuple[int, int, int]) -> Split:
    """MNIST's bytes v, binarised once with probabilities v/255: uint8 (n, 28, 28, 1)."""
    parts = enumerate(mnist(path, rows))
    return Split(*(binarized(part / np.float32(255), np.random.default_rng([_SEED, i])) for i, part in parts))


def from_arrays(path: Path, rows: tuple[int, int, int], shuffle: int) -> Split:
    """Drawings in the arrays "train" and "test" of an .npz file, uint8 (n, 28, 28), prepared by `split_drawings`."""
    counts = {"train": rows[0] + rows[1], "test": rows[2]}
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in counts if name in arrays}
    except Exception as error:  # whatever NumPy meets in a damaged file: BadZipFile, TokenError, …
        raise InputError(f"{path} cannot be read as an .npz file ({error}). {_AGAIN}") from error
    for name, count in counts.items():
        if name not in found:
            raise InputError(f"{path} has no array {name!r}. {_AGAIN}")
        shape, kind = found[name].shape, found[name].dtype
        if shape != (count, *_SHAPE[:2]) or kind != np.uint8:
            raise InputError(f"{path}: {name!r} must be uint8 {(count, *_SHAPE[:2])}; got {kind} {shape}. {_AGAIN}")
    train, test = (found[name][..., None] / np.float32(255) for name in counts)
    return split_drawings(train, test, rows, shuffle)


def split_drawings(train: np.ndarray, test: np.ndarray, rows: tuple[int, int, int], shuffle: int) -> Split:
    """Probabilities (n, 28, 28, 1), float32, for training, which draws pixels anew from them in every batch; pixels,
    uint8, for validation and testing, drawn once. The seed `shuffle` says which drawings are for validation."""
    order = np.random.RandomState(shuffle).permutation(len(train))  # NumPy's old generator, as in the literature
    validation = binarized(train[order[rows[0] :]], np.random.default_rng([_SEED, 1]))
    return Split(train[order[: rows[0]]], validation, binarized(test, np.random.default_rng([_SEED, 2])))


def _text(path: Path, count: int) -> np.ndarray:
    """The pictures of a text file with one on each line, row by row."""
    with opened(path) as file:
        raw = file.read()
    if len(raw) % _LINE:
        raise InputError(f"{path}: its {len(raw):,} bytes are not a multiple of {_LINE}, a line's. {_AGAIN}")
    lines = np.frombuffer(raw, np.uint8).reshape(-1, _PIXELS, 2)
    digits, after = lines[..., 0] - ord("0"), np.frombuffer(b" " * (_PIXELS - 1) + b"\n", np.uint8)
    wrong = (digits > 1).any(1) | (lines[..., 1] != after).any(1)
    if wrong.any():
        number = np.flatnonzero(wrong)[0] + 1
        raise InputError(f"{path}, line {number}: expected {_PIXELS} digits 0 or 1 with a space between. {_AGAIN}")
    if len(digits) != count:
        raise InputError(f"{path} must have {count:,} lines; got {len(digits):,}. {_AGAIN}")
    return digits.reshape(-1, *_SHAPE)
