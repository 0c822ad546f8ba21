"""What a fitted table looked like: it turns rows of a user's files into those that a flow knows, and back."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ffjord import columns
from ffjord.errors import InputError
from ffjord.files import write_json
from ffjord.table.base import AbstractTable

FILE = "columns.json"


@dataclass(frozen=True)
class Group:
    """Some columns: names, numbers in the fitted file (from 1), mean and scale of its training rows."""

    names: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()
    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()

    def standardized(self, rows: np.ndarray) -> np.ndarray:
        """z = (x - mean) / scale, float32."""
        return columns.standardized(rows, np.array(self.mean), np.array(self.scale))


@dataclass(frozen=True)
class Layout:
    """The columns that a flow is a density of, those it is given, and how whole numbers are spread.

    log p(x) = log p_flow(z) - Σ_j log scale_j,   z = (x - mean) / scale
    """

    data: Group
    given: Group
    cell: tuple[float, ...]
    """Of each data column: the distance of its grid if it is dequantised, spread over [x, x + cell), or 0."""
    low: tuple[float, ...]
    """Of each data column: a value on that grid."""
    width: int
    """How many columns the fitted file has."""
    named: bool
    """Whether it names them."""

    @property
    def log_scale(self) -> float:
        """What the data's units add to a negative log-likelihood."""
        return float(np.sum(np.log(self.data.scale)))

    def spread(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Rows with uniform noise in the columns that are dequantised."""
        cell = np.array(self.cell)
        return rows + cell * rng.random(rows.shape) if cell.any() else rows

    def restored(self, z: np.ndarray) -> np.ndarray:
        """Rows in the data's own units, float64; dequantised columns are back on their grids."""
        rows, cell, low = np.array(self.data.mean) + np.array(self.data.scale) * z, np.array(self.cell), self.low
        steps = np.where(cell > 0, cell, 1.0)
        return np.where(cell > 0, low + np.floor((rows - low) / steps) * steps, rows)

    def find(self, table: AbstractTable, *, data: bool = True) -> tuple[list[int], list[int]]:
        """Where a table has the data columns and the given ones: by name if both have names, else by position.

        By position, a table as wide as the fitted one has them at the same places; one with just as many columns as
        are needed has them in order, data first. With `data` false only the given ones are looked for.
        """
        groups = (self.data if data else Group(), self.given)
        if table.named and (self.named or set(groups[0].names + groups[1].names) <= set(table.names)):
            return _by_name(groups[0], table), _by_name(groups[1], table)
        first, second = (len(group.names) for group in groups)
        if len(table.names) == self.width:
            return [number - 1 for number in groups[0].numbers], [number - 1 for number in groups[1].numbers]
        if len(table.names) == first + second:
            return [*range(first)], [*range(first, first + second)]
        wanted = ", ".join(groups[0].names + groups[1].names)
        raise InputError(
            f"{table.path} has {len(table.names)} columns without names; expected {first + second} ({wanted}), or "
            f"{self.width} as in the file that was fitted."
        )

    def write(self, folder: Path) -> None:
        write_json(folder / FILE, dataclasses.asdict(self))

    @classmethod
    def read(cls, folder: Path) -> "Layout":
        """What `write` wrote into a run directory."""
        path = folder / FILE
        try:
            values = json.loads(path.read_text())
            groups = {name: Group(**_tuples(values.pop(name))) for name in ("data", "given")}
            return cls(**groups, **_tuples(values))
        except FileNotFoundError as error:
            raise InputError(f"{path} is missing; without it the model's columns are not known.") from error
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise InputError(f"{path} cannot be read ({error!r}).") from error


def _by_name(group: Group, table: AbstractTable) -> list[int]:
    missing = [name for name in group.names if name not in table.names]
    if missing:
        listed, there = ", ".join(map(repr, missing)), ", ".join(map(repr, table.names))
        raise InputError(f"{table.path} has no column {listed}, which the model was fitted with; it has {there}.")
    return [table.names.index(name) for name in group.names]


def _tuples(values: dict) -> dict:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def group(table: AbstractTable, numbers: Sequence[int], mean: np.ndarray, scale: np.ndarray) -> Group:
    """A group of a table's columns."""
    names = tuple(table.names[number] for number in numbers)
    return Group(names, tuple(number + 1 for number in numbers), tuple(mean.tolist()), tuple(scale.tolist()))
