"""`ffjord sample`."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ffjord.cli.common import RunPath, check_seed, new_file, parse
from ffjord.errors import InputError
from ffjord.progress import rows_bar
from ffjord.runs import Run

_EXAMPLES = """\
  ffjord sample runs/toy/pinwheel -n 1000 --out points.csv
  ffjord sample pretrained/toy-8gaussians -n 20000 --out picture.png"""

_IN_A_PICTURE = 10_000_000


@dataclass(frozen=True)
class Arguments:
    """Draws samples from a trained flow."""

    run: RunPath
    out: Path
    """File to write: .npy, .csv, or .png for a picture."""
    number: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 1000
    """How many samples."""
    seed: int = 0
    """Seed of the samples."""
    overwrite: bool = False
    """Replace an existing file."""


def main(argv: Sequence[str]) -> int:
    given = parse(Arguments, argv, "sample", _EXAMPLES)
    if given.number < 1:
        raise InputError(f"-n must be at least 1; got {given.number}.")
    path = new_file(given.out, (".npy", ".csv", ".png"), overwrite=given.overwrite)
    check_seed(given.seed)
    _check_room(path, given.number)
    from ffjord import compilation

    run = Run.open(given.run)
    compilation.enable_cache()
    _sample(run, given.number, given.seed, path)
    print(f"{given.number} samples written to {path}")
    return 0


def _check_room(path: Path, n: int) -> None:
    """Refuses numbers of samples that a picture, or the disk, cannot hold (a sample takes at least four bytes)."""
    if path.suffix.lower() == ".png" and n > _IN_A_PICTURE:
        raise InputError(f"-n must be at most {_IN_A_PICTURE} for a picture; got {n}.")
    free = shutil.disk_usage(path.parent).free
    if 4 * n > free:
        raise InputError(f"-n {n}: the samples need more than the {free / 1e9:.1f} GB that are free in {path.parent}.")


def _sample(run: Run, n: int, seed: int, path: Path) -> None:
    import jax
    import numpy as np

    from ffjord.arrays import atomic_file
    from ffjord.data.points import write_rows
    from ffjord.report import picture_of_samples
    from ffjord.scoring import sample_blocks

    flow = run.flow()
    with rows_bar("drawing") as progress:
        blocks = sample_blocks(flow, n, progress=progress, key=jax.random.key(seed))
        if path.suffix.lower() == ".png":
            with atomic_file(path) as file:
                picture_of_samples(np.concatenate([*blocks])).savefig(file, format="png")
        else:
            (dim,) = flow.event_shape
            names = [f"x{i + 1}" for i in range(dim)]
            write_rows(path, blocks, names=names, shape=(n, dim), dtype=flow.dtype)
