"""Tables as text: the delimiter and the header are found in the first lines, a bad line is named."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from ffjord.errors import InputError
from ffjord.table.base import AbstractTable, Column, Content, check_names, default_names

MISSING = frozenset(["", "na", "n/a", "#n/a", "<na>", "nan", "null", "none", "?"])
"""What a cell without a value looks like, in small letters."""

_DELIMITERS = ("\t", ";", "|", ",", " ")
"""In the order in which they are believed: a table with commas has no tabs in every line, but one with tabs may have
commas in every line."""
_HEAD = 2**20  # bytes looked at to find delimiter and header
_LINES = 50  # of which at most so many lines
_BLOCK = 10_000  # rows turned into numbers at once


class TextTable(AbstractTable):
    """A .csv file, in UTF-8, with a decimal point. Its first line is a header if there is text but no number in it.

    Cells are separated by a comma, semicolon, tab, bar, or spaces, and may be quoted by ". Empty lines don't count.
    """

    unit = "line"

    def __init__(self, path: Path):
        self.path = path
        head, self._size = self._head(), path.stat().st_size
        lines = [line for line in head.splitlines() if line.strip()][:_LINES]
        self._delimiter = _delimiter(lines)
        self._line_bytes = (len("\n".join(lines).encode()) + 1) / max(1, len(lines))
        self._header_line, first = next(self._records(io.StringIO(head, newline="")), (0, []))
        if not first:
            raise InputError(f"{path} is empty: it has no line with text.")
        self.named = _is_header(first)
        names = [cell.strip() for cell in first]
        self.names = check_names(path, names) if self.named else default_names(len(first))

    def rows_about(self) -> int:
        return round(self._size / self._line_bytes)

    def read_columns(self, columns: Sequence[int]) -> Content:
        parts: list[list[Column]] = []
        places = [np.empty(0, np.int64)]
        with self.path.open(encoding="utf-8-sig", newline="") as file:
            for block in self._blocks(file):
                places.append(np.array([line for line, _ in block]))
                cells = [*zip(*(cells for _, cells in block), strict=True)]
                parts.append([_numbers(cells[column]) for column in columns])
        joined = [_joined(column) for column in zip(*parts, strict=True)]
        return Content(joined, np.concatenate(places))

    def _blocks(self, file: Iterable[str]) -> Iterator[list[tuple[int, list[str]]]]:
        """Rows with the numbers of their lines, some at a time, each with as many cells as there are columns."""
        block = []
        for line, cells in self._records(file):
            if len(cells) != len(self.names):
                raise InputError(
                    f"{self.path}, line {line}: expected {len(self.names)} cells, as in line {self._header_line}, "
                    f"separated by {_spoken(self._delimiter)}; got {len(cells)}."
                )
            if self.named and line == self._header_line:
                continue
            block.append((line, cells))
            if len(block) == _BLOCK:
                yield block
                block = []
        if block:
            yield block

    def _records(self, file: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
        """The cells of each line that is not empty, with its number."""
        reader, line = csv.reader(_plain(file, self._delimiter), delimiter=self._delimiter, skipinitialspace=True), 1
        try:
            for cells in reader:
                if len(cells) > 1 or (cells and cells[0].strip()):
                    yield line, cells
                line = reader.line_num + 1  # a quoted cell may go on over several lines
        except csv.Error as error:
            raise InputError(f"{self.path}, line {line} cannot be read ({error}); is a quote left open?") from error
        except UnicodeDecodeError as error:
            raise self._not_utf8() from error

    def _head(self) -> str:
        """The first lines; the last of them is left away if it may be cut off."""
        try:
            with self.path.open(encoding="utf-8-sig", newline="") as file:
                head = file.read(_HEAD)
        except UnicodeDecodeError as error:
            raise self._not_utf8() from error
        if len(head) < _HEAD:
            return head
        whole = head[: max(head.rfind("\n"), head.rfind("\r")) + 1]
        if not whole:
            raise InputError(f"{self.path}: line 1 has more than {_HEAD:,} characters; that is not a table.")
        return whole

    def _not_utf8(self) -> InputError:
        with self.path.open("rb") as file:
            bad = next((i for i, line in enumerate(file, 1) if not _is_utf8(line)), 1)
        return InputError(f"{self.path}, line {bad} is not text in UTF-8; save the file in that encoding.")


def number(cell: str) -> float | None:
    """The number in a cell; NaN if it is missing, None if it is text."""
    text = cell.strip()
    if text.lower() in MISSING:
        return float("nan")
    try:
        return float(text)
    except ValueError:
        return None


def _numbers(cells: Sequence[str]) -> Column:
    """A block of a column: at once, or one by one if that fails."""
    try:
        return Column(np.array([*map(float, cells)]))
    except ValueError:
        found = [*map(number, cells)]
    words = [i for i, value in enumerate(found) if value is None]
    values = np.array([np.nan if value is None else value for value in found])
    return Column(values, len(words), (words[0], cells[words[0]]) if words else None)


def _joined(parts: Sequence[Column]) -> Column:
    starts = np.cumsum([0, *(len(part.values) for part in parts)]).tolist()
    pairs = zip(starts, parts, strict=False)
    first = next(((start + part.first_word[0], part.first_word[1]) for start, part in pairs if part.first_word), None)
    return Column(np.concatenate([part.values for part in parts]), sum(part.words for part in parts), first)


def _delimiter(lines: list[str]) -> str:
    """The one that gives most lines the same number of cells, more than one."""

    def agreement(delimiter: str) -> int:
        try:
            counts = Counter(len(cells) for cells in csv.reader(_plain(lines, delimiter), delimiter=delimiter))
        except csv.Error:  # the reader of the whole file will say where
            return 0
        return max((lines for cells, lines in counts.items() if cells > 1), default=0)

    best = max(_DELIMITERS, key=agreement)  # of equals the first
    return best if agreement(best) else ","


def _plain(lines: Iterable[str], delimiter: str) -> Iterator[str]:
    """Lines without the # of a header as NumPy writes it, and with single spaces if these separate cells."""
    begun = False
    for line in lines:
        if not begun and line.strip():
            begun, line = True, line.lstrip().removeprefix("#")
        yield " ".join(line.split()) if delimiter == " " else line


def _is_header(cells: Sequence[str]) -> bool:
    """Whether there is text, and no number."""
    values = [number(cell) for cell in cells]
    return None in values and all(value is None or value != value for value in values)


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _spoken(delimiter: str) -> str:
    return {"\t": "tabs", ";": "semicolons", "|": "bars", ",": "commas", " ": "spaces"}[delimiter]
