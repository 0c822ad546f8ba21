"""`ffjord reproduce all`."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ffjord.cli.common import parse
from ffjord.cli.studies import check_words, tell
from ffjord.reproduce import STUDIES
from ffjord.reproduce.pages import check_place

_EXAMPLES = """\
  ffjord reproduce all --quick
  ffjord reproduce all --quick --only figure1 tolerance"""


@dataclass(frozen=True)
class Arguments:
    """Makes every study on data that come with the package, and a page with all figures and findings beside the
    paper's. Called again, it skips what is there, and tries again what failed."""

    quick: bool = False
    """A sketch of each: less than an hour in all. Without it, days."""
    out: Path | None = None
    """Where the page goes, and a folder for every study; results, or runs/all-quick with --quick, if not given."""
    only: tuple[str, ...] = tuple(STUDIES)
    """Studies to make."""


def main(argv: Sequence[str]) -> int:
    given = parse(Arguments, argv, "reproduce all", _EXAMPLES)
    check_words("--only", given.only, tuple(STUDIES))
    out = given.out or (Path("runs/all-quick") if given.quick else Path("results"))
    check_place(out, "all", quick=given.quick)
    for name in given.only:
        check_place(out / name, name, quick=given.quick)
    from ffjord.reproduce.everything import everything

    return everything(out, given.only, quick=given.quick, make=_make, tell=tell)


def _make(name: str, words: Sequence[str]) -> int:
    return importlib.import_module(f"ffjord.cli.studies.{name.replace('-', '_')}").main(words)
