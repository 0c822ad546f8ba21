"""`ffjord reproduce samples`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ffjord.cli.common import parse
from ffjord.cli.studies import Places, as_said, given_runs, make, tell
from ffjord.errors import InputError

_EXAMPLES = """\
  ffjord reproduce samples --quick
  ffjord reproduce samples --run runs/image/mnist-fast runs/image/cifar10-fast --data-dir DIR"""


@dataclass(frozen=True)
class Arguments:
    """Draws samples of flows over images below test images, and compares the two in numbers. A sketch compares
    fewer."""

    place: Places = field(default_factory=Places)
    run: tuple[Path, ...] = ()
    """Runs to draw from, or pretrained/NAME for packaged models; the multi-scale flow over digits of `ffjord reproduce
    multiscale` if not given, which is trained if it is not there."""
    data_dir: Path | None = None
    """Directory of the data's files, in place of the one that the runs were trained with."""
    temperature: float = 1.0
    """Draws from a base that is stretched by so much."""


def main(argv: Sequence[str]) -> int:
    given = parse(Arguments, argv, "reproduce samples", _EXAMPLES)
    if not 0 < given.temperature < math.inf:
        raise InputError(f"--temperature must be positive; got {given.temperature:g}.")
    find = given_runs("--run", given.run, given.data_dir, quick=given.place.quick, images=True)
    from ffjord.reproduce.samples import study

    choice = {"temperature": given.temperature, "quick": given.place.quick, "words": as_said(given.run, given.data_dir)}
    return make("samples", given.place, lambda out, runs: study(out, runs, find(), **choice, tell=tell))
