"""Sets of pictures in MATLAB's files: Frey's faces, Caltech's silhouettes, and Omniglot's drawings.

A row of Caltech's matrices, and a column of Omniglot's, is a picture column by column, as MATLAB stores matrices: it is
transposed here to stand upright. A column of Frey's is a picture row by row.
"""

import math
from pathlib import Path

import numpy as np

from ffjord.data.binarized import split_drawings
from ffjord.data.mat import read_mat
from ffjord.data.split import Split
from ffjord.errors import InputError

_SIDE = 28
_FACE = (28, 20, 1)
_AGAIN = "The file is damaged or another; get it again."


def frey(path: Path, rows: tuple[int, int, int], shuffle: int) -> Split:
    """Grey faces, uint8 (n, 28, 20, 1), in an order that the seed `shuffle` gives, and split in that order."""
    (matrix,) = _matrices(path, {"ff": (math.prod(_FACE), sum(rows))})
    _check(matrix.T, 255, f"{path}, 'ff'", whole=True)
    faces = matrix.T.astype(np.uint8).reshape(-1, *_FACE)
    faces = faces[np.random.RandomState(shuffle).permutation(len(faces))]  # NumPy's old generator, as in the literature
    return Split(*np.split(faces, [rows[0], rows[0] + rows[1]]))


def caltech(path: Path, rows: tuple[int, int, int]) -> Split:
    """Silhouettes, uint8 (n, 28, 28, 1): 1 is the object, which is 0 in the file."""
    names = ("train_data", "val_data", "test_data")
    matrices = _matrices(path, {name: (count, _SIDE**2) for name, count in zip(names, rows, strict=True)})
    for name, matrix in zip(names, matrices, strict=True):
        _check(matrix, 1, f"{path}, {name!r}", whole=True)
    return Split(*(1 - _upright(matrix).astype(np.uint8) for matrix in matrices))


def omniglot(path: Path, rows: tuple[int, int, int], shuffle: int) -> Split:
    """Drawings (n, 28, 28, 1), prepared by `split_drawings`."""
    counts = {"data": rows[0] + rows[1], "testdata": rows[2]}
    matrices = _matrices(path, {name: (_SIDE**2, count) for name, count in counts.items()})
    for name, matrix in zip(counts, matrices, strict=True):
        _check(matrix.T, 1, f"{path}, {name!r}", whole=False)
    train, test = (_upright(matrix.T).astype(np.float32) for matrix in matrices)
    return split_drawings(train, test, rows, shuffle)


def _matrices(path: Path, shapes: dict[str, tuple[int, int]]) -> list[np.ndarray]:
    """The file's matrices of these names, if they are numbers and have these shapes."""
    found = read_mat(path)
    for name, shape in shapes.items():
        if name not in found:
            raise InputError(f"{path} has no matrix of real numbers {name!r}. {_AGAIN}")
        if found[name].shape != shape:
            raise InputError(f"{path}: {name!r} must have the shape {shape}; got {found[name].shape}. {_AGAIN}")
    return [found[name] for name in shapes]


def _check(pictures: np.ndarray, most: int, where: str, *, whole: bool) -> None:
    """Refuses pixels (n, pixels) that are not from 0 to `most`, or not whole."""
    wrong = ~((pictures >= 0) & (pictures <= most))
    if whole:
        wrong |= pictures != np.trunc(pictures)
    if wrong.any():
        number, pixel = np.argwhere(wrong)[0]
        kind = "whole numbers" if whole else "probabilities"
        raise InputError(
            f"{where}: picture {number + 1} has the value {pictures[number, pixel]:g}; "
            f"its pixels are {kind} from 0 to {most}. {_AGAIN}"
        )


def _upright(pictures: np.ndarray) -> np.ndarray:
    """Pictures (n, 28, 28, 1) from rows that go through them column by column."""
    return pictures.reshape(-1, _SIDE, _SIDE).swapaxes(1, 2)[..., None]
