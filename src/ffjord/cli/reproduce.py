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
  ffjord reproduce --list                  where they are in the paper, what they take
  ffjord reproduce all --quick             a sketch of all of them, and a page with all findings
  ffjord reproduce figure2 --quick
  ffjord reproduce table2 --data power --data-dir DIR --minutes 60

`ffjord reproduce STUDY --help` tells the options of a study."""

_ALL = "all"


def main(argv: Sequence[str]) -> int:
    name, *rest = argv or ["--help"]
    if name in ("-h", "--help"):
        print(_help())
        raise SystemExit(0)
    if name == "--list":
        _list()
        return 0
    if name not in (*STUDIES, _ALL):
        raise InputError(f"there is no study {name!r}; there are {', '.join(STUDIES)}, {_ALL}. The study comes first.")
    return importlib.import_module(f"ffjord.cli.studies.{name.replace('-', '_')}").main(rest)


def _help() -> str:
    about = {name: study.about for name, study in STUDIES.items()}
    about[_ALL] = "all of these, and a page with all findings"
    width = max(map(len, about))
    return _HELP.format(studies="\n".join(f"  {name:<{width}}  {text}" for name, text in about.items()))


def _list() -> None:
    """What each study is, where it is in the paper, and what it takes."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table("study", "what it shows, and where it is in the paper", "--quick", "full", box=box.SIMPLE)
    table.columns[0].no_wrap = True
    table.columns[3].max_width = 11
    for name, study in STUDIES.items():
        data = f"; data: {study.data}" if study.data else ""
        table.add_row(name, f"{study.about}\n[dim]{study.place}{data}[/]", study.quick, study.full)
    console = Console(highlight=False)
    console.print(table)
    console.print(
        "Times are minutes of one core, measured where they have no ~. Without optional data, studies use what comes "
        "with the package. `ffjord reproduce all --quick` sketches them all; STUDY --help tells the options of a study."
    )
