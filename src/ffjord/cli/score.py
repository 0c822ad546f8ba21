"""`ffjord score`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from ffjord.cli.common import Cluster, RunPath, new_file, parse
from ffjord.data.pictures import is_image
from ffjord.progress import rows_bar
from ffjord.runs import Run

if TYPE_CHECKING:
    from ffjord.table.layout import Layout

_EXAMPLES = """\
  ffjord score runs/toy/pinwheel points.csv --out scores.csv
  ffjord score pretrained/toy-8gaussians points.npy --out scores.npy
  ffjord score runs/fit/wine more.csv --out scores.csv
  ffjord score runs/image/digits images.npy --out scores.csv"""


@dataclass(frozen=True)
class Arguments:
    """Log-densities (nats, in the data's own units) of the points in a file, a row each."""

    run: RunPath
    points: tyro.conf.Positional[Path]
    """File of points: .csv (a header line is allowed) or .npy. Of a run that `ffjord fit` made, any table that it
    reads, with the same columns by name, or by position if they have no names. Of a run on images, a .npy of images
    (n, height, width, channels): whole grey levels, which are dequantised by the run's seed, or pixels in [0, 1]."""
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
    layout = run.layout()
    with devices.together():
        if layout is not None:
            rows = _score_table(run, layout, given.points, path)
        elif is_image(run.experiment.data.name):
            rows = _score_images(run, given.points, path)
        else:
            rows = _score(run, given.points, path)
        print(f"{rows} log-densities written to {path}")
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


def _score_images(run: Run, points: Path, out: Path) -> int:
    """Log-densities of dequantised images, in nats of pixels in [0, 1]."""
    import jax

    from ffjord import devices
    from ffjord.data.pictures import image_set, read_images
    from ffjord.data.points import write_rows
    from ffjord.scoring import score

    about, seed = image_set(run.experiment.data.name), run.experiment.seed
    x, flow = read_images(points, about.shape, about.levels, seed=seed), run.flow()
    with rows_bar("scoring") as progress:
        log_prob = score(flow, x, progress=progress, key=jax.random.key(seed)).log_prob
    if devices.is_writer():
        write_rows(out, [log_prob], names=["log_prob"], shape=log_prob.shape, dtype=flow.dtype)
    return len(log_prob)


def _score_table(run: Run, layout: "Layout", points: Path, out: Path) -> int:
    """Log-densities in the units of the table that a run was fitted to. Whole numbers that it dequantised get noise."""
    import jax
    import numpy as np

    from ffjord import devices
    from ffjord.data.points import write_rows
    from ffjord.scoring import score
    from ffjord.table import open_table
    from ffjord.table.choose import read_numbers

    table = open_table(points)
    columns, given = layout.find(table)
    rows, _ = read_numbers(table, [*columns, *given])
    x = layout.spread(rows[:, : len(columns)], np.random.default_rng(run.experiment.seed))
    conditions = layout.given.standardized(rows[:, len(columns) :]) if given else None
    with rows_bar("scoring") as progress:
        key, z = jax.random.key(run.experiment.seed), layout.data.standardized(x)
        scores = score(run.flow(), z, conditions=conditions, progress=progress, key=key)
    log_prob = scores.log_prob.astype(np.float64) - layout.log_scale
    if devices.is_writer():
        write_rows(out, [log_prob], names=["log_prob"], shape=log_prob.shape, dtype=np.float64)
    return len(log_prob)
