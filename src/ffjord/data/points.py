"""Points from a user's file."""

from pathlib import Path

import numpy as np

from ffjord.errors import InputError


def read_points(path: Path, *, columns: int) -> np.ndarray:
    """A (n, columns) array of finite numbers from a .csv (header allowed) or .npy file; errors name the row."""
    if not path.is_file():
        raise InputError(f"{path}: there is no such file.")
    match path.suffix.lower():
        case ".npy":
            points = _read_npy(path)
        case ".csv":
            points = _read_csv(path)
        case _:
            raise InputError(f"{path}: the name must end in .csv or .npy.")
    if points.ndim != 2 or points.shape[1] != columns:
        raise InputError(f"{path}: expected {columns} column(s) a row; got an array of shape {points.shape}.")
    if len(points) == 0:
        raise InputError(f"{path} has no rows.")
    bad = np.flatnonzero(~np.isfinite(points).all(axis=1))
    if len(bad):
        raise InputError(f"{path}: row {bad[0] + 1} holds NaN or an infinity; {len(bad)} such row(s) in all.")
    return points


def _read_npy(path: Path) -> np.ndarray:
    try:
        points = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise InputError(f"{path} cannot be read as a .npy file ({error}).") from error
    if not isinstance(points, np.ndarray) or points.dtype.kind not in "fiub":
        raise InputError(f"{path} must hold an array of numbers; got {getattr(points, 'dtype', type(points))}.")
    return np.atleast_2d(points).astype(np.float64)


def _read_csv(path: Path) -> np.ndarray:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text file in UTF-8 ({error}).") from error
    rows = [(number, line.split(",")) for number, line in enumerate(lines, start=1) if line.strip()]
    if rows and not _is_numeric(rows[0][1]):
        rows = rows[1:]
    if not rows:
        raise InputError(f"{path} has no rows.")
    width = len(rows[0][1])
    return np.array([_numbers(path, number, cells, width) for number, cells in rows])


def _is_numeric(cells: list[str]) -> bool:
    try:
        [float(cell) for cell in cells]
    except ValueError:
        return False
    return True


def _numbers(path: Path, line: int, cells: list[str], width: int) -> list[float]:
    if len(cells) != width:
        raise InputError(f"{path}, line {line}: {len(cells)} columns; the lines before have {width}.")
    try:
        return [float(cell) for cell in cells]
    except ValueError as error:
        raise InputError(f"{path}, line {line}: {error}.") from error
