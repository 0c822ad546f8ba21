"""Rows of numbers in a publisher's text file, read in blocks; an error names the line."""

import contextlib
import gzip
import zipfile
import zlib
from collections.abc import Callable, Iterator
from io import BufferedIOBase
from pathlib import Path

import numpy as np

from ffjord.errors import InputError

_BYTES = 2**24
"""Of a text read at once."""

Parse = Callable[[list[bytes]], np.ndarray]
"""From lines to rows of numbers; a ValueError says what is wrong."""


@contextlib.contextmanager
def opened(path: Path, member: str | None = None) -> Iterator[BufferedIOBase]:
    """A text file: as it is, packed (.gz), or `member` of a .zip archive. A damaged one is an InputError."""
    try:
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive, archive.open(member or path.stem) as file:
                yield file  # pyright: ignore[reportReturnType]
        else:
            with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
                yield file
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, OSError) as error:
        raise InputError(f"{path} cannot be read: it is damaged or not the publisher's ({error}).") from error


def first_line(file: BufferedIOBase) -> str:
    """The header."""
    return file.readline(2**16).decode("ascii", "replace").strip()


def read_rows(file: BufferedIOBase, path: Path, parse: Parse, *, most: int | None = None) -> np.ndarray:
    """The rows after the header: all, or those of the first `most` lines."""
    blocks, read = [], 0
    while lines := file.readlines(_BYTES):
        lines = lines[: None if most is None else most - read]
        if not lines:
            break
        blocks.append(_parsed(lines, path, parse, read + 2))
        read += len(lines)
    if not sum(map(len, blocks)):
        raise InputError(f"{path} has no rows.")
    return np.concatenate(blocks)


def numbers(columns: int, delimiter: str | None = None) -> Parse:
    """A parser of lines with so many numbers, with white space between them if there is no `delimiter`."""

    def parse(lines: list[bytes]) -> np.ndarray:
        lines = [line for line in lines if line.strip()]
        if not lines:
            return np.empty((0, columns))
        rows = np.loadtxt(lines, delimiter=delimiter, comments=None, ndmin=2, encoding="ascii")
        if rows.shape[1] != columns:
            raise ValueError(f"expected {columns} numbers; got {rows.shape[1]}")
        return rows

    return parse


def _parsed(lines: list[bytes], path: Path, parse: Parse, first: int) -> np.ndarray:
    """The rows of some lines: at once, or one by one if that fails, to find the line to complain of."""
    try:
        return parse(lines)
    except (ValueError, IndexError):
        for number, line in enumerate(lines, first):
            try:
                parse([line])
            except (ValueError, IndexError) as error:
                what = str(error).split(" at row")[0]
                raise InputError(f"{path}, line {number}: {what}. Download the file again.") from error
        raise
