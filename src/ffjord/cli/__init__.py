"""The command line. Each command is a small file; a command's libraries are imported when it runs."""

import importlib
import os
import sys
from collections.abc import Sequence

from ffjord._version import __version__
from ffjord.cli import large_pages
from ffjord.errors import Answer

COMMANDS = {
    "list": "every experiment, with its data, model and the paper's number",
    "train": "train an experiment into a run directory",
    "fit": "learn the density of a table: .csv, .npy, .npz or .parquet",
    "resume": "go on with a run where it stopped",
    "evaluate": "test likelihood of a run, exact and with its standard error",
    "compare": "runs side by side: likelihoods, differences on the same points, and what they cost",
    "report": "the page of a run: curves, results, checks, and the flow in motion, in one HTML file",
    "check": "can the numbers of a run be trusted? Verdicts, and samples against data",
    "sample": "draw samples: .npy, .csv or a picture",
    "score": "log-densities of the points in a file",
    "plot": "pictures and animation of a 1-D or 2-D flow, or of one over images",
    "data": "the paper's tables and images: what is there, get one, check one",
    "search": "look for the best architecture of an experiment",
    "reproduce": "make a figure, a table or a study again from nothing",
}

_HELP = """\
ffjord {version}: continuous normalizing flows. Learn a density, score points, draw samples.

usage: ffjord COMMAND ...

commands:
{commands}

examples:
  ffjord train toy/pinwheel            train (a few minutes), into runs/toy/pinwheel
  ffjord evaluate runs/toy/pinwheel    how good is it?
  ffjord plot runs/toy/pinwheel        what does it look like?
  ffjord sample runs/toy/pinwheel -n 1000 --out points.csv
  ffjord score pretrained/toy-8gaussians points.csv --out scores.csv
  ffjord fit wine.csv                  learn your own table, into runs/fit/wine

`ffjord COMMAND --help` tells the options of a command.
FFJORD_CACHE=off turns the cache of compiled programs off; FFJORD_CACHE=DIR moves it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns the exit code: 0 done, 1 a failure on the way, 2 an input that cannot be used, 128 + n
    stopped by signal n."""
    name, *rest = [*(sys.argv[1:] if argv is None else argv)] or ["--help"]
    if name in ("-h", "--help", "help"):
        print(_help())
        return 0
    if name == "--version":
        print(f"ffjord {__version__}")
        return 0
    if name not in COMMANDS:
        return _complain(f"there is no command {name!r}; there are {', '.join(COMMANDS)}. `ffjord --help` tells more.")
    if argv is None:  # a process of our own
        large_pages.restart()
    try:
        return _run(name, rest)
    except Answer as error:
        return _complain(str(error), code=error.exit_code)
    except KeyboardInterrupt:
        print("\nffjord: interrupted.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return _complain(f"{error.filename or 'a file'}: {error.strerror}.", code=1)


def _run(name: str, rest: list[str]) -> int:
    command = importlib.import_module(f"ffjord.cli.{name}")
    return command.main(rest)


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {about}" for name, about in COMMANDS.items()]
    return _HELP.format(version=__version__, commands="\n".join(lines))


def _complain(message: str, code: int = 2) -> int:
    print(f"ffjord: {message}", file=sys.stderr)
    if "ffjord.devices" in sys.modules:
        return sys.modules["ffjord.devices"].leave(code)
    return code
