"""Pickles in the layout of pandas before 1.3, which MAF used, made without pandas."""

import io
import pickle
import struct
import sys
import types
from typing import Any

import numpy as np
import pytest


class _Python2(pickle._Pickler):  # pyright: ignore[reportAttributeAccessIssue]
    """Writes text and bytes alike, as Python 2 did."""

    dispatch = dict(pickle._Pickler.dispatch)  # pyright: ignore[reportAttributeAccessIssue]  # noqa: RUF012

    def save_string(self, text):
        raw = text if isinstance(text, bytes) else text.encode("ascii")
        self.write(b"T" + struct.pack("<i", len(raw)) + raw)
        self.memoize(text)

    dispatch[str] = dispatch[bytes] = save_string


def old_frame(columns: dict[str, np.ndarray], *, python2: bool = False, names: Any = None) -> bytes:
    """A pickled DataFrame; columns of one type make a block."""
    with pytest.MonkeyPatch.context() as patch:
        frame, manager, index = (
            _global(patch, *where)
            for where in (
                ("pandas.core.frame", "DataFrame"),
                ("pandas.core.internals", "BlockManager"),
                ("pandas.indexes.base", "Index"),
            )
        )
        new_index = _function(patch, "pandas.indexes.base", "_new_Index")
        axis = lambda data: _Called(new_index, (index, {"data": data, "name": None}))
        labels = np.array([*columns], dtype=object) if names is None else names
        rows = len(next(iter(columns.values()), []))
        axes, blocks = [axis(labels), axis(np.arange(rows))], _blocks(columns)
        state = (axes, [b["values"] for b in blocks], [], {"0.14.1": {"axes": axes, "blocks": blocks}})
        made = _made(frame, {"_data": _made(manager, state), "_typ": "dataframe", "_metadata": []})
        return _dumps(made, python2).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


def _blocks(columns: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    kinds = dict.fromkeys(column.dtype for column in columns.values())
    where = {kind: [i for i, column in enumerate(columns.values()) if column.dtype == kind] for kind in kinds}
    values = [*columns.values()]
    stacked = lambda places: np.asfortranarray([values[i] for i in places], values[places[0]].dtype)
    return [{"values": stacked(places), "mgr_locs": _where(places)} for places in where.values()]


def _where(places: list[int]) -> slice | np.ndarray:
    if places == [*range(places[0], places[-1] + 1)]:
        return slice(places[0], places[-1] + 1, 1)
    return np.array(places)


class _Called:
    def __init__(self, function, args):
        self.call = (function, args)

    def __reduce__(self):
        return self.call


def _dumps(made: Any, python2: bool) -> bytes:
    if not python2:
        return pickle.dumps(made, protocol=2)
    file = io.BytesIO()
    _Python2(file, 2).dump(made)
    return file.getvalue()


def _made(kind: type, state: Any) -> Any:
    made = kind()
    made.state = state
    return made


def _global(patch: pytest.MonkeyPatch, module: str, name: str) -> type:
    kind = type(name, (), {"__module__": module, "__getstate__": lambda self: self.state})
    return _placed(patch, module, name, kind)


def _function(patch: pytest.MonkeyPatch, module: str, name: str) -> Any:
    function = lambda *_: None
    function.__module__, function.__qualname__, function.__name__ = module, name, name
    return _placed(patch, module, name, function)


def _placed(patch: pytest.MonkeyPatch, module: str, name: str, thing: Any) -> Any:
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        parent = ".".join(parts[:end])
        if parent not in sys.modules:
            patch.setitem(sys.modules, parent, types.ModuleType(parent))
    setattr(sys.modules[module], name, thing)
    return thing
