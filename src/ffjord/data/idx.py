"""Arrays of bytes in the idx format, in which MNIST is published.

A file is a magic number (two zero bytes, the type of the elements, the rank), as many sizes of four bytes as the rank
says, the largest byte first, and then the elements, the last index fastest.
"""

import math
import struct
from pathlib import Path

import numpy as np

from ffjord.data.lines import opened
from ffjord.data.split import Split
from ffjord.errors import InputError

_UINT8 = 0x08
_OTHERS = {0x09: "int8", 0x0B: "int16", 0x0C: "int32", 0x0D: "float32", 0x0E: "float64"}
_MOST = 64
"""The rank that NumPy takes."""
_PICTURE = (28, 28)
_AGAIN = "The file is damaged or another; get it again."


def read_idx(path: Path, rank: int | None = None) -> np.ndarray:
    """The array of bytes in an idx file, which may be packed (.gz); of that rank, if one is given."""
    with opened(path) as file:
        raw = file.read()
    shape = _shape(raw, path, rank)
    start, size = 4 + 4 * len(shape), math.prod(shape)
    if not size:
        raise InputError(f"{path} holds no elements: its sizes are {shape}. {_AGAIN}")
    if len(raw) != start + size:
        odd = "is cut off" if len(raw) < start + size else "has bytes after its end"
        raise InputError(f"{path} {odd}: sizes of {shape} need {start + size:,} bytes; got {len(raw):,}. {_AGAIN}")
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape)


def mnist(path: Path, rows: tuple[int, int, int]) -> Split:
    """MNIST's pictures (n, 28, 28, 1): `path` has those for training, of which the last are for validation; the file
    beside it has those for testing. Either may be packed."""
    train, validation, test = rows
    pictures = _pictures(path, train + validation)
    return Split(pictures[:train], pictures[train:], _pictures(_beside(path), test))


def _pictures(path: Path, count: int) -> np.ndarray:
    pictures = read_idx(path, rank=3)
    if pictures.shape != (count, *_PICTURE):
        raise InputError(f"{path}: its sizes must be {(count, *_PICTURE)}; got {pictures.shape}. {_AGAIN}")
    return pictures[..., None]


def _shape(raw: bytes, path: Path, rank: int | None) -> tuple[int, ...]:
    """The sizes in the header, if it is that of an array of bytes."""
    if len(raw) < 4:
        raise InputError(f"{path} is cut off: a magic number has 4 bytes; got {len(raw)}. {_AGAIN}")
    zeros, kind, found = struct.unpack_from(">HBB", raw)
    if kind in _OTHERS and not zeros:
        raise InputError(f"{path} holds elements of type {_OTHERS[kind]} (0x{kind:02X}); only uint8 (0x08) is read.")
    if zeros or kind != _UINT8 or not 0 < found <= _MOST or found != (rank or found):
        wanted = f"0x{_UINT8 << 8 | (rank or 3):08X}{'' if rank else ' for images'}"
        raise InputError(f"{path}: the magic number must be {wanted}; got 0x{raw[:4].hex().upper()}. {_AGAIN}")
    if len(raw) < 4 + 4 * found:
        raise InputError(f"{path} is cut off: the header has {4 + 4 * found} bytes; got {len(raw)}. {_AGAIN}")
    return struct.unpack_from(f">{found}I", raw, 4)


def _beside(path: Path) -> Path:
    names = [f"t10k-images-idx3-ubyte{suffix}" for suffix in (".gz", "")]
    for name in names:
        if path.with_name(name).is_file():
            return path.with_name(name)
    raise InputError(f"{path} is there, but neither {names[0]} nor {names[1]} is beside it; MNIST needs both.")
