"""`ffjord reproduce`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from ffjord.cli.common import parse
from ffjord.errors import InputError
from ffjord.reproduce import STUDIES
from ffjord.reproduce.recipes import DATA, RECIPES

_EXAMPLES = """\
  ffjord reproduce fewer-evaluations --quick
  ffjord reproduce fewer-evaluations --data checkerboard --recipes paper matching warm-start"""


@dataclass(frozen=True)
class Arguments:
    """Makes a study again from nothing: trains, scores, draws. Stopped and started again, it goes on where it was.

    studies: fewer-evaluations (what reduces function evaluations and training time).
    """

    study: tyro.conf.Positional[str]
    """Name of the study."""
    quick: bool = False
    """A sketch in minutes: a fiftieth of the training."""
    out: Path | None = None
    """Where tables and figures go; results/<study>, or runs/<study>-quick with --quick, if not given."""
    runs: Path | None = None
    """Where the trained models go; runs/<study> if not given, with -quick at the end for a sketch."""
    data: tuple[str, ...] = tuple(DATA)
    """Data sets to learn."""
    recipes: tuple[str, ...] = tuple(RECIPES)
    """Ways to train, among those that `ffjord reproduce fewer-evaluations --recipes help` shows."""
    seeds: int = 1
    """Seeds for the recipes that the goals are about; the others have one."""


def main(argv: Sequence[str]) -> int:
    given = parse(Arguments, argv, "reproduce", _EXAMPLES)
    if given.study not in STUDIES:
        raise InputError(f"there is no study {given.study!r}; there are {', '.join(STUDIES)}.")
    if given.recipes == ("help",):
        print("\n".join(f"{name}: {recipe.about}" for name, recipe in RECIPES.items()))
        return 0
    for name, chosen, known in (("--data", given.data, DATA), ("--recipes", given.recipes, RECIPES)):
        unknown = [word for word in chosen if word not in known]
        if unknown or not chosen:
            raise InputError(f"{name} must be of {', '.join(known)}; got {' '.join(unknown) or 'nothing'}.")
    if given.seeds < 1:
        raise InputError(f"--seeds must be at least 1; got {given.seeds}.")
    from ffjord import compilation
    from ffjord.reproduce.fewer_evaluations import study

    compilation.enable_cache()
    name = given.study + ("-quick" if given.quick else "")
    out = given.out or (Path("runs") / name / "figures" if given.quick else Path("results") / name)
    runs = given.runs or Path("runs") / name
    choice = {"quick": given.quick, "data": given.data, "recipes": given.recipes, "seeds": given.seeds}
    for file in study(out, runs, **choice, tell=lambda text: print(text, flush=True)):
        print(file)
    return 0
