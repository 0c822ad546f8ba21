"""What every kind of table file has in common: columns with names and numbers, read only when they are asked for."""

import abc
import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ffjord import memory
from ffjord.errors import InputError

_BYTES = 24
"""Memory a number takes on its way: in blocks while the file is read, in one array, and standardised."""


class Column(NamedTuple):
    """One column as it was read."""

    values: np.ndarray
    """float64; NaN where a cell is missing or is no number."""
    words: int = 0
    """How many cells are neither numbers nor missing."""
    first_word: tuple[int, str] | None = None
    """Row (from 0) and text of the first of them."""


class Content(NamedTuple):
    """Columns as they were read, and where each of their rows is in the file."""

    columns: list[Column]
    places: np.ndarray
    """Numbers of the lines, or of the rows, from 1."""


class AbstractTable(abc.ABC):
    """A file with a table, opened far enough to know its columns. Columns are numbered from 0 here, from 1 for users.

    `names` are those in the file, or x1, x2, … where `named` is false. `unit` is what a row is called: line or row.
    """

    path: Path
    names: tuple[str, ...]
    named: bool
    unit: str = "row"

    @abc.abstractmethod
    def rows_about(self) -> int:
        """How many rows there are, as far as that can be said without reading them."""

    @abc.abstractmethod
    def read_columns(self, columns: Sequence[int]) -> Content:
        """The columns with these numbers, whatever is in them."""

    def read(self, columns: Sequence[int]) -> Content:
        """Like `read_columns`; refuses before it reads if there is too little memory, and a table without rows."""
        rows, count = self.rows_about(), len(columns)
        memory.check_room(
            _BYTES * rows * count,
            f"{self.path}: about {rows:,} rows of {count} columns",
            "use fewer: --columns NAMES, or a part of the rows.",
        )
        content = self.read_columns(columns)
        if not len(content.places):
            raise InputError(f"{self.path} has no rows of numbers below its names.")
        return content

    def title(self, column: int) -> str:
        """How messages call a column."""
        return f"column {self.names[column]!r}" if self.named else f"column {column + 1}"

    def place(self, place: int | np.integer, column: int | None = None) -> str:
        """How messages say where something is."""
        return f"{self.path}, {self.unit} {place}" + ("" if column is None else f", {self.title(column)}")

    def find(self, words: Sequence[str], option: str) -> list[int]:
        """The columns that a user's words name: by name, or by number from 1. A word twice is an error."""
        found = [self._find(word, option) for word in words]
        for column in found:
            if found.count(column) > 1:
                raise InputError(f"{option} names {self.title(column)} of {self.path} twice; name it once.")
        return found

    def _find(self, word: str, option: str) -> int:
        if word in self.names:
            return self.names.index(word)
        if word.isdecimal() and 1 <= int(word) <= len(self.names):
            return int(word) - 1
        near = difflib.get_close_matches(word, self.names, n=3, cutoff=0.4)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        there = f"{', '.join(self.names[:20])}{', …' if len(self.names) > 20 else ''}, or by number 1 … "
        raise InputError(f"{option} {word}: {self.path} has no such column.{hint} There are {there}{len(self.names)}.")


def default_names(count: int) -> tuple[str, ...]:
    """x1, x2, … for columns without names."""
    return tuple(f"x{i + 1}" for i in range(count))


def check_names(path: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Names of columns: an empty one becomes x and its number; two that are the same are an error."""
    full = [name or f"x{i + 1}" for i, name in enumerate(names)]
    for i, name in enumerate(full):
        if name in full[:i]:
            first = full.index(name) + 1
            raise InputError(
                f"{path}: columns {first} and {i + 1} have the same name, {name!r}; give each a name of its own."
            )
    return tuple(full)


def check_file(path: Path, suffixes: Sequence[str]) -> None:
    """Refuses what is not a readable file with one of the endings."""
    try:
        if path.is_dir():
            raise InputError(f"{path} is a directory; name a file in it.")
        if not path.is_file():
            raise InputError(f"{path}: there is no such file.")
        if path.suffix.lower() not in suffixes:
            raise InputError(f"{path}: the name must end in {', '.join(suffixes[:-1])} or {suffixes[-1]}.")
        with path.open("rb") as file:
            if not file.read(1):
                raise InputError(f"{path} is empty.")
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}).") from error
