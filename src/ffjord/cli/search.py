"""`ffjord search`."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from ffjord.cli.common import check_seed, parse
from ffjord.cli.progress import TrainingDisplay
from ffjord.errors import InputError
from ffjord.experiments import Experiment, find
from ffjord.files import write_json
from ffjord.runs import Run
from ffjord.search import SPACE, SamplerName, Search

_EXAMPLES = """\
  ffjord search table/power --data-dir DIR --max-minutes 30
  ffjord search table/breast-cancer --sampler tpe --trials 12 --steps 500"""


@dataclass(frozen=True)
class Arguments:
    """Looks for the best architecture of an experiment: the paper's grid, or a random or guided search in it.

    flows 1, 2, 5, 10; hidden layers 1 to 4; widths 5, 10 or 20 times the columns; tanh or softplus. Every trial is a
    run in the search's directory, chosen by validation alone. Stopped and started again, it goes on where it was.
    """

    experiment: tyro.conf.Positional[str]
    """Name of the experiment, as `ffjord list` shows it."""
    out: Path | None = None
    """Directory of the search; runs/search/<experiment> if not given."""
    sampler: SamplerName = "grid"
    """All of the grid in random order, architectures at random, or those that earlier trials make likely to be good."""
    trials: int | None = None
    """Stop after so many trials; all 96 architectures if not given."""
    steps: int | None = None
    """Optimiser steps of a trial; the experiment's own if not given."""
    max_minutes: float | None = None
    """Minutes of training of a trial."""
    data_dir: str | None = None
    """Directory of the data's files; $FFJORD_DATA and the cache are searched too."""
    seed: int = 0
    """Seed of everything random."""


def main(argv: Sequence[str]) -> int:
    given = parse(Arguments, argv, "search", _EXAMPLES)
    experiment = _experiment(given)
    if given.trials is not None and given.trials < 1:
        raise InputError(f"--trials must be at least 1; got {given.trials}.")
    from ffjord import compilation
    from ffjord.cli.train import check_settings

    compilation.enable_cache()
    check_settings(experiment)
    folder = given.out or Path("runs") / "search" / experiment.name
    if folder.exists() and not (folder / "study.journal").is_file():
        raise InputError(f"{folder} exists and is not a search; choose another place: --out DIR.")
    search = Search(folder, experiment, sampler=given.sampler, space=SPACE)
    search.run(given.trials, lambda run, told: _trained(search, run, told))
    for path in _written(search):
        print(path)
    return 0


def _experiment(given: Arguments) -> Experiment:
    experiment = find(given.experiment)
    if experiment.model.dynamics != "mlp" or experiment.model.posterior is not None:
        raise InputError(f"{experiment.name} has no perceptron to search for; name an experiment such as table/power.")
    if check_seed(given.seed) < 0:
        raise InputError(f"--seed must not be negative; got {given.seed}.")
    changes = {"steps": given.steps, "max_minutes": given.max_minutes}
    train = dataclasses.replace(experiment.train, **{name: x for name, x in changes.items() if x is not None})
    data = dataclasses.replace(experiment.data, data_dir=given.data_dir)
    return dataclasses.replace(experiment, train=train, data=data, seed=given.seed)


def _trained(search: Search, run: Run, told: Callable[[int, float], bool]) -> float:
    """Trains one trial, with a display, and brings table and picture up to date."""
    from ffjord.training.run import train_run

    given_up = False
    print(f"trial {len(search.rows()) + 1}: {run.path.name}", flush=True)

    def show(row: dict) -> None:
        nonlocal given_up
        display(row)
        if "validation_loss" in row and row["validation_loss"] is not None:
            given_up = told(row["step"], row["validation_loss"]) or given_up

    with TrainingDisplay(run.experiment.train.steps, run.experiment.train.max_minutes) as display:
        state = train_run(run, run.source(), show=show, tell=display.tell, stop=lambda: given_up)
    _written(search)
    return float(state.best_loss)


def _written(search: Search) -> list[Path]:
    """The table, the picture and the numbers, as far as they are known."""
    from ffjord.files import atomic_file
    from ffjord.report.search import draw_search, search_table

    rows, names = search.rows(), list(SPACE)
    page = f"# Search for {search.experiment.name}\n\nThe best validation loss of every trial, in nats.\n\n"
    page += f"![validation loss against every choice](search.png)\n\n{search_table(rows, names)}"
    paths = [search.folder / name for name in ("search.md", "search.png", "search.json")]
    with atomic_file(paths[0], "w") as file:
        file.write(page)
    with atomic_file(paths[1]) as file:
        draw_search(rows, SPACE).savefig(file, format="png", dpi=110)
    write_json(paths[2], rows)
    return paths
