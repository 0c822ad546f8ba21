"""HEPMASS: collisions of particles in which a new one of mass 1000 appears, as MAF prepared it.

Of the publisher's two files the first tenth is used: 700,000 lines of 1000_train.csv, 350,000 of 1000_test.csv; MAF's
files hold these only. Rows of the class 1, signal, are kept, the label is left out, and so is the last column of the
test file, which the training file has not. Columns whose smallest value occurs more than 5 times are left out; 21 are
left. Columns are standardised over the training file. Its last tenth is for validation.
"""

from pathlib import Path

import numpy as np

from ffjord.data.lines import first_line, numbers, opened, read_rows
from ffjord.data.split import Split, standardized, varied
from ffjord.errors import InputError

_TRAIN_LINES, _TEST_LINES = 700_000, 350_000


def load(path: Path) -> Split:
    """1000_train.csv, which is `path`, and 1000_test.csv beside it; each may be packed (.csv.gz)."""
    return prepared(_signal(path, _TRAIN_LINES), _signal(_beside(path), _TEST_LINES), path)


def prepared(train: np.ndarray, test: np.ndarray, path: Path) -> Split:
    """MAF's recipe, from the signal rows of the two files without their labels."""
    if test.shape[1] not in (train.shape[1], train.shape[1] + 1):
        raise InputError(f"{path} has {train.shape[1]} columns and the test file beside it {test.shape[1]}.")
    kept = varied(train)
    train, test = train[:, kept], test[:, : len(kept)][:, kept]
    first = len(train) - int(0.1 * len(train))
    return standardized(Split(train[:first], train[first:], test), train, ddof=1)


def _signal(path: Path, most: int) -> np.ndarray:
    """Rows of the class 1, without it."""
    with opened(path) as file:
        header = first_line(file)
        if "label" not in header.split(",")[0]:
            raise InputError(f"{path}: the first line must be a header with 'label' first; got {header[:80]!r}.")
        rows = read_rows(file, path, numbers(header.count(",") + 1, ","), most=most)
    rows = rows[rows[:, 0] == 1, 1:]
    if not len(rows):
        raise InputError(f"{path} has no rows with the label 1.")
    return rows


def _beside(path: Path) -> Path:
    names = [f"1000_test.csv{suffix}" for suffix in ("", ".gz")]
    for name in names:
        if path.with_name(name).is_file():
            return path.with_name(name)
    raise InputError(f"{path} is there, but neither {names[0]} nor {names[1]} is beside it; HEPMASS needs both.")
