"""The paper's tables in the files of their publishers: what there is, and where sets are looked for. Free of JAX."""

import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import platformdirs

from ffjord.data.split import Split
from ffjord.errors import InputError

VARIABLE = "FFJORD_DATA"
"""The environment variable that names the data directory."""


@dataclass(frozen=True)
class Form:
    """A form in which a set is published."""

    file: str
    """File, or folder, within the set's folder."""
    reader: str
    """The function that reads it, as "power.from_maf" in this package."""
    about: str
    tolerance: float = 0.05
    """How far the test log-likelihood of one Gaussian may be from that of MAF's rows."""
    folders: tuple[str, ...] = ()
    """Folders in which it is looked for besides that of the set's name; the first is where it is wanted."""
    note: str = ""
    """How it differs from what the literature has, if it does."""

    def place(self, name: str) -> str:
        """Where it is wanted, within a data directory."""
        return f"{(*self.folders, name)[0]}/{self.file}"

    def read(self, path: Path, *more: Any) -> Split:
        module, function = self.reader.split(".")
        return getattr(import_module(f"ffjord.data.{module}"), function)(path, *more)


@dataclass(frozen=True)
class TableSet:
    """A table of the paper."""

    name: str
    about: str
    dim: int
    rows: tuple[int, int, int]
    """For training, validation and testing."""
    gaussian: float
    """Test log-likelihood in nats of one Gaussian fitted to the training rows, in MAF's paper."""
    forms: tuple[Form, ...]


_PREPARED = Form("test.npy", "prepared.load", "train.npy, val.npy, test.npy: prepared rows")

SETS: dict[str, TableSet] = {
    table.name: table
    for table in (
        TableSet(
            "power",
            "a household's use of electric power by the minute",
            6,
            (1_659_917, 184_435, 204_928),
            -7.74,
            (
                Form("data.npy", "power.from_maf", "MAF's"),
                Form("household_power_consumption.zip", "power.from_publisher", "the UCI repository's"),
                Form("household_power_consumption.txt", "power.from_publisher", "the same, unpacked"),
                _PREPARED,
            ),
        ),
        TableSet(
            "gas",
            "sensors in a mixture of ethylene and carbon monoxide",
            8,
            (852_174, 94_685, 105_206),
            -3.58,
            (
                Form("ethylene_CO.pickle", "gas.from_maf", "MAF's"),
                Form("ethylene_CO.txt", "gas.from_publisher", "the UCI repository's, of which a quarter is drawn", 0.2),
                _PREPARED,
            ),
        ),
        TableSet(
            "hepmass",
            "collisions of particles in which a new one appears",
            21,
            (315_123, 35_013, 174_987),
            -27.93,
            (
                Form("1000_train.csv", "hepmass.load", "MAF's, or the UCI repository's; with 1000_test.csv"),
                Form("1000_train.csv.gz", "hepmass.load", "the same, packed; with 1000_test.csv.gz"),
                _PREPARED,
            ),
        ),
        TableSet(
            "miniboone",
            "electron neutrinos in a detector",
            43,
            (29_556, 3_284, 3_648),
            -37.24,
            (
                Form("data.npy", "miniboone.from_maf", "MAF's"),
                Form("MiniBooNE_PID.txt", "miniboone.from_publisher", "the UCI repository's"),
                _PREPARED,
            ),
        ),
        TableSet(
            "bsds300",
            "8 × 8 patches of natural images",
            63,
            (1_000_000, 50_000, 250_000),
            96.67,
            (
                Form("BSDS300.hdf5", "bsds300.from_maf", "MAF's"),
                Form("images", "bsds300.from_images", "Berkeley's images, from which patches are cut", 0.3),
                _PREPARED,
            ),
        ),
    )
}


class Place(NamedTuple):
    """A directory in which sets are looked for, and who named it."""

    path: Path
    named_by: str


def places(data_dir: str | Path | None = None) -> list[Place]:
    """Where sets are looked for, in this order."""
    found = [Place(Path(data_dir), "--data-dir")] if data_dir is not None else []
    if os.environ.get(VARIABLE):
        found.append(Place(Path(os.environ[VARIABLE]), VARIABLE))
    return [*found, Place(platformdirs.user_cache_path("ffjord") / "data", "the cache")]


def found_forms(
    name: str, data_dir: str | Path | None = None, forms: tuple[Form, ...] | None = None
) -> Iterator[tuple[Form, Path]]:
    """The forms of a set that are there, the preferred one first; of a table, or of those that are given."""
    forms = SETS[name].forms if forms is None else forms
    for place in places(data_dir):
        for form in forms:
            paths = (folder / form.file for folder in _folders(place.path, (*form.folders, name)))
            yield from ((form, path) for path in paths if path.exists())


def first_form(name: str, forms: tuple[Form, ...], data_dir: str | Path | None = None) -> tuple[Form, Path]:
    """The preferred form that is there; an error tells what was looked for, and where."""
    for found in found_forms(name, data_dir, forms):
        return found
    looked = "; ".join(f"{place.path} ({place.named_by})" for place in places(data_dir))
    wanted = ", ".join(form.place(name) for form in forms)
    raise InputError(
        f"{name}: none of its files ({wanted}) was found. Looked in {looked}. "
        f"`ffjord data get {name}` downloads it; --data-dir names another place."
    )


@functools.lru_cache(maxsize=1)
def load(name: str, data_dir: str | None = None) -> Split:
    """The set in the first form that is there; refuses one that has not the rows and columns it should have."""
    form, path = first_form(name, SETS[name].forms, data_dir)
    return checked(name, form.read(path), path)


def checked(name: str, split: Split, path: Path) -> Split:
    """The rows, if they are as many and as wide as they should be and all are numbers; those for training may miss."""
    about = SETS[name]
    counts = about.rows if len(split.train) else (0, *about.rows[1:])
    for part, rows, count in zip(Split._fields, split, counts, strict=True):
        if rows.shape != (count, about.dim):
            raise InputError(
                f"{path}: the {part} rows of {name} must have the shape {(count, about.dim)}; got {rows.shape}. "
                "The file is incomplete, or another version of the set."
            )
        if not np.isfinite(rows).all():
            raise InputError(f"{path}: the {part} rows of {name} hold NaN or infinity; the file is damaged.")
    return split


def _folders(place: Path, names: tuple[str, ...]) -> list[Path]:
    """Folders of these names, in their order, whatever the case of their letters (MAF writes BSDS300)."""
    if not place.is_dir():
        return []
    there = sorted(path for path in place.iterdir() if path.name.lower() in names and path.is_dir())
    return sorted(there, key=lambda path: names.index(path.name.lower()))
