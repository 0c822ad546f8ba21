"""`ffjord reproduce figure1`."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ffjord.cli.common import parse
from ffjord.cli.studies import Places, check_natural, make, tell

_EXAMPLES = """\
  ffjord reproduce figure1 --quick"""


@dataclass(frozen=True)
class Arguments:
    """Trains a flow on three Gaussians on a line, and draws its density from the base to the data with the paths of
    some samples. A sketch has half of the training."""

    place: Places = field(default_factory=Places)
    seed: int = 0
    """Seed of everything random."""


def main(argv: Sequence[str]) -> int:
    given = parse(Arguments, argv, "reproduce figure1", _EXAMPLES)
    check_natural(given.seed)
    from ffjord.reproduce.figure1 import study

    choice = {"quick": given.place.quick, "seed": given.seed}
    return make("figure1", given.place, lambda out, runs: study(out, runs, **choice, tell=tell))
