"""`ffjord score`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from ffjord.cli.common import RunPath, new_file, parse, rows_bar
from ffjord.data.points import read_points
from ffjord.runs import Run

_EXAMPLES = """\
  ffjord score runs/toy/pinwheel points.csv --out scores.csv
  ffjord score pretrained/toy-8gaussians points.npy --out scores.npy"""


@dataclass(frozen=True)
class Arguments:
    """Log-densities (nats, in the data's own units) of the points in a file, a row each."""

    run: RunPath
    points: tyro.conf.Positional[Path]
    """File of points: .csv (a header line is allowed) or .npy."""
    out: Path
    """File to write: .csv or .npy."""
    overwrite: bool = False
    """Replace an existing file."""


def main(argv: Sequence[str]) -> int:
    from ffjord import compilation_cache

    given = parse(Arguments, argv, "score", _EXAMPLES)
    path = new_file(given.out, (".csv", ".npy"), overwrite=given.overwrite)
    run = Run.open(given.run)
    compilation_cache.enable()
    flow = run.flow()
    points = read_points(given.points, columns=flow.event_shape[0])
    _score(flow, points, path, run.experiment.seed)
    print(f"{len(points)} log-densities written to {path}")
    return 0


def _score(flow, points, path: Path, seed: int) -> None:
    import jax
    import numpy as np

    from ffjord.arrays import atomic_file
    from ffjord.scoring import score

    with rows_bar("scoring") as progress:
        log_prob = score(flow, points, progress=progress, key=jax.random.key(seed)).log_prob
    with atomic_file(path) as file:
        if path.suffix.lower() == ".npy":
            np.save(file, log_prob)
        else:
            np.savetxt(file, log_prob, header="log_prob", comments="", fmt="%.9g")
