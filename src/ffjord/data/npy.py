"""Rows of numbers in a .npy file."""

from pathlib import Path

import numpy as np

from ffjord.errors import InputError


def read_npy(path: Path, columns: int | None = None) -> np.ndarray:
    """A table of real numbers, if wanted of so many columns; anything else is an InputError."""
    try:
        rows = np.load(path, allow_pickle=False)
    except Exception as error:  # whatever NumPy meets in a damaged header: TokenError, OverflowError, …
        raise InputError(f"{path} cannot be read as a .npy file of numbers ({error}); get it again.") from error
    if not isinstance(rows, np.ndarray) or rows.dtype.kind not in "fiu" or rows.ndim != 2:
        found = f"{rows.dtype} of shape {rows.shape}" if isinstance(rows, np.ndarray) else type(rows).__name__
        raise InputError(f"{path} must hold a table of numbers; it holds {found}.")
    if columns is not None and rows.shape[1] != columns:
        raise InputError(f"{path} must hold rows of {columns} numbers; it holds an array of shape {rows.shape}.")
    return rows
