"""`ffjord sample`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ffjord.cli.common import RunPath, new_file, parse
from ffjord.errors import InputError
from ffjord.runs import Run

_EXAMPLES = """\
  ffjord sample runs/toy/pinwheel -n 1000 --out points.csv
  ffjord sample pretrained/toy-8gaussians -n 20000 --out picture.png"""


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
    from ffjord import compilation_cache

    given = parse(Arguments, argv, "sample", _EXAMPLES)
    if given.number < 1:
        raise InputError(f"-n must be at least 1; got {given.number}.")
    path = new_file(given.out, (".npy", ".csv", ".png"), overwrite=given.overwrite)
    run = Run.open(given.run)
    compilation_cache.enable()
    points = _draw(run, given.number, given.seed)
    _write(path, points)
    print(f"{given.number} samples written to {path}")
    return 0


def _draw(run: Run, number: int, seed: int):
    import jax
    import numpy as np

    return np.asarray(run.flow().sample(number, key=jax.random.key(seed)))


def _write(path: Path, points) -> None:
    import numpy as np

    from ffjord.arrays import atomic_file

    if path.suffix.lower() == ".png":
        from ffjord.report import picture_of_samples

        with atomic_file(path) as file:
            picture_of_samples(points).savefig(file, format="png")
    elif path.suffix.lower() == ".npy":
        with atomic_file(path) as file:
            np.save(file, points)
    else:
        header = ",".join(f"x{i + 1}" for i in range(points.shape[1]))
        with atomic_file(path) as file:
            np.savetxt(file, points, delimiter=",", header=header, comments="", fmt="%.9g")
