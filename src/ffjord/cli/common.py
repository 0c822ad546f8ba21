"""What several commands share."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Cluster:
    """Work shared by several processes, each with its own devices."""

    distributed: bool = False
    """Join the other processes of a job of Slurm, Open MPI or Kubernetes."""
    coordinator: str | None = None
    """Join by hand: ADDRESS:PORT of process 0, the same for all."""
    num_processes: int | None = None
    """How many processes there are."""
    process_id: int | None = None
    """Number of this process, from 0; process 0 writes."""
    peer_minutes: float = 5.0
    """How long to wait for the others."""

    def join(self) -> None:
        """Joins the others if that is wanted; all but the first process are silent from then on."""
        if not self.peer_minutes > 0:
            raise InputError(f"--peer-minutes must be positive; got {self.peer_minutes}.")
        if not self.distributed and all(x is None for x in (self.coordinator, self.num_processes, self.process_id)):
            return
        from ffjord import devices

        devices.connect(self.coordinator, self.num_processes, self.process_id, seconds=60 * self.peer_minutes)
        if not devices.is_writer():
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115


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
