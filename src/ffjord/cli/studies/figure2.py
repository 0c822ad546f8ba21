"""`ffjord reproduce figure2`."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ffjord.cli.common import parse
from ffjord.cli.studies import Places, check_words, make, tell
from ffjord.reproduce.figure2 import DATA

_EXAMPLES = """\
  ffjord reproduce figure2 --quick
  ffjord reproduce figure2 --pretrained
  ffjord reproduce figure2 --data checkerboard rings"""


@dataclass(frozen=True)
class Arguments:
    """Glow with 100 layers and FFJORD on the eight toys, side by side. An hour or two on two cores; a sketch has a
    fifth of the training, and 20 layers of Glow. Stopped and started again, it goes on where it was."""

    place: Places = field(default_factory=Places)
    pretrained: bool = False
    """Take FFJORD's flows that ship with the package in place of training them."""
    data: tuple[str, ...] = DATA
    """Toys to learn."""


def main(argv: Sequence[str]) -> int:
    given = parse(Arguments, argv, "reproduce figure2", _EXAMPLES)
    check_words("--data", given.data, DATA)
    from ffjord.reproduce.figure2 import study

    choice = {"quick": given.place.quick, "data": given.data, "pretrained": given.pretrained}
    return make("figure2", given.place, lambda out, runs: study(out, runs, **choice, tell=tell))
