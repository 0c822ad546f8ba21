"""`ffjord reproduce nfe-vs-dimension`."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ffjord.cli.common import parse
from ffjord.cli.studies import Places, check_at_least, check_words, make, tell
from ffjord.reproduce.nfe_vs_dimension import SERIES

_EXAMPLES = """\
  ffjord reproduce nfe-vs-dimension --quick
  ffjord reproduce nfe-vs-dimension --dimensions 2 64 --series "eight Gaussians" --steps 3000"""


@dataclass(frozen=True)
class Arguments:
    """Trains flows on densities of the plane that are embedded in 2 to 512 dimensions, and autoencoders with 16 to 64
    latent ones, and counts the evaluations that scoring takes. Stopped and started again, it goes on with the next of
    them."""

    place: Places = field(default_factory=Places)
    dimensions: tuple[int, ...] = ()
    """D; if not given all powers of two up to 512, and 16 to 64 of autoencoders; fewer of a sketch."""
    series: tuple[str, ...] = tuple(SERIES)
    """What is learnt."""
    steps: int | None = None
    """Steps of each training; 1500 if not given, 300 of a sketch."""


def main(argv: Sequence[str]) -> int:
    given = parse(Arguments, argv, "reproduce nfe-vs-dimension", _EXAMPLES)
    quick = given.place.quick
    check_words("--series", given.series, tuple(SERIES))
    for dim in given.dimensions:
        check_at_least("--dimensions", dim, 2)
    steps = check_at_least("--steps", (300 if quick else 1500) if given.steps is None else given.steps, 1)
    from ffjord.reproduce.nfe_vs_dimension import study

    choice = {"quick": quick, "dimensions": given.dimensions, "series": given.series, "steps": steps}
    return make("nfe-vs-dimension", given.place, lambda out, runs: study(out, runs, **choice, tell=tell))
