"""The table that a run was fitted to, read again from its file: the same bytes, the same rows."""

import functools
import hashlib
from pathlib import Path

import numpy as np

from ffjord.data.source import Held, Rows
from ffjord.errors import InputError
from ffjord.experiments.config import FileConfig
from ffjord.table.choose import choose
from ffjord.table.formats import open_table
from ffjord.table.prepare import Part, Prepared, prepare


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}).") from error


def prepared(file: FileConfig, seed: int) -> Prepared:
    """The rows of a fitted table; refuses a file that is gone or was changed."""
    path = Path(file.path)
    if not path.is_file():
        raise InputError(f"{path}, the table that the run was fitted to, is gone; put it back there.")
    if digest(path) != file.sha256:
        raise InputError(
            f"{path} was changed since the run was fitted to it; put the old one back, or fit the new one into another "
            "directory: --out DIR."
        )
    return _prepared(file, seed)


def source(found: Prepared, *, batch_size: int, seed: int) -> Rows:
    """Batches of a prepared table."""
    train, conditioned = found.train, found.train.conditions.shape[1] > 0
    return Rows(
        train.x,
        _held(found.validation),
        _held(found.test),
        batch_size=min(batch_size, len(train.x)),
        seed=seed,
        condition=train.conditions if conditioned else None,
        weight=train.weights,
        jitter=found.jitter,
    )


@functools.lru_cache(maxsize=1)
def _prepared(file: FileConfig, seed: int) -> Prepared:
    """Kept, because a command needs it more than once; the file's digest is a part of what it is kept by."""
    table = open_table(Path(file.path))
    chosen = choose(
        table,
        columns=file.columns,
        condition_on=file.condition_on,
        weights=file.weights,
        drop_missing=file.missing == "drop",
    )
    return prepare(chosen, seed=seed, dequantize=table.find(file.dequantize, "--dequantize"))


def _held(part: Part) -> np.ndarray | Held:
    conditions = part.conditions if part.conditions.shape[1] else None
    return part.x if conditions is None and part.weights is None else Held(part.x, conditions, part.weights)
