"""What a conditional density is given on the command line: NAME=VALUE …, or a file."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ffjord.errors import InputError
from ffjord.table.choose import read_numbers
from ffjord.table.formats import SUFFIXES, open_table
from ffjord.table.layout import Layout


def conditions(layout: Layout, words: Sequence[str]) -> np.ndarray:
    """Rows of conditions in their own units, shape (n, C); one row from NAME=VALUE words."""
    names = layout.given.names
    if not words:
        example = " ".join(f"{name}=VALUE" for name in names)
        raise InputError(f"the run's density is given {', '.join(names)}: add --given {example}, or --given FILE.")
    if len(words) == 1 and Path(words[0]).suffix.lower() in SUFFIXES:
        table = open_table(Path(words[0]))
        return read_numbers(table, layout.find(table, data=False)[1])[0]
    values = dict(_pair(word, names) for word in words)
    missing = [name for name in names if name not in values]
    if missing:
        raise InputError(f"--given lacks {', '.join(missing)}; add {' '.join(f'{name}=VALUE' for name in missing)}.")
    if len(values) < len(words):
        raise InputError(f"--given names a column twice: {' '.join(words)}.")
    return np.array([[values[name] for name in names]])


def _pair(word: str, names: Sequence[str]) -> tuple[str, float]:
    """A name and its value; a name may have an = in it."""
    name, equals, text = word.rpartition("=")
    if not equals or name not in names:
        raise InputError(f"--given {word}: expected NAME=VALUE with a name of {', '.join(names)}, or one file.")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"--given {word}: {text!r} is not a finite number.")
    return name, value
