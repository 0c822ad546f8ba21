"""MINIBOONE: electron neutrinos in a detector, as MAF prepared it.

From the publisher's text: the signal rows, which come first, without those (11) whose first number is below -100, which
mark failed measurements. Columns whose smallest value occurs more than 5 times are left out; 43 of 50 are left. The
last tenth is for testing, the last tenth of the rest for validation. Columns are standardised over training and
validation rows.
"""

from pathlib import Path

import numpy as np

from ffjord.data.lines import first_line, numbers, opened, read_rows
from ffjord.data.npy import read_npy
from ffjord.data.split import Split, from_the_end, standardized, varied
from ffjord.errors import InputError

_COLUMNS = 50


def from_maf(path: Path) -> Split:
    """MAF's data.npy: rows and columns are chosen already."""
    return prepared(read_npy(path).astype(np.float64))


def from_publisher(path: Path) -> Split:
    """The UCI repository's MiniBooNE_PID.txt: how many signal and background rows there are, then these."""
    with opened(path) as file:
        counts = first_line(file).split()
        if len(counts) != 2 or not all(count.isdigit() for count in counts):
            raise InputError(
                f"{path}: the first line must hold the numbers of signal and background rows; "
                f"got {' '.join(counts)[:80]!r}."
            )
        rows = read_rows(file, path, numbers(_COLUMNS), most=int(counts[0]))
    if len(rows) != int(counts[0]):
        raise InputError(f"{path} ends after {len(rows)} of its {counts[0]} signal rows; download it again.")
    rows = rows[rows[:, 0] >= -100]
    return prepared(rows[:, varied(rows)])


def prepared(rows: np.ndarray) -> Split:
    """MAF's recipe, from the chosen rows and columns."""
    split = from_the_end(rows)
    return standardized(split, np.concatenate([split.train, split.validation]))
