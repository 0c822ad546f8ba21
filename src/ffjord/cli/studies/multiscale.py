"""`ffjord reproduce multiscale`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ffjord.cli.common import parse
from ffjord.cli.studies import Places, check_natural, image_run, make, tell
from ffjord.errors import InputError
from ffjord.runs import Run

_EXAMPLES = """\
  ffjord reproduce multiscale --quick
  ffjord reproduce multiscale --multi runs/image/mnist --single runs/image/mnist-single"""


@dataclass(frozen=True)
class Arguments:
    """Trains a multi-scale and a single-scale flow with about as many parameters on the 8 × 8 digits, and draws loss
    against evaluations; or draws trainings that are there. A sketch has 200 steps each. Stopped and started again, it
    goes on where it was."""

    place: Places = field(default_factory=Places)
    multi: Path | None = None
    """Run of a multi-scale flow, in place of training one."""
    single: Path | None = None
    """Run of a single-scale flow, in place of training one."""
    seed: int = 0
    """Seed of everything random."""


def main(argv: Sequence[str]) -> int:
    given = parse(Arguments, argv, "reproduce multiscale", _EXAMPLES)
    check_natural(given.seed)
    paths = {name: path for name, path in (("multi", given.multi), ("single", given.single)) if path is not None}
    runs = {name: _recorded(f"--{name}", path) for name, path in paths.items()}
    from ffjord.reproduce.multiscale import study

    choice = {"quick": given.place.quick, "seed": given.seed}
    return make("multiscale", given.place, lambda out, place: study(out, place, runs, **choice, tell=tell))


def _recorded(name: str, path: Path) -> Run:
    """A run over images whose training has recorded what it did."""
    run = image_run(name, path)
    if run.experiment.train.objective != "likelihood":
        raise InputError(f"{name} {path} was trained by flow matching, which solves nothing; train on the likelihood.")
    if not run.metrics.is_file():
        raise InputError(f"{name} {path} has no metrics.jsonl, in which a training records its losses.")
    return run
