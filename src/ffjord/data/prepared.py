"""Rows that somebody has prepared before: train.npy, val.npy and test.npy beside one another."""

from pathlib import Path

import numpy as np

from ffjord.data.npy import read_npy
from ffjord.data.split import Split
from ffjord.errors import InputError


def load(path: Path) -> Split:
    """The three files, of which `path` is test.npy. Without train.npy there are no training rows: a model can be
    tested then, not trained."""
    test, train = _array(path), path.with_name("train.npy")
    return Split(_array(train) if train.exists() else test[:0], _array(path.with_name("val.npy")), test)


def _array(path: Path) -> np.ndarray:
    if not path.exists():
        raise InputError(f"{path} is missing; prepared rows come as train.npy, val.npy and test.npy.")
    return read_npy(path).astype(np.float32)
