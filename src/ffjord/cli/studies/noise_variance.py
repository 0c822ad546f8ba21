"""`ffjord reproduce noise-variance`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ffjord.cli.common import parse
from ffjord.cli.studies import Places, as_said, check_at_least, given_runs, make, tell
from ffjord.errors import InputError
from ffjord.reproduce.noise_variance import SKETCH, WHOLE
from ffjord.runs import Run

_EXAMPLES = """\
  ffjord reproduce noise-variance --quick
  ffjord reproduce noise-variance --run runs/image/mnist-fast --data-dir DIR --points 256"""


@dataclass(frozen=True)
class Arguments:
    """Scores validation points again and again with fresh noise in the trace's estimate: the variance of their
    log-likelihood, by noise, probes and number of points. Stopped and started again, it goes on where it was."""

    place: Places = field(default_factory=Places)
    run: tuple[Path, ...] = ()
    """Runs to examine; the multi-scale flow over digits of `ffjord reproduce multiscale` if not given, which is trained
    if it is not there."""
    data_dir: Path | None = None
    """Directory of the data's files, in place of the one that the runs were trained with."""
    points: int | None = None
    """Validation points to score, at most; 5000 if not given, 179 of a sketch."""
    repeats: int | None = None
    """How often each is scored; 16 times if not given, 8 of a sketch."""


def main(argv: Sequence[str]) -> int:
    given = parse(Arguments, argv, "reproduce noise-variance", _EXAMPLES)
    usual = SKETCH if given.place.quick else WHOLE
    points = check_at_least("--points", usual.points if given.points is None else given.points, 2)
    repeats = check_at_least("--repeats", usual.repeats if given.repeats is None else given.repeats, 2)
    for run in map(Run.open, given.run):
        if run.experiment.model.kind != "ffjord" or run.experiment.file.condition_on:
            raise InputError(
                f"--run {run.path} must be of a continuous flow without conditions, whose trace is estimated."
            )
    find = given_runs("--run", given.run, given.data_dir, quick=given.place.quick, images=False)
    from ffjord.reproduce.noise_variance import Amount, study

    choice = {
        "amount": Amount(points, repeats),
        "quick": given.place.quick,
        "words": as_said(given.run, given.data_dir),
    }
    return make("noise-variance", given.place, lambda out, runs: study(out, runs, find(), **choice, tell=tell))
