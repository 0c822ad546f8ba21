"""Tables as NumPy's arrays: one of two dimensions, or named ones of one dimension each."""

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ffjord.errors import InputError
from ffjord.table.base import AbstractTable, Column, Content, check_names, default_names


class NpyTable(AbstractTable):
    """A .npy file with an array of real numbers, (rows, columns), or one column of them. NaN is a missing value."""

    named = False

    def __init__(self, path: Path):
        self.path = path
        self._array = _as_columns(path, _load(path))
        self.names = default_names(self._array.shape[1])

    def rows_about(self) -> int:
        return len(self._array)

    def read_columns(self, columns: Sequence[int]) -> Content:
        return _content([self._array[:, column] for column in columns], len(self._array))


class NpzTable(AbstractTable):
    """A .npz archive with one array of two dimensions, or several of one dimension and the same length: its columns."""

    def __init__(self, path: Path):
        self.path = path
        self._shapes = _shapes(path)
        if not self._shapes:
            raise InputError(f"{path} holds no arrays.")
        several = all(len(shape) == 1 for shape in self._shapes.values())
        self.named = several
        if several:
            self._rows = _common_length(path, self._shapes)
            self.names = check_names(path, [*self._shapes])
        elif len(self._shapes) > 1:
            found = ", ".join(f"{name} {shape}" for name, shape in self._shapes.items())
            raise InputError(
                f"{path} must hold one array of two dimensions, or columns of one dimension each; got {found}."
            )
        else:
            ((name, shape),) = self._shapes.items()
            if len(shape) != 2:
                raise InputError(f"{path}: the array {name!r} must have two dimensions; got the shape {shape}.")
            self._rows, self.names = shape[0], default_names(shape[1])

    def rows_about(self) -> int:
        return self._rows

    def read_columns(self, columns: Sequence[int]) -> Content:
        archive = _load(self.path)
        try:
            with archive:
                if self.named:
                    found = [archive[self.names[column]] for column in columns]
                else:
                    array = archive[next(iter(self._shapes))]
                    found = [array[:, column] for column in columns]
        except Exception as error:  # a damaged archive fails in many ways: BadZipFile, zlib.error, EOFError, …
            raise _damaged(self.path, error) from error
        return _content(found, self._rows)


def real_column(values: np.ndarray) -> Column:
    """An array as a column; one of text, dates or complex numbers has words only."""
    if values.dtype.kind in "fiub":
        with np.errstate(over="ignore"):
            return Column(np.asarray(values, np.float64))
    return Column(np.full(len(values), np.nan), len(values), (0, str(values[0])) if len(values) else None)


def _content(arrays: Sequence[np.ndarray], rows: int) -> Content:
    return Content([*map(real_column, arrays)], np.arange(1, rows + 1))


def _load(path: Path) -> Any:
    try:
        return np.load(path, mmap_mode="r" if path.suffix.lower() == ".npy" else None, allow_pickle=False)
    except Exception as error:  # whatever NumPy meets in a damaged header: TokenError, OverflowError, …
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError(f"{path} cannot be read as {path.suffix.lower()} ({error}).")


def _as_columns(path: Path, array: Any) -> np.ndarray:
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub":
        found = getattr(array, "dtype", type(array).__name__)
        raise InputError(f"{path} must hold an array of real numbers; got {found}.")
    if array.ndim not in (1, 2) or (array.ndim == 2 and not array.shape[1]):
        raise InputError(f"{path} must hold an array of rows and columns; got the shape {array.shape}.")
    return array[:, None] if array.ndim == 1 else array


def _shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays in an archive, from their headers alone."""
    shapes = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                with archive.open(name) as file:
                    version = np.lib.format.read_magic(file)
                    read = np.lib.format.read_array_header_1_0
                    shape, _, _ = (read if version == (1, 0) else np.lib.format.read_array_header_2_0)(file)
                shapes[name.removesuffix(".npy")] = shape
    except Exception as error:  # as above
        raise _damaged(path, error) from error
    return shapes


def _common_length(path: Path, shapes: dict[str, tuple[int, ...]]) -> int:
    (first, (rows,)), *others = shapes.items()
    for name, (length,) in others:
        if length != rows:
            raise InputError(
                f"{path}: columns must have the same length; {first!r} has {rows} rows and {name!r} has {length}."
            )
    return rows
