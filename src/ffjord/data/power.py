"""POWER: what a household used in every minute of four years, as MAF prepared it.

From the publisher's text: rows with a missing value ('?') are left out; the columns are global active power, voltage,
three sub-meters and the minute of the day. The rows are shuffled, and spread evenly over the unit to which they were
rounded (0.001 kW, 0.01 V, 1 Wh); the minute is not. The last tenth is for testing, the last tenth of the rest for
validation. Columns are standardised over training and validation rows.
"""

from pathlib import Path

import numpy as np

from ffjord.data.lines import first_line, opened, read_rows
from ffjord.data.npy import read_npy
from ffjord.data.split import Split, from_the_end, standardized
from ffjord.errors import InputError

_TEXT = "household_power_consumption.txt"
_HEADER = (
    "Date;Time;Global_active_power;Global_reactive_power;Voltage;Global_intensity;"
    "Sub_metering_1;Sub_metering_2;Sub_metering_3"
)
_KEPT = [0, 2, 4, 5, 6, 7]
"""Without reactive power and intensity."""


def from_publisher(path: Path) -> Split:
    """The zip archive of the UCI repository, or the text file in it."""
    with opened(path, _TEXT) as file:
        header = first_line(file)
        if header != _HEADER:
            raise InputError(f"{path}: the first line must be {_HEADER!r}; got {header[:80]!r}.")
        return prepared(read_rows(file, path, _parsed))


def from_maf(path: Path) -> Split:
    """MAF's data.npy: the eight numbers of every row, not yet shuffled."""
    return prepared(read_npy(path, columns=8))


def prepared(rows: np.ndarray) -> Split:
    """MAF's recipe, from rows of active power, reactive power, voltage, intensity, three sub-meters and the minute."""
    rng, n = np.random.RandomState(42), len(rows)
    order = np.arange(n)
    rng.shuffle(order)
    rows = np.asarray(rows, np.float64)[order][:, _KEPT]
    rows[:, 1] += 0.01 * rng.rand(n)  # voltage before power: the order in which MAF draws
    rows[:, 0] += 0.001 * rng.rand(n)
    rows[:, 2:5] += rng.rand(n, 3)
    split = from_the_end(rows)
    return standardized(split, np.concatenate([split.train, split.validation]))


def _parsed(lines: list[bytes]) -> np.ndarray:
    """The rows without a missing value: seven numbers and the minute of the day."""
    lines = [line for line in lines if b"?" not in line and line.strip()]
    if not lines:
        return np.empty((0, 8))
    minutes = lambda text: 60.0 * int(text[:2]) + int(text[3:5])
    return np.loadtxt(
        lines, delimiter=";", usecols=(2, 3, 4, 5, 6, 7, 8, 1), converters={1: minutes}, ndmin=2, encoding="ascii"
    )
