"""Trees of arrays as named arrays, and back: how weights and training states are stored, without pickle."""

import zipfile
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from ffjord.errors import InputError
from ffjord.files import atomic_file as atomic_file


def to_dict(tree: Any) -> dict[str, np.ndarray]:
    """The arrays of a tree by their paths, such as `.bijection.dynamics.layers[0].linear.weight`."""
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(tree, eqx.is_array))
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def from_dict(like: Any, arrays: dict[str, np.ndarray], *, where: str) -> Any:
    """The tree `like` with its arrays replaced; names, shapes and types must agree."""
    wanted = to_dict(like)
    if wanted.keys() != arrays.keys():
        odd = sorted(wanted.keys() ^ arrays.keys())
        raise InputError(f"{where} does not fit the configured model: {len(odd)} arrays differ, such as {odd[0]!r}.")
    for name, array in wanted.items():
        found = arrays[name]
        if (found.shape, found.dtype) != (array.shape, array.dtype):
            raise InputError(
                f"{where} does not fit the configured model: {name!r} has shape {found.shape} and type {found.dtype}; "
                f"expected {array.shape} and {array.dtype}."
            )
    dynamic, static = eqx.partition(like, eqx.is_array)
    paths, structure = jax.tree_util.tree_flatten_with_path(dynamic)
    leaves = [jax.numpy.asarray(arrays[jax.tree_util.keystr(path)]) for path, _ in paths]
    return eqx.combine(jax.tree.unflatten(structure, leaves), static)


def fitting(like: Any, arrays: dict[str, np.ndarray]) -> tuple[Any, int]:
    """The tree `like` with those of its arrays replaced whose name, shape and type are found, and how many they are."""
    own = to_dict(like)
    kind = lambda array: (array.shape, array.dtype)
    found = {name: array for name, array in arrays.items() if name in own and kind(array) == kind(own[name])}
    return from_dict(like, own | found, where="the model"), len(found)


def save_arrays(path: Path, tree: Any) -> None:
    """Writes the arrays of a tree to one .npz file, atomically."""
    with atomic_file(path) as file:
        np.savez(file, **to_dict(tree))  # pyright: ignore[reportArgumentType]


def load_arrays(path: Path, like: Any) -> Any:
    """Reads a tree written by `save_arrays`; a damaged file is an error that says so."""
    return from_dict(like, read_arrays(path), where=str(path))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The named arrays that `save_arrays` wrote."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except FileNotFoundError as error:
        raise InputError(f"{path}: there is no such file.") from error
    except (OSError, ValueError, zipfile.BadZipFile, EOFError, KeyError) as error:
        raise InputError(f"{path} is damaged or not a weights file ({error}).") from error
