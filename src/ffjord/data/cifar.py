"""CIFAR-10 in the files of its publisher: the binary version and the Python version, in an archive or unpacked.

Both have five batches for training and one for testing. A picture is 3,072 bytes: the red values row by row, then the
green, then the blue. The binary version has a byte before each picture, the label; the Python version is a pickled
dict of an array "data" and a list "labels". Of a pickle nothing is executed.
"""

import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import numpy as np

from ffjord.data.lines import opened
from ffjord.data.pickles import read_dict
from ffjord.data.split import Split
from ffjord.errors import InputError

_BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
_SHAPE = (3, 32, 32)
_VALUES = 3 * 32 * 32
_LABELS = 10
_AGAIN = "The file is damaged or another; get it again."

Decode = Callable[[bytes, str], tuple[np.ndarray, list[int]]]
"""From a file's bytes, and its name for errors, to values of shape (n, 3072) and n labels."""


def from_binary(path: Path, rows: tuple[int, int, int]) -> Split:
    """The binary version: its archive, its folder, or one of the files in a folder, as pictures (n, 32, 32, 3)."""
    return _read(path, [f"{name}.bin" for name in _BATCHES], _binary, rows)


def from_python(path: Path, rows: tuple[int, int, int]) -> Split:
    """The Python version: its archive, its folder, or one of the files in a folder, as pictures (n, 32, 32, 3)."""
    return _read(path, [*_BATCHES], _pickled, rows)


def _read(path: Path, names: list[str], decode: Decode, rows: tuple[int, int, int]) -> Split:
    """The pictures of all batches in their order; the last of those for training are for validation."""
    train, validation, test = rows
    first = [(train + validation) // 5 * i for i in range(6)]  # of each batch
    counts = dict(zip(names, np.diff([*first, first[-1] + test]).tolist(), strict=True))
    pictures, missing = np.empty((sum(counts.values()), *_SHAPE[1:], 3), np.uint8), {*names}
    for name, where, raw in _files(path, names):
        values, labels = decode(raw, where)
        _check(len(values), counts[name], labels, where)
        start = first[names.index(name)]
        pictures[start : start + counts[name]] = values.reshape(-1, *_SHAPE).transpose(0, 2, 3, 1)
        missing.discard(name)
    if missing:
        raise InputError(f"{path}: {', '.join(sorted(missing))} is missing; CIFAR-10 comes in six files.")
    return Split(*np.split(pictures, [train, train + validation]))


def _check(found: int, count: int, labels: list[int], where: str) -> None:
    for number, label in enumerate(labels, 1):
        if not 0 <= label < _LABELS:
            raise InputError(f"{where}: picture {number} has the label {label}; they go from 0 to 9. {_AGAIN}")
    if found != count:
        raise InputError(f"{where} must have {count:,} pictures; got {found:,}. {_AGAIN}")


def _binary(raw: bytes, where: str) -> tuple[np.ndarray, list[int]]:
    if len(raw) % (1 + _VALUES):
        raise InputError(f"{where}: its {len(raw):,} bytes are not a multiple of {1 + _VALUES}, a picture's. {_AGAIN}")
    records = np.frombuffer(raw, np.uint8).reshape(-1, 1 + _VALUES)
    return records[:, 1:], records[:, 0].tolist()


def _pickled(raw: bytes, where: str) -> tuple[np.ndarray, list[int]]:
    batch = read_dict(raw, where)
    values, labels = batch.get("data"), batch.get("labels")
    if not isinstance(values, np.ndarray) or values.dtype != np.uint8 or values.shape[1:] != (_VALUES,):
        found = f"{values.dtype} {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__
        raise InputError(f"{where}: 'data' must be an array of uint8 (n, {_VALUES}); got {found}. {_AGAIN}")
    if not isinstance(labels, list) or not all(isinstance(label, int) for label in labels):
        raise InputError(f"{where}: 'labels' must be a list of whole numbers; it is not. {_AGAIN}")
    if len(labels) != len(values):
        raise InputError(f"{where} has {len(values):,} pictures, but {len(labels):,} labels. {_AGAIN}")
    return values, labels


def _files(path: Path, names: list[str]) -> Iterator[tuple[str, str, bytes]]:
    """Those of the files that are there: name, name for errors, and bytes."""
    if path.name.endswith(".tar.gz"):
        yield from _archived(path, names)
        return
    folder = path if path.is_dir() else path.parent
    for name in names:
        if (folder / name).is_file():
            with opened(folder / name) as file:
                raw = file.read()
            yield name, str(folder / name), raw


def _archived(path: Path, names: list[str]) -> Iterator[tuple[str, str, bytes]]:
    """The same of an archive, in its own order: one pass over it."""
    try:
        with opened(path) as packed, tarfile.open(fileobj=packed, mode="r|") as archive:
            for member in archive:
                name = PurePosixPath(member.name).name
                if name in names and (file := archive.extractfile(member)) is not None:
                    yield name, f"{path}, {name}", file.read()
            while packed.read(2**20):  # to the end, where the checksum is
                pass
    except tarfile.TarError as error:
        raise InputError(f"{path} is damaged ({error}); delete it and get it again.") from error
