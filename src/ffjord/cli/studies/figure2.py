"""`ffjord reproduce figure2`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ffjord.cli.common import parse
from ffjord.cli.studies import check_words, places
from ffjord.reproduce.figure2 import DATA

_EXAMPLES = """\
  ffjord reproduce figure2 --quick
  ffjord reproduce figure2 --pretrained
  ffjord reproduce figure2 --data checkerboard rings"""


@dataclass(frozen=True)
class Arguments:
    """Glow with 100 layers and FFJORD on the eight toys, side by side. An hour or two on two cores. Stopped and started
    again, it goes on where it was."""

    quick: bool = False
    """A sketch in minutes: a twentieth of the training, and 20 layers of Glow."""
    pretrained: bool = False
    """Take FFJORD's flows that ship with the package in place of training them."""
    out: Path | None = None
    """Where table and figure go; results/figure2, or runs/figure2-quick/figures with --quick, if not given."""
    runs: Path | None = None
    """Where the trained models go; runs/figure2 if not given, with -quick at the end for a sketch."""
    data: tuple[str, ...] = DATA
    """Toys to learn."""


def main(argv: Sequence[str]) -> int:
    given = parse(Arguments, argv, "reproduce figure2", _EXAMPLES)
    check_words("--data", given.data, DATA)
    from ffjord import compilation
    from ffjord.reproduce.figure2 import study

    compilation.enable_cache()
    out, runs = places("figure2", given.quick, given.out, given.runs)
    choice = {"quick": given.quick, "data": given.data, "pretrained": given.pretrained}
    for file in study(out, runs, **choice, tell=lambda text: print(text, flush=True)):
        print(file)
    return 0
