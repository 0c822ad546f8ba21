"""GAS: sixteen sensors in a mixture of ethylene and carbon monoxide, as MAF prepared it.

Time and the two concentrations are left out. While two columns correlate by more than 0.98, the first that does so with
another is left out; eight are left. Columns are standardised over all rows. The last tenth is for testing, the last
tenth of the rest for validation.

MAF's file holds a random quarter of the publisher's rows, in random order. From the publisher's file a quarter is drawn
here: other rows than MAF's, so that figures compare with published ones nearly.
"""

from pathlib import Path

import numpy as np

from ffjord.data.lines import first_line, numbers, opened, read_rows
from ffjord.data.pickles import read_frame
from ffjord.data.split import Split, from_the_end, standardized
from ffjord.errors import InputError

_NOT_SENSORS = ("Time", "Meth", "Eth")
"""MAF's names; "Meth" is the concentration of carbon monoxide."""
_COLUMNS = 19
_LIMIT = 0.98


def from_maf(path: Path) -> Split:
    """MAF's ethylene_CO.pickle, a pandas.DataFrame."""
    columns = read_frame(path)
    if missing := [name for name in _NOT_SENSORS if name not in columns]:
        raise InputError(f"{path} must have the columns {', '.join(missing)}; it has {', '.join(columns)}.")
    sensors = [column for name, column in columns.items() if name not in _NOT_SENSORS]
    return prepared(np.stack(sensors, axis=1).astype(np.float64))


def from_publisher(path: Path) -> Split:
    """The UCI repository's ethylene_CO.txt: a header, then time, two concentrations and sixteen sensors a line."""
    with opened(path) as file:
        header = first_line(file)
        if not header.startswith("Time"):
            raise InputError(f"{path}: the first line must be a header that begins with 'Time'; got {header[:80]!r}.")
        rows = read_rows(file, path, numbers(_COLUMNS))[:, len(_NOT_SENSORS) :]
    chosen = np.random.RandomState(42).permutation(len(rows))[: round(0.25 * len(rows))]
    return prepared(rows[chosen])


def prepared(rows: np.ndarray) -> Split:
    """MAF's recipe, from rows of sensors."""
    rows = _uncorrelated(rows)
    return standardized(from_the_end(rows), rows, ddof=1)


def _uncorrelated(rows: np.ndarray) -> np.ndarray:
    correlated = np.corrcoef(rows, rowvar=False) > _LIMIT
    kept = np.arange(rows.shape[1])
    while (alike := correlated[np.ix_(kept, kept)].sum(axis=1) > 1).any():
        kept = np.delete(kept, np.argmax(alike))
    return rows[:, kept]
