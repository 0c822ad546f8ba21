"""What can be said against the columns of a table, cell by cell; each complaint names the place of the first case."""

import re

import numpy as np

from ffjord.errors import InputError
from ffjord.table.base import AbstractTable, Column, Content

_DECIMAL_COMMA = re.compile(r"\s*[-+]?\d+,\d+([eE][-+]?\d+)?\s*")


def left_out(
    table: AbstractTable,
    content: Content,
    found: dict[int, Column],
    *,
    must: set[int],
    may_be_constant: set[int] | set[int | None],
) -> dict[int, str]:
    """Columns that have no use, with the reason; one that `must` be used is an error."""
    reasons = {column: _no_use(read, column in may_be_constant) for column, read in found.items()}
    reasons = {column: reason for column, reason in reasons.items() if reason}
    for column, reason in reasons.items():
        _check_decimal_point(table, content, column, found[column])
        if column in must:
            what = f"{table.path}: {table.title(column)} cannot be used: it {reason}"
            raise InputError(f"{what}; correct it or leave it out.")
    return reasons


def _no_use(read: Column, may_be_constant: bool) -> str | None:
    """Why a column has no use."""
    numbers = read.values[~np.isnan(read.values)]
    if not len(numbers):
        return f"holds text, such as {_short(read.first_word[1])}" if read.first_word else "is empty"
    constant = not read.words and numbers.min() == numbers.max()
    return f"has one value only, {numbers[0]:g}" if constant and not may_be_constant else None


def _check_decimal_point(table: AbstractTable, content: Content, column: int, read: Column) -> None:
    if read.first_word and _DECIMAL_COMMA.fullmatch(read.first_word[1]):
        place = table.place(content.places[read.first_word[0]], column)
        raise InputError(f"{place}: {_short(read.first_word[1])} has a comma; write numbers with a decimal point.")


def check_numbers(table: AbstractTable, content: Content, found: dict[int, Column]) -> None:
    """Refuses columns of numbers with text among them, and infinite numbers."""
    for column, read in found.items():
        if read.first_word:
            row, word = read.first_word
            _check_decimal_point(table, content, column, read)
            place, count = table.place(content.places[row], column), np.sum(~np.isnan(read.values))
            header = " If this line is a header, give its columns names that are not numbers." if row == 0 else ""
            raise InputError(
                f"{place}: {_short(word)} is not a number, but {count:,} other cells of the column are "
                f"({read.words:,} are not). Correct it, leave it empty if it is a missing value, or leave the column "
                f"out.{header}"
            )
        infinite = np.flatnonzero(np.isinf(read.values))
        if infinite.size:
            place = table.place(content.places[int(infinite[0])], column)
            raise InputError(
                f"{place} holds an infinite number, or one too large for float64 ({infinite.size:,} in the column); "
                "correct it or leave its row out."
            )


def rows_kept(
    table: AbstractTable, content: Content, found: dict[int, Column], drop: bool | None
) -> tuple[np.ndarray, list[str]]:
    """Which rows have a number in every column; without `drop`, one that has not is an error. None: no such option."""
    missing = {column: np.isnan(read.values) for column, read in found.items()}
    counts = {column: int(cells.sum()) for column, cells in missing.items() if cells.any()}
    keep = ~np.logical_or.reduce([*missing.values()]) if missing else np.ones(len(content.places), bool)
    if not counts:
        return keep, []
    by_column = ", ".join(f"{count:,} in {table.title(column)}" for column, count in counts.items())
    rows, total = int(np.sum(~keep)), len(keep)
    if not drop:
        found_at = f"missing values ({by_column}), the first in {table.unit} {content.places[np.argmin(keep)]}"
        rows_with = f"the {rows:,} of {total:,} rows with any of them"
        advice = f"leave out {rows_with}, or fill them in."
        if drop is not None:
            advice = f"`--missing drop` leaves out {rows_with}; or fill them in, or leave the columns out."
        raise InputError(f"{table.path} has {found_at}; {advice}")
    return keep, [f"{rows:,} of {total:,} rows are left out, because they have missing values ({by_column})."]


def _short(word: str) -> str:
    return repr(word if len(word) <= 40 else word[:40] + "…")
