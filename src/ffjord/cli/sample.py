"""`ffjord sample`."""

import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from ffjord.cli import autoencoder
from ffjord.cli.common import RunPath, check_seed, new_file, parse
from ffjord.data.discrete import discrete_set
from ffjord.errors import InputError
from ffjord.progress import rows_bar
from ffjord.runs import Run

if TYPE_CHECKING:
    import numpy as np

    from ffjord.flow import Flow
    from ffjord.table.layout import Layout

_EXAMPLES = """\
  ffjord sample runs/toy/pinwheel -n 1000 --out points.csv
  ffjord sample pretrained/toy-8gaussians -n 20000 --out picture.png
  ffjord sample runs/fit/houses -n 1000 --given area=80 rooms=3 --out prices.csv
  ffjord sample runs/fit/houses --given houses.csv --out prices.csv
  ffjord sample runs/image/digits -n 64 --temperature 0.8 --out digits.png
  ffjord sample runs/vae/frey -n 64 --means --out faces.png"""

_DEFAULT, _DEFAULT_IMAGES = 1000, 64
_IN_A_PICTURE, _IMAGES_IN_A_PICTURE = 10_000_000, 10_000


@dataclass(frozen=True)
class Arguments:
    """Draws samples from a trained flow; of a fitted table, in its own columns and units."""

    run: RunPath
    out: Path
    """File to write: .npy, .csv, or .png for a picture. Images are bytes, of shape (n, height, width, channels), in
    .npy, and side by side in .png; they have no .csv."""
    number: Annotated[int | None, tyro.conf.arg(aliases=["-n"])] = None
    """How many samples; as many as --given has rows, or else 1000 (64 images), if not given."""
    temperature: float = 1.0
    """Draws from a base that is stretched by so much: below 1, samples are less varied, and images often cleaner."""
    means: bool = False
    """Of an autoencoder: the mean image of a latent point in place of one drawn from it, in 256 grey levels."""
    given: tuple[str, ...] = ()
    """What a density that was fitted with --condition-on is given: NAME=VALUE for each of these columns, or a file
    with a row for each sample. Their columns are written beside those of the samples."""
    seed: int = 0
    """Seed of the samples."""
    overwrite: bool = False
    """Replace an existing file."""


def main(argv: Sequence[str]) -> int:
    given = parse(Arguments, argv, "sample", _EXAMPLES)
    if given.number is not None and given.number < 1:
        raise InputError(f"-n must be at least 1; got {given.number}.")
    if not 0 < given.temperature < math.inf:
        raise InputError(f"--temperature must be positive; got {given.temperature:g}.")
    path = new_file(given.out, (".npy", ".csv", ".png"), overwrite=given.overwrite)
    check_seed(given.seed)
    _check_room(path, given.number or _DEFAULT)
    run = Run.open(given.run)
    if given.means and not run.is_autoencoder:
        raise InputError(f"--means is for autoencoders, and {run.path} is a flow; leave it out.")
    layout, levels = run.layout(), _levels(run, path)
    levels = 256 if given.means else levels
    conditions = _conditions(layout, given.given)
    n = _number(given.number, conditions, _DEFAULT if levels is None else _DEFAULT_IMAGES)
    _check_room(path, n, _IN_A_PICTURE if levels is None else _IMAGES_IN_A_PICTURE)
    from ffjord import compilation

    compilation.enable_cache()
    flow = _model(run, given)
    if levels is None:
        _sample(flow, layout, conditions, n, given.seed, path)
    else:
        _sample_images(flow, levels, n, given.seed, path)
    print(f"{n} samples written to {path}")
    return 0


def _model(run: Run, given: Arguments) -> Any:
    """What samples are drawn from."""
    if run.is_autoencoder:
        return autoencoder.Sampler(run.model(), means=given.means, temperature=given.temperature)
    return run.flow() if given.temperature == 1 else run.flow().tempered(given.temperature)


def _conditions(layout: "Layout | None", words: tuple[str, ...]) -> "np.ndarray | None":
    """The rows of conditions that a user gave, in their own units; None for a density without conditions."""
    names = () if layout is None else layout.given.names
    if not names or layout is None:
        if words:
            raise InputError("--given was given, but the run's density has no conditions; leave it out.")
        return None
    from ffjord.table.given import conditions

    return conditions(layout, words)


