"""Tables as Parquet, read by pyarrow where that is installed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ffjord.errors import InputError
from ffjord.table.base import AbstractTable, Column, Content, check_names


class ParquetTable(AbstractTable):
    """A .parquet file. Columns of numbers, decimals and truth values are numbers; null is a missing value."""

    named = True

    def __init__(self, path: Path):
        self.path, self._file = path, _open(path)
        self._schema = self._file.schema_arrow
        self.names = check_names(path, self._schema.names)
        if not self.names:
            raise InputError(f"{path} has no columns.")

    def rows_about(self) -> int:
        return self._file.metadata.num_rows

    def read_columns(self, columns: Sequence[int]) -> Content:
        rows = self._file.metadata.num_rows
        return Content([self._column(column, rows) for column in columns], np.arange(1, rows + 1))

    def _column(self, column: int, rows: int) -> Column:
        import pyarrow
        import pyarrow.compute

        kind = self._schema.field(column).type
        if not _is_number(kind):
            return Column(np.full(rows, np.nan), rows, (0, f"a value of type {kind}") if rows else None)
        try:
            values = self._file.read(columns=[self.names[column]]).column(0)
            values = pyarrow.compute.cast(values, pyarrow.float64(), safe=False)
        except (pyarrow.ArrowException, OSError) as error:
            raise InputError(f"{self.path}, {self.title(column)} cannot be read ({error}).") from error
        return Column(np.asarray(values.to_numpy(), np.float64))


def _open(path: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InputError(
            f"{path}: reading .parquet needs pyarrow; install it by `pip install 'ffjord[parquet]'`, or save the table "
            "as .csv."
        ) from error
    try:
        return pyarrow.parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{path} cannot be read as .parquet ({error}).") from error


def _is_number(kind: Any) -> bool:
    from pyarrow import types

    tests = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean)
    return any(test(kind) for test in tests)
