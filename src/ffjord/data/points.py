"""Rows of numbers in a user's files, read and written block by block, so that their size does not matter."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ffjord.arrays import atomic_file
from ffjord.errors import InputError

_VALUES = 2**17  # numbers of a .npy file read at once
_CHARACTERS = 2**19  # characters of a .csv file read at once


class PointsFile:
    """A .csv (header allowed) or .npy file of points, checked from end to end when it is opened.

    Every row must have `columns` numbers that are finite in `dtype`; an error names the first line or row that has not.
    `progress` is told how many rows have been checked, and None, or how many there are in all.
    """

    def __init__(
        self,
        path: Path,
        *,
        columns: int,
        dtype: Any = np.float32,
        progress: Callable[[int, int | None], None] | None = None,
    ):
        self.path, self.columns, self.dtype = path, columns, np.dtype(dtype)
        if not os.path.isfile(path):  # also for names that no file can have
            raise InputError(f"{path}: there is no such file.")
        if path.suffix.lower() not in (".csv", ".npy"):
            raise InputError(f"{path}: the name must end in .csv or .npy.")
        self._read = self._csv if path.suffix.lower() == ".csv" else self._npy
        self._rows = 0
        for block in self._read():
            self._rows += len(block)
            if progress is not None:
                progress(self._rows, None)
        if not self._rows:
            raise InputError(f"{path} has no rows.")

    def __len__(self) -> int:
        return self._rows

    def blocks(self) -> Iterator[np.ndarray]:
        """All rows in their order, as arrays of shape (any, columns) and type `dtype`."""
        rows = 0
        for block in self._read():
            rows += len(block)
            if rows > self._rows:
                break
            yield block
        if rows != self._rows:
            raise InputError(f"{self.path} was changed while it was read; try again.")

    def _npy(self) -> Iterator[np.ndarray]:
        rows, size = len(self._mapped()), max(1, _VALUES // self.columns)
        for start in range(0, rows, size):
            part = self._mapped()[start : start + size]  # mapped anew, so that pages read before are given back
            block, sound = self._cast(part)
            if not sound.all():
                raise InputError(f"{self.path}: row {start + int(np.argmin(sound)) + 1} {self._unsound()}")
            yield block

    def _mapped(self) -> np.ndarray:
        try:
            points = np.load(self.path, mmap_mode="r", allow_pickle=False)
        except Exception as error:  # whatever NumPy meets in a damaged header: TokenError, OverflowError, …
            raise InputError(f"{self.path} cannot be read as a .npy file ({error}).") from error
        if not isinstance(points, np.ndarray) or points.dtype.kind not in "fiub":
            found = getattr(points, "dtype", type(points).__name__)
            raise InputError(f"{self.path} must hold an array of real numbers; got {found}.")
        rows = np.atleast_2d(points)
        if rows.ndim != 2 or rows.shape[1] != self.columns:
            raise InputError(f"{self.path}: expected {self.columns} column(s) a row; got the shape {points.shape}.")
        return rows

    def _csv(self) -> Iterator[np.ndarray]:
        number, begun = 1, False
        try:
            with open(self.path, encoding="utf-8-sig") as file:
                while lines := file.readlines(_CHARACTERS):
                    if not begun:
                        begun = _without_header(lines)
                    yield self._numbers(lines, number)
                    number += len(lines)
        except UnicodeDecodeError as error:
            raise InputError(f"{self.path} is not a text file in UTF-8 ({error}).") from error

    def _numbers(self, lines: list[str], first: int) -> np.ndarray:
        """The rows of some lines: at once, or one by one if that fails, to find the line to complain of."""
        filled = [line for line in lines if line.strip()]
        if not filled:
            return np.empty((0, self.columns), self.dtype)
        try:
            rows = np.loadtxt(filled, delimiter=",", comments=None, ndmin=2)
        except ValueError:
            rows = np.empty((0, 0))
        numbers = lambda: [number for number, line in enumerate(lines, first) if line.strip()]
        if rows.shape != (len(filled), self.columns):
            rows = np.array([*map(self._row, numbers(), filled)])
        block, sound = self._cast(rows)
        if not sound.all():
            raise InputError(f"{self.path}, line {numbers()[np.argmin(sound)]} {self._unsound()}")
        return block

    def _row(self, number: int, line: str) -> list[float | None]:
        cells = line.strip("\r\n").split(",")
        if len(cells) != self.columns:
            raise InputError(f"{self.path}, line {number}: expected {self.columns} column(s); got {len(cells)}.")
        row = [*map(_number, cells)]
        if None in row:
            raise InputError(f"{self.path}, line {number}: {cells[row.index(None)][:40]!r} is not a number.")
        return row

    def _cast(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A copy of type `dtype`, and which of its rows are finite."""
        with np.errstate(over="ignore", invalid="ignore"):  # a damaged long double is not even a NaN
            block = np.array(rows, self.dtype)
        return block, np.asarray(np.isfinite(block).all(axis=1))

    def _unsound(self) -> str:
        return f"holds NaN, an infinity or a number too large for {self.dtype}; correct it or leave it out."


def write_rows(
    path: Path, blocks: Iterable[np.ndarray], *, names: Sequence[str], shape: tuple[int, ...], dtype: Any
) -> None:
    """Writes blocks that together have the given shape to a .npy or .csv file, which appears whole or not at all."""
    with atomic_file(path) as file:
        if path.suffix.lower() == ".npy":
            header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            for block in blocks:
                file.write(np.ascontiguousarray(block, dtype).tobytes())
        else:
            file.write((",".join(map(_quoted, names)) + "\n").encode())
            line = ",".join([f"%.{15 if np.dtype(dtype) == np.float64 else 9}g"] * len(names)) + "\n"
            for block in blocks:
                file.write((line * len(block) % tuple(block.ravel().tolist())).encode())


def _quoted(name: str) -> str:
    """A name as a cell of a .csv file: in quotes if it has a comma, a quote or a line's end in it."""
    special = any(mark in name for mark in ',"\r\n') or name != name.strip()
    return '"' + name.replace('"', '""') + '"' if special else name


def _without_header(lines: list[str]) -> bool:
    """Blanks the first line that has text if it is a header, one without any number; whether there was such a line."""
    for i, line in enumerate(lines):
        if line.strip():
            cells = line.split(",")
            if any(cell.strip() for cell in cells) and all(_number(cell) is None for cell in cells):
                lines[i] = ""
            return True
    return False


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
