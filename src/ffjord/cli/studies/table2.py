"""`ffjord reproduce table2`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ffjord.cli.common import parse
from ffjord.cli.studies import Places, check_at_least, check_natural, check_words, make, tell
from ffjord.errors import InputError
from ffjord.reproduce.table2 import DATA, DEFAULT_MODELS, MODELS

_EXAMPLES = """\
  ffjord reproduce table2 --quick
  ffjord reproduce table2 --data power bsds300 --data-dir DIR --minutes 60
  ffjord reproduce table2 --data digits --models maf glow ffjord --minutes 10"""


@dataclass(frozen=True)
class Arguments:
    """Trains every model on a table for the same time, and prints its likelihood beside the paper's. A sketch has half
    a minute a model and 2000 test rows. Stopped and started again, it goes on where it was."""

    data: tuple[str, ...] = ("breast-cancer",)
    """Tables: power, gas, hepmass, miniboone, bsds300 (see `ffjord data`), or scikit-learn's digits, breast-cancer."""
    models: tuple[str, ...] = DEFAULT_MODELS
    """Models to train; nice, planar and iaf are not in the paper's table."""
    minutes: float = 60.0
    """Training time of each model."""
    limit: int = 50_000
    """Test rows to score, at most."""
    data_dir: Path | None = None
    """Directory of the data's files; $FFJORD_DATA and the cache are searched too."""
    seed: int = 0
    """Seed of everything random."""
    place: Places = field(default_factory=Places)


def main(argv: Sequence[str]) -> int:
    given = parse(Arguments, argv, "reproduce table2", _EXAMPLES)
    check_words("--data", given.data, DATA)
    check_words("--models", given.models, MODELS)
    if not 0 < given.minutes < math.inf:
        raise InputError(f"--minutes must be a positive number; got {given.minutes}.")
    check_at_least("--limit", given.limit, 2)
    check_natural(given.seed)
    from ffjord.data.sets import SETS, load
    from ffjord.reproduce.table2 import study

    data_dir = None if given.data_dir is None else str(given.data_dir)
    for name in (name for name in given.data if name in SETS):
        load(name, data_dir)  # says what is missing before any work is done
    quick = given.place.quick
    how = {"minutes": 0.5, "limit": 2000} if quick else {"minutes": given.minutes, "limit": given.limit}
    what = {"data": given.data, "models": given.models, "data_dir": data_dir, "seed": given.seed, "quick": quick}
    return make("table2", given.place, lambda out, runs: study(out, runs, **what, **how, tell=tell))
