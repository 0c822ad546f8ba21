"""`ffjord reproduce fewer-evaluations`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ffjord.cli.common import parse
from ffjord.cli.studies import check_words, places
from ffjord.errors import InputError
from ffjord.reproduce.recipes import DATA, RECIPES

_EXAMPLES = """\
  ffjord reproduce fewer-evaluations --quick
  ffjord reproduce fewer-evaluations --data checkerboard --recipes paper matching warm-start"""


@dataclass(frozen=True)
class Arguments:
    """What reduces function evaluations and training time: regularisers, flow matching, solver. About an hour and a
    half on two cores. Stopped and started again, it goes on where it was."""

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
    given = parse(Arguments, argv, "reproduce fewer-evaluations", _EXAMPLES)
    if given.recipes == ("help",):
        print("\n".join(f"{name}: {recipe.about}" for name, recipe in RECIPES.items()))
        return 0
    check_words("--data", given.data, tuple(DATA))
    check_words("--recipes", given.recipes, tuple(RECIPES))
    if given.seeds < 1:
        raise InputError(f"--seeds must be at least 1; got {given.seeds}.")
    from ffjord import compilation
    from ffjord.reproduce.fewer_evaluations import study

    compilation.enable_cache()
    out, runs = places("fewer-evaluations", given.quick, given.out, given.runs)
    choice = {"quick": given.quick, "data": given.data, "recipes": given.recipes, "seeds": given.seeds}
    for file in study(out, runs, **choice, tell=lambda text: print(text, flush=True)):
        print(file)
    return 0
