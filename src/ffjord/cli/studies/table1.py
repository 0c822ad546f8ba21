"""`ffjord reproduce table1`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ffjord.cli.common import parse
from ffjord.cli.studies import places

_EXAMPLES = """\
  ffjord reproduce table1"""


@dataclass(frozen=True)
class Arguments:
    """What each model can do (train on data, sample in one pass, exact likelihood, free-form Jacobian), shown by trying
    it. Takes a minute or two."""

    quick: bool = False
    """The same: it is quick."""
    out: Path | None = None
    """Where the table goes; results/table1, or runs/table1-quick/figures with --quick, if not given."""


def main(argv: Sequence[str]) -> int:
    given = parse(Arguments, argv, "reproduce table1", _EXAMPLES)
    from ffjord import compilation
    from ffjord.reproduce.table1 import study

    compilation.enable_cache()
    out, _ = places("table1", given.quick, given.out, None)
    for file in study(out, tell=lambda text: print(text, flush=True)):
        print(file)
    return 0
