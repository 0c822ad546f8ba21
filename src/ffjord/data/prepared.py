"""Rows that somebody has prepared before: train.npy, val.npy and test.npy beside one another."""

from pathlib import Path

import numpy as np

from ffjord.data.split import Split
from ffjord.errors import InputError


def load(path: Path) -> Split:
    """The three files, of which `path` is one."""
    return Split(*(_array(path.with_name(f"{name}.npy")) for name in ("train", "val", "test")))


def _array(path: Path) -> np.ndarray:
    try:
        return np.load(path, allow_pickle=False).astype(np.float32)
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing; prepared rows come as train.npy, val.npy and test.npy.") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a .npy file of numbers ({error}).") from error
