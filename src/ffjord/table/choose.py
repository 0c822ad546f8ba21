"""Which columns of a table are used, and as what; what cannot be used is named, with the place of the first case."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ffjord.errors import InputError
from ffjord.table import checks
from ffjord.table.base import AbstractTable, Column


class Roles(NamedTuple):
    """Numbers of columns, by what they are for."""

    columns: list[int]
    conditions: list[int]
    weights: int | None = None


@dataclass(frozen=True)
class Chosen:
    """The numbers of a table that are used, all finite, and what a person should know of the others."""

    table: AbstractTable
    roles: Roles
    x: np.ndarray
    """(n, D), float64."""
    conditions: np.ndarray
    """(n, C), float64; C is 0 without conditions."""
    weights: np.ndarray | None
    """(n,), float64, positive; None where all rows count the same."""
    places: np.ndarray
    """Numbers of the lines or rows in the file."""
    notices: list[str] = field(default_factory=list)


def choose(
    table: AbstractTable,
    *,
    columns: Sequence[str] = (),
    condition_on: Sequence[str] = (),
    weights: str | None = None,
    drop_missing: bool = False,
) -> Chosen:
    """Reads the columns that a user named, or all that hold numbers, and checks every cell of them.

    A column nobody named is left out, with a notice, if it has no numbers or one value only; one that was named is
    then an error, and so is a column of numbers and text in any case.
    """
    conditions = table.find(condition_on, "--condition-on")
    weight = None if weights is None else table.find([weights], "--weights")[0]
    others = [*conditions, *([] if weight is None else [weight])]
    named = table.find(columns, "--columns")
    _check_apart(table, named, conditions, weight)
    wanted = named or [column for column in range(len(table.names)) if column not in others]
    content = table.read([*wanted, *others])
    found = dict(zip([*wanted, *others], content.columns, strict=True))
    left_out = checks.left_out(table, content, found, must={*named, *others}, may_be_constant={weight})
    found = {column: read for column, read in found.items() if column not in left_out}
    roles = Roles([column for column in wanted if column not in left_out], conditions, weight)
    if not roles.columns:
        why = "; ".join(f"{table.title(column)} {reason}" for column, reason in left_out.items())
        raise InputError(f"{table.path} has no column of numbers to learn{': ' + why if why else ''}.")
    checks.check_numbers(table, content, found)
    keep, notices = checks.rows_kept(table, content, found, drop_missing)
    notices = [f"{table.title(column)} is left out: it {reason}." for column, reason in left_out.items()] + notices
    found = {column: Column(read.values[keep]) for column, read in found.items()}
    chosen = _weighed(table, roles, found, content.places[keep], notices)
    _check_spread(chosen)
    return chosen


def read_numbers(table: AbstractTable, columns: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """These columns as rows of finite numbers, with their places; anything else in them is an error."""
    content = table.read(columns)
    found = dict(zip(columns, content.columns, strict=True))
    checks.left_out(table, content, found, must=set(columns), may_be_constant=set(columns))
    checks.check_numbers(table, content, found)
    checks.rows_kept(table, content, found, drop=None)
    return _stacked(found, columns, len(content.places)), content.places


def _check_apart(table: AbstractTable, named: list[int], conditions: list[int], weight: int | None) -> None:
    """A column has one use."""
    uses = [("--columns", named), ("--condition-on", conditions), ("--weights", [weight])]
    for i, (option, group) in enumerate(uses):
        for other, second in uses[i + 1 :]:
            for column in group:
                if column in second:
                    raise InputError(f"{option} and {other} both name {table.title(column)}; a column has one use.")


def _check_spread(chosen: Chosen) -> None:
    """Refuses columns that have no spread in the rows that are left."""
    pairs = ((chosen.x, chosen.roles.columns), (chosen.conditions, chosen.roles.conditions))
    for rows, numbers in pairs:
        for j, number in enumerate(numbers if len(rows) else []):
            if rows[:, j].min() == rows[:, j].max():
                raise InputError(
                    f"{chosen.table.path}: {chosen.table.title(number)} has one value only, {rows[0, j]:g}, in the "
                    f"{len(rows):,} rows that are left; leave it out: --columns NAMES."
                )


def _weighed(
    table: AbstractTable, roles: Roles, found: dict[int, Column], places: np.ndarray, notices: list[str]
) -> Chosen:
    """The chosen numbers, without rows of no weight."""
    x, given = (_stacked(found, columns, len(places)) for columns in (roles.columns, roles.conditions))
    if roles.weights is None:
        return Chosen(table, roles, x, given, None, places, notices)
    weights = found[roles.weights].values
    if (weights < 0).any():
        place = table.place(places[np.argmax(weights < 0)], roles.weights)
        raise InputError(f"{place}: a weight must not be negative; got {weights[np.argmax(weights < 0)]:g}.")
    keep = weights > 0
    if not keep.all():
        notices = [*notices, f"{np.sum(~keep):,} rows of weight 0 are left out."]
    return Chosen(table, roles, x[keep], given[keep], weights[keep], places[keep], notices)


def _stacked(found: dict[int, Column], columns: Sequence[int], rows: int) -> np.ndarray:
    """Columns side by side; an array of no columns if there are none."""
    return np.stack([found[column].values for column in columns], axis=1) if columns else np.empty((rows, 0))
