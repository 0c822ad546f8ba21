"""`ffjord plot`."""

from collections.abc import Sequence
from dataclasses import dataclass

from ffjord.cli.common import RunPath, check_seed, parse
from ffjord.errors import InputError
from ffjord.progress import rows_bar
from ffjord.runs import Run


@dataclass(frozen=True)
class Arguments:
    """Figure and animation of a 1-D or 2-D flow: data, samples, density, vector field; figure.png and flow.gif."""

    run: RunPath
    frames: int = 60
    """Frames of the animation; 0 for none."""
    seed: int = 0
    """Seed of the samples shown."""


def main(argv: Sequence[str]) -> int:
    given = parse(Arguments, argv, "plot", "  ffjord plot runs/toy/pinwheel")
    if given.frames < 0 or given.frames == 1:
        raise InputError(f"--frames must be 0 or at least 2; got {given.frames}.")
    check_seed(given.seed)
    from ffjord import compilation

    compilation.enable_cache()
    run = Run.open(given.run)
    for path in draw(run, frames=given.frames, seed=given.seed):
        print(path)
    return 0


def draw(run: Run, *, frames: int, seed: int):
    """Draws the pictures of a run into its directory; yields each file when it is there."""
    import jax

    from ffjord.arrays import atomic_file
    from ffjord.data.source import Held
    from ffjord.report import animate, figure

    if run.experiment.file.condition_on:
        raise InputError(f"{run.path}: a density given conditions has no single picture; use `ffjord sample` instead.")
    flow, data, key = run.flow(), Held.of(run.source().test(20_000)).x, jax.random.key(seed)
    if flow.event_shape not in ((1,), (2,)):
        raise InputError(f"{run.path}: only flows in one or two dimensions can be drawn; this has {flow.event_shape}.")
    path = run.path / "figure.png"
    title = run.experiment.name + (" (standardised columns)" if run.experiment.file.path else "")
    with atomic_file(path) as file:
        figure(flow, data, key=key, title=title).savefig(file, format="png", dpi=150)
    yield path
    if frames:
        with rows_bar("drawing frames") as progress:
            yield from animate(flow, data, run.path / "flow", key=key, frames=frames, progress=progress)
