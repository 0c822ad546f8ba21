"""What several commands share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import tyro

from ffjord.errors import InputError

T = TypeVar("T")

RunPath = Annotated[
    Path,
    tyro.conf.Positional,
    tyro.conf.arg(metavar="RUN", help="A run directory, or pretrained/NAME for a packaged model."),
]


def parse(kind: type[T], argv: Sequence[str], name: str, examples: str, default: T | None = None) -> T:
    """Reads a command's arguments into its dataclass; a mistake ends the program with code 2."""
    description = f"{(kind.__doc__ or '').strip()}\n\nexamples:\n{examples}"
    config = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
    arguments = {"args": list(argv), "prog": f"ffjord {name}", "description": description, "config": config}
    return tyro.cli(kind, **arguments) if default is None else tyro.cli(kind, default=default, **arguments)


def new_file(path: Path, suffixes: Sequence[str], *, overwrite: bool) -> Path:
    """Checks, before any work, that an output file can be written without losing another."""
    if path.suffix.lower() not in suffixes:
        raise InputError(f"--out {path}: the name must end in {' or '.join(suffixes)}.")
    try:
        if not path.parent.is_dir():
            raise InputError(f"--out {path}: there is no directory {path.parent}.")
        if path.is_dir():
            raise InputError(f"--out {path} is a directory; name a file.")
        if path.exists() and not overwrite:
            raise InputError(f"--out {path} exists; choose another name, or add --overwrite.")
    except OSError as error:
        raise InputError(f"--out {path} cannot be written ({error.strerror}); choose another name.") from error
    return path


def check_seed(seed: int) -> int:
    """Checks that a seed is one that JAX takes."""
    if not -(2**63) <= seed < 2**63:
        raise InputError(f"--seed must be a number of 64 bits, from -2**63 to 2**63 - 1; got {seed}.")
    return seed


def print_table(rows: dict[str, str], *, title: str | None = None) -> None:
    """Two columns: what, and how much."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, show_header=False, title_justify="left")
    for name, value in rows.items():
        table.add_row(name, value)
    Console().print(table)
