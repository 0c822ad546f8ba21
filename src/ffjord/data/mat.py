"""Matrices of real numbers in MATLAB's .mat files of versions 5 to 7.

A file is a header of 128 bytes and elements: the type and the size of the data, four bytes each, and the data, filled
up to a multiple of eight bytes. Up to four bytes of data may share eight with type and size, two bytes each. A matrix
is an element of elements: flags, sizes, a name, and numbers, the first index fastest. It may be compressed.

Not SciPy's `loadmat`: a wrong type in a damaged file ends the whole program there.
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ffjord.data.lines import opened
from ffjord.errors import InputError

_HEADER = 128
_MATRIX, _COMPRESSED = 14, 15
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
"""Types of data. MATLAB stores whole numbers in the smallest that holds them, whatever the class of the matrix."""
_CLASSES = range(6, 16)
"""Of matrices of numbers, from double to uint64; the others are cells, structures, texts, sparse matrices and more."""
_COMPLEX = 0x800


def read_mat(path: Path) -> dict[str, np.ndarray]:
    """The matrices of real numbers in a file by their names; what else is in it is left out."""
    with opened(path) as file:
        raw = file.read()
    order = {b"IM": "<", b"MI": ">"}.get(raw[_HEADER - 2 : _HEADER])
    try:
        if order is None:
            raise ValueError("it has no header of version 5 to 7")
        found = (_matrix(data, order) for data in _bodies(raw[_HEADER:], order))
        return dict(matrix for matrix in found if matrix is not None)
    except (ValueError, struct.error, zlib.error) as error:
        raise InputError(
            f"{path} cannot be read as a .mat file ({error}). The file is damaged or another; get it again."
        ) from error


def _bodies(raw: bytes, order: str) -> Iterator[bytes]:
    """The data of every matrix, compressed or not."""
    for outer, packed in _elements(raw, order):
        inner = _elements(zlib.decompress(packed), order) if outer == _COMPRESSED else [(outer, packed)]
        for kind, data in inner:
            if kind != _MATRIX:
                raise ValueError(f"it has an element of type {kind}")
            yield data


def _matrix(body: bytes, order: str) -> tuple[str, np.ndarray] | None:
    """Name and numbers; nothing, if it is of another class."""
    elements = _elements(body, order)
    (flags,) = struct.unpack_from(f"{order}I", _next(elements)[1])
    if flags & 0xFF not in _CLASSES or flags & _COMPLEX:
        return None
    _, sizes = _next(elements)
    shape = struct.unpack(f"{order}{len(sizes) // 4}i", sizes)
    name = _next(elements)[1].decode("ascii")
    kind, data = _next(elements)
    if kind not in _NUMBERS:
        raise ValueError(f"the numbers of {name!r} are of type {kind}")
    return name, np.frombuffer(data, f"{order}{_NUMBERS[kind]}").reshape(shape, order="F")


def _next(elements: Iterator[tuple[int, bytes]]) -> tuple[int, bytes]:
    element = next(elements, None)
    if element is None:
        raise ValueError("a matrix is incomplete")
    return element


def _elements(raw: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """Type and data of each element."""
    at = 0
    while at < len(raw):
        kind, size = struct.unpack_from(f"{order}II", raw, at)
        start, end = at + 8, at + 8 + size
        if kind >> 16:
            kind, size, start = kind & 0xFFFF, kind >> 16, at + 4
            end = start + size
        if end > len(raw):
            raise ValueError(f"it is cut off: an element has {size:,} bytes, of which {len(raw) - start:,} are there")
        yield kind, raw[start:end]
        at = end if kind == _COMPRESSED else end + -end % 8
