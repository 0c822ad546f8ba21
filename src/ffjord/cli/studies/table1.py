"""`ffjord reproduce table1`."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ffjord.cli.common import parse
from ffjord.cli.studies import Places, make, tell

_EXAMPLES = """\
  ffjord reproduce table1"""


@dataclass(frozen=True)
class Arguments:
    """What each model can do (train on data, sample in one pass, exact likelihood, free-form Jacobian), shown by trying
    it. Takes a minute or two; a sketch is the same."""

    place: Places = field(default_factory=Places)


def main(argv: Sequence[str]) -> int:
    given = parse(Arguments, argv, "reproduce table1", _EXAMPLES)
    from ffjord.reproduce.table1 import study

    return make("table1", given.place, lambda out, runs: study(out, quick=given.place.quick, tell=tell))
