"""`ffjord score`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tyro

from ffjord.cli.common import Cluster, RunPath, new_file, parse
from ffjord.progress import rows_bar
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
    cluster: Cluster = field(default_factory=Cluster)


def main(argv: Sequence[str]) -> int:
    given = parse(Arguments, argv, "score", _EXAMPLES)
    path = new_file(given.out, (".csv", ".npy"), overwrite=given.overwrite)
    run = Run.open(given.run)
    from ffjord import compilation, devices

    given.cluster.join()
    compilation.enable_cache()
    with devices.together():
        print(f"{_score(run, given.points, path)} log-densities written to {path}")
    return 0


def _score(run: Run, points: Path, out: Path) -> int:
    import jax

    from ffjord import devices
    from ffjord.data.points import PointsFile, write_rows
    from ffjord.scoring import score_blocks

    flow, key = run.flow(), jax.random.key(run.experiment.seed)
    with rows_bar("checking") as progress:
        file = PointsFile(points, columns=flow.event_shape[0], dtype=flow.dtype, progress=progress)
    with rows_bar("scoring") as progress:
        scores = score_blocks(flow, file.blocks(), len(file), progress=progress, key=key)
        log_prob = (piece.log_prob for piece in scores)
        if not devices.is_writer():
            return sum(map(len, log_prob))
        write_rows(out, log_prob, names=["log_prob"], shape=(len(file),), dtype=flow.dtype)
    return len(file)
