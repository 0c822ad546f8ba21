"""Arrays, and a table that pandas has pickled, read without pandas and without executing anything.

A pickle is a program: it names functions and calls them. Here every function that it may name (those of NumPy and
pandas, and a few that they need) is replaced by a stand-in that keeps what it is called with; any other is refused.
What has been kept is then looked through for numbers and names.
"""

import io
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ffjord.errors import InputError

_LIBRARIES = ("numpy", "pandas")
_NUMBERS = ("f8", "f4", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1")
_OTHERS = {
    ("builtins", "slice"),
    ("builtins", "bytes"),
    ("__builtin__", "slice"),
    ("__builtin__", "bytes"),
    ("_codecs", "encode"),
}


class _Kept:
    """What a function or class was called with, and the state that it was given."""

    name = ""
    args: tuple[Any, ...]
    state: Any

    def __new__(cls, *args: Any, **_: Any) -> "_Kept":
        kept = object.__new__(cls)
        kept.args, kept.state = args, None
        return kept

    def __init__(self, *_: Any, **__: Any): ...

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    """Builds stand-ins only."""

    def find_class(self, module: str, name: str) -> type[_Kept]:
        if module.split(".")[0] not in _LIBRARIES and (module, name) not in _OTHERS:
            raise InputError(
                f"it wants to call {module}.{name}, which no array and no table needs; nothing of it was executed"
            )
        return type("_Kept", (_Kept,), {"name": name.split(".")[-1]})


def read_frame(path: Path) -> dict[str, np.ndarray]:
    """The columns of a pickled pandas.DataFrame by name."""
    try:
        with path.open("rb") as file:
            frame = _Unpickler(file, encoding="latin1").load()  # bytes of Python 2 are text in Latin-1
        return _columns(frame)
    except OSError:
        raise
    except Exception as error:  # a damaged pickle can fail in any way
        what = str(error) or type(error).__name__
        raise InputError(f"{path} is not a table pickled by pandas: {what}.") from error


def read_dict(raw: bytes, where: str) -> dict[str, Any]:
    """A pickled dict of arrays, texts, whole numbers, and lists of texts and whole numbers; anything else is refused.
    `where` names the pickle in errors."""
    try:
        found = _Unpickler(io.BytesIO(raw), encoding="latin1").load()  # bytes of Python 2 are text in Latin-1
        if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
            raise ValueError(f"it holds {getattr(found, 'name', type(found).__name__)}, not a dict with texts as keys")
        return {name: _value(name, value) for name, value in found.items()}
    except Exception as error:  # a damaged pickle can fail in any way
        what = str(error) or type(error).__name__
        raise InputError(f"{where} is not a pickled dict of arrays: {what}.") from error


def _value(name: str, value: Any) -> Any:
    if isinstance(value, _Kept) and value.name in ("_reconstruct", "_frombuffer"):
        return _array(value)
    plain = lambda thing: isinstance(thing, (str, bytes, int))
    if plain(value) or (isinstance(value, list) and all(map(plain, value))):
        return value
    raise ValueError(f"{name[:40]!r} is {getattr(value, 'name', type(value).__name__)}, not an array and not a list")


def _columns(frame: Any) -> dict[str, np.ndarray]:
    if not isinstance(frame, _Kept) or frame.name != "DataFrame":
        raise ValueError(f"it holds {getattr(frame, 'name', type(frame).__name__)}, not a DataFrame")
    manager = frame.state.get("_mgr", frame.state.get("_data"))
    names, columns = _names(_axes(manager)), {}
    for values, where in _blocks(manager):
        array = _array(values)
        chosen = names[_slice(where)] if where.name == "slice" else [names[i] for i in _array(where)]
        columns.update(zip(chosen, array, strict=True))
    return {name: columns[name] for name in names}


def _axes(manager: _Kept) -> _Kept:
    """The axis of column names: of pandas since 1.3, or before."""
    return manager.args[1][0] if manager.args else manager.state[3]["0.14.1"]["axes"][0]


def _blocks(manager: _Kept) -> Iterator[tuple[_Kept, _Kept]]:
    """Columns of one type each, and which they are: of pandas since 1.3, or before."""
    if manager.args:
        yield from (block.args[:2] for block in manager.args[0])
    else:
        yield from ((block["values"], block["mgr_locs"]) for block in manager.state[3]["0.14.1"]["blocks"])


def _names(axis: _Kept) -> list[str]:
    """The texts of an index: the first list of texts within it."""
    waiting: list[Any] = [axis]
    for thing in waiting:
        if len(waiting) > 1000:  # a thing may hold itself
            break
        if isinstance(thing, list) and thing and all(isinstance(text, str) for text in thing):
            return thing
        if isinstance(thing, _Kept):
            waiting += [thing.args, thing.state]
        elif isinstance(thing, (list, tuple)):
            waiting += thing
        elif isinstance(thing, dict):
            waiting += thing.values()
    raise ValueError("its columns have no names")


def _array(kept: _Kept) -> np.ndarray:
    """The numbers of an array; its bytes are read here, not by NumPy's own unpickling, which trusts them."""
    if kept.name == "_frombuffer":  # protocol 5
        raw, dtype, shape, order = kept.args
    else:
        _, shape, dtype, fortran, raw = kept.state
        order = "F" if fortran else "C"
    kind = _dtype(dtype)
    if isinstance(raw, _Kept):  # the call encode(text, "latin1")
        raw = raw.args[0] if raw.args else b""
    raw = raw.encode("latin1") if isinstance(raw, str) else bytes(raw)
    return np.frombuffer(raw, kind).reshape(shape, order=order)


def _dtype(kept: _Kept) -> np.dtype:
    kind, byte_order = kept.args[0], kept.state[1]
    if kind not in _NUMBERS or byte_order not in ("<", ">", "|"):
        raise ValueError(f"a column is of type {kind}, not of numbers")
    return np.dtype(byte_order + kind)


def _slice(kept: _Kept) -> slice:
    return slice(*kept.args)
