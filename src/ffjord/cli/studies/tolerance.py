"""`ffjord reproduce tolerance`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ffjord.cli.common import parse
from ffjord.cli.studies import Places, check_at_least, make, places, tell
from ffjord.errors import InputError
from ffjord.reproduce.tolerance import FEW_POINTS, POINTS
from ffjord.runs import Run

_EXAMPLES = """\
  ffjord reproduce tolerance --quick
  ffjord reproduce tolerance --run pretrained/toy-1d"""


@dataclass(frozen=True)
class Arguments:
    """Sums the density of a flow on a line over a fine grid, at tolerances from 1e-1 to 1e-8: does it integrate to one?
    In float64 with shared steps and with each point's own, and in float32. A sketch has fewer points."""

    place: Places = field(default_factory=Places)
    run: Path | None = None
    """Run of a flow on a line; that of `ffjord reproduce figure1` if not given, which is trained if it is not there."""
    points: int | None = None
    """Points of the sum; 500,000 if not given, 20,000 of a sketch."""


def main(argv: Sequence[str]) -> int:
    given = parse(Arguments, argv, "reproduce tolerance", _EXAMPLES)
    quick = given.place.quick
    points = check_at_least(
        "--points", (FEW_POINTS if quick else POINTS) if given.points is None else given.points, 100
    )
    run = None if given.run is None else _on_a_line(given.run)
    from ffjord.reproduce import figure1
    from ffjord.reproduce.tolerance import study

    def how(out: Path, runs: Path) -> list[Path]:
        found = run or figure1.trained(places("figure1", quick, None, None)[1], quick=quick, seed=0)[0]
        return study(out, runs, found, points=points, quick=quick, tell=tell)

    return make("tolerance", given.place, how)


def _on_a_line(path: Path) -> Run:
    run = Run.open(path)
    if run.experiment.data.name != "1d":
        raise InputError(f"--run {path} is not of a flow on a line, but of {run.experiment.name}; train toy/1d.")
    return run
