"""`ffjord reproduce`."""

import importlib
from collections.abc import Sequence

from ffjord.errors import InputError
from ffjord.reproduce import STUDIES

_HELP = """\
Makes a figure, a table or a study again from nothing: trains, scores, draws. Stopped and started again, it goes on
where it was.

usage: ffjord reproduce STUDY ...

studies:
{studies}

examples:
  ffjord reproduce figure2 --quick
  ffjord reproduce table2 --data power --data-dir DIR --minutes 60

`ffjord reproduce STUDY --help` tells the options of a study."""


def main(argv: Sequence[str]) -> int:
    name, *rest = argv or ["--help"]
    if name in ("-h", "--help", "--list"):
        width = max(map(len, STUDIES))
        print(_HELP.format(studies="\n".join(f"  {study:<{width}}  {about}" for study, about in STUDIES.items())))
        raise SystemExit(0)
    if name not in STUDIES:
        raise InputError(f"there is no study {name!r}; there are {', '.join(STUDIES)}. The study comes first.")
    return importlib.import_module(f"ffjord.cli.studies.{name.replace('-', '_')}").main(rest)
