"""`ffjord reproduce fewer-evaluations`."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ffjord.cli.common import parse
from ffjord.cli.studies import Places, check_at_least, check_words, make, tell
from ffjord.reproduce.recipes import DATA, RECIPES

_EXAMPLES = """\
  ffjord reproduce fewer-evaluations --quick
  ffjord reproduce fewer-evaluations --data checkerboard --recipes paper matching warm-start"""


@dataclass(frozen=True)
class Arguments:
    """What reduces function evaluations and training time: regularisers, flow matching, solver. About an hour and a
    half on two cores; a sketch has a fiftieth of the training. Stopped and started again, it goes on where it was."""

    place: Places = field(default_factory=Places)
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
    check_at_least("--seeds", given.seeds, 1)
    from ffjord.reproduce.fewer_evaluations import study

    choice = {"quick": given.place.quick, "data": given.data, "recipes": given.recipes, "seeds": given.seeds}
    return make("fewer-evaluations", given.place, lambda out, runs: study(out, runs, **choice, tell=tell))
