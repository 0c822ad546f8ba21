"""`ffjord plot`."""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ffjord.cli.common import RunPath, check_seed, parse
from ffjord.errors import InputError
from ffjord.progress import rows_bar
from ffjord.runs import Run

_EXAMPLES = """\
  ffjord plot runs/toy/pinwheel
  ffjord plot runs/image/digits --temperatures 0.7 1.0 --samples 36"""

_TEMPERATURES, _SAMPLES, _PAIRS = (0.7, 0.85, 1.0), 24, 4
_POSTERIORS = 2000
"""Of images whose posteriors are drawn."""


@dataclass(frozen=True)
class Arguments:
    """Pictures of a run: figure.png, flow.gif in 1 or 2 dimensions; samples, interpolation and path of images;
    reconstructions and samples of an autoencoder, and its posterior, if its latent space is a plane."""

    run: RunPath
    frames: int = 60
    """Frames of the animation, which with ffmpeg is written as .mp4 too; 0 for none."""
    temperatures: tuple[float, ...] = _TEMPERATURES
    """Of images: draws samples from bases that are stretched by each of these."""
    samples: int = _SAMPLES
    """Of images: how many samples of each temperature, and in the film."""
    data_dir: Path | None = None
    """Directory of the data's files, in place of the one that the run was trained with."""
    seed: int = 0
    """Seed of the samples shown."""


def main(argv: Sequence[str]) -> int:
    given = parse(Arguments, argv, "plot", _EXAMPLES)
    _check(given)
    from ffjord import compilation
    from ffjord.data.pictures import is_image

    compilation.enable_cache()
    run = Run.open(given.run).with_data_dir(given.data_dir)
    pictures = draw_images if is_image(run.experiment.data.name) else draw
    for path in (draw_autoencoder if run.is_autoencoder else pictures)(run, given):
        print(path)
    return 0


def draw(run: Run, given: Arguments) -> Iterator[Path]:
    """Draws the pictures of a run into its directory; yields each file when it is there."""
    import jax

    from ffjord.data.source import Held
    from ffjord.report import animate, figure

    if (given.temperatures, given.samples) != (_TEMPERATURES, _SAMPLES):
        raise InputError(f"{run.path} is no run on images; leave out --temperatures and --samples.")
    if run.experiment.file.condition_on:
        raise InputError(f"{run.path}: a density given conditions has no single picture; use `ffjord sample` instead.")
    flow, data, key = run.flow(), Held.of(run.source().test(20_000)).x, jax.random.key(given.seed)
    if flow.event_shape not in ((1,), (2,)):
        raise InputError(f"{run.path}: only flows in one or two dimensions can be drawn; this has {flow.event_shape}.")
    title = run.experiment.name + (" (standardised columns)" if run.experiment.file.path else "")
    yield _save(run.path / "figure.png", figure(flow, data, key=key, title=title))
    if given.frames:
        with rows_bar("drawing frames") as progress:
            yield from animate(flow, data, run.path / "flow", key=key, frames=given.frames, progress=progress)


def draw_images(run: Run, given: Arguments) -> Iterator[Path]:
    """The same for a run on images; without its data, only what needs none."""
    import jax

    from ffjord.data.pictures import image_set
    from ffjord.report.field import moves
    from ffjord.report.image_path import animate_images
    from ffjord.report.images import figure_of_interpolation, figure_of_samples

    flow, levels, key = run.flow(), image_set(run.experiment.data.name).levels, jax.random.key(given.seed)
    data, name = _test_images(run, max(given.samples, 2 * _PAIRS)), run.experiment.name
    what = {"levels": levels, "n": given.samples, "key": key}
    yield _save(
        run.path / "samples.png", figure_of_samples(flow, data, temperatures=given.temperatures, title=name, **what)
    )
    if data is not None:
        picture = figure_of_interpolation(flow, data, levels=levels, pairs=_PAIRS, title=name)
        yield _save(run.path / "interpolation.png", picture)
    if given.frames and not moves(flow):
        print("no film: the flow has no continuous part, so nothing moves.", file=sys.stderr)
    elif given.frames:
        with rows_bar("drawing frames") as progress:
            yield from animate_images(flow, run.path / "path", frames=given.frames, progress=progress, **what)


def draw_autoencoder(run: Run, given: Arguments) -> Iterator[Path]:
    """The same for an autoencoder."""
    import jax

    from ffjord.report.autoencoder import figure_of_draws, figure_of_latent, figure_of_reconstructions

    vae, key, name = run.model(), jax.random.key(given.seed), run.experiment.name
    what = {"n": given.samples, "key": key, "title": name}
    yield _save(run.path / "samples.png", figure_of_draws(vae, temperatures=given.temperatures, **what))
    data = _test_images(run, _POSTERIORS)
    if data is None:
        return
    yield _save(run.path / "reconstructions.png", figure_of_reconstructions(vae, data, **what))
    if vae.latent == 2:
        yield _save(run.path / "latent.png", figure_of_latent(vae, data, key=key, title=name))


def _test_images(run: Run, n: int) -> Any:
    """The first n test images, or None, and why, where they cannot be had."""
    try:
        return run.source().test(n)
    except InputError as error:
        print(f"only samples are drawn, because there are no images to draw beside them: {error}", file=sys.stderr)
        return None


def _save(path: Path, picture: Any) -> Path:
    from ffjord.arrays import atomic_file

    with atomic_file(path) as file:
        picture.savefig(file, format="png", dpi=150)
    return path


def _check(given: Arguments) -> None:
    if given.frames < 0 or given.frames == 1:
        raise InputError(f"--frames must be 0 or at least 2; got {given.frames}.")
    if not given.temperatures or not all(0 < temperature < math.inf for temperature in given.temperatures):
        raise InputError(f"--temperatures must be positive; got {' '.join(map(str, given.temperatures)) or 'none'}.")
    if not 1 <= given.samples <= 1000:
        raise InputError(f"--samples must be from 1 to 1000; got {given.samples}.")
    check_seed(given.seed)