def _levels(run: Run, path: Path) -> int | None:
    """How many grey levels a run's images have; None of a run on something else."""
    from ffjord.data.pictures import image_set, is_image

    if not is_image(run.experiment.data.name) and not run.is_autoencoder:
        return None
    if path.suffix.lower() == ".csv":
        raise InputError(f"--out {path}: images are written as .npy (bytes) or .png (a picture), not as .csv.")
    about = discrete_set if run.is_autoencoder else image_set
    return about(run.experiment.data.name).levels


def _number(number: int | None, conditions: "np.ndarray | None", default: int) -> int:
    """How many samples to draw: one for each row of conditions, or any number if there is but one row."""
    rows = 1 if conditions is None else len(conditions)
    if number is None:
        return rows if rows > 1 else default
    if rows not in (1, number):
        raise InputError(f"-n {number}: --given has {rows} rows; it must have one for all samples, or one for each.")
    return number


def _check_room(path: Path, n: int, in_a_picture: int = _IN_A_PICTURE) -> None:
    """Refuses numbers of samples that a picture, or the disk, cannot hold (a sample takes at least four bytes)."""
    if path.suffix.lower() == ".png" and n > in_a_picture:
        raise InputError(f"-n must be at most {in_a_picture} for a picture; got {n}.")
    free = shutil.disk_usage(path.parent).free
    if 4 * n > free:
        raise InputError(f"-n {n}: the samples need more than the {free / 1e9:.1f} GB that are free in {path.parent}.")


def _sample(
    flow: "Flow", layout: "Layout | None", conditions: "np.ndarray | None", n: int, seed: int, path: Path
) -> None:
    import jax
    import numpy as np

    from ffjord.arrays import atomic_file
    from ffjord.data.points import write_rows
    from ffjord.report import picture_of_samples
    from ffjord.scoring import sample_blocks

    (dim,) = flow.event_shape
    names, dtype, given, restored = [f"x{i + 1}" for i in range(dim)], flow.dtype, None, lambda blocks: blocks
    if layout is not None:
        rows = None if conditions is None else np.broadcast_to(conditions, (n, conditions.shape[1]))
        given = None if rows is None else layout.given.standardized(rows)
        names, dtype = [*layout.data.names, *layout.given.names], np.dtype(np.float64)
        restored = lambda blocks: _restored(layout, rows, blocks)
    with rows_bar("drawing") as progress:
        blocks = restored(sample_blocks(flow, n, conditions=given, progress=progress, key=jax.random.key(seed)))
        if path.suffix.lower() == ".png":
            with atomic_file(path) as file:
                picture_of_samples(np.concatenate([*blocks])[:, :dim]).savefig(file, format="png")
        else:
            write_rows(path, blocks, names=names, shape=(n, len(names)), dtype=dtype)


def _sample_images(flow: "Flow", levels: int, n: int, seed: int, path: Path) -> None:
    import jax
    import numpy as np

    from ffjord.arrays import atomic_file
    from ffjord.data.points import write_rows
    from ffjord.report.mosaic import in_levels, picture_of_images
    from ffjord.scoring import sample_blocks

    with rows_bar("drawing") as progress:
        blocks = sample_blocks(flow, n, progress=progress, key=jax.random.key(seed))
        if path.suffix.lower() == ".png":
            with atomic_file(path) as file:
                picture_of_images(np.concatenate([*blocks]), levels=levels).savefig(file, format="png")
        else:
            images = (in_levels(block, levels) for block in blocks)
            write_rows(path, images, names=(), shape=(n, *flow.event_shape), dtype=np.uint8)


def _restored(layout: "Layout", conditions: "np.ndarray | None", blocks: Any) -> Any:
    """Samples in the table's units, with their conditions beside them."""
    import numpy as np

    done = 0
    for block in blocks:
        rows = layout.restored(block.astype(np.float64))
        yield rows if conditions is None else np.concatenate([rows, conditions[done : done + len(rows)]], axis=1)
        done += len(rows)
