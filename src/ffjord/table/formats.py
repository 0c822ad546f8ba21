"""Which reader a file needs."""

from pathlib import Path

from ffjord.table.arrays import NpyTable, NpzTable
from ffjord.table.base import AbstractTable, check_file
from ffjord.table.parquet import ParquetTable
from ffjord.table.text import TextTable

_READERS: dict[str, type[AbstractTable]] = {
    ".csv": TextTable,
    ".tsv": TextTable,
    ".txt": TextTable,
    ".npy": NpyTable,
    ".npz": NpzTable,
    ".parquet": ParquetTable,
}

SUFFIXES = tuple(_READERS)


def open_table(path: Path) -> AbstractTable:
    """Opens a table file by the ending of its name, far enough to know its columns."""
    check_file(path, SUFFIXES)
    return _READERS[path.suffix.lower()](path)  # pyright: ignore[reportCallIssue]
