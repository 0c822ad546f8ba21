"""`ffjord fit`."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ffjord.choices import DynamicsName, FlowObjective, MethodName, NonlinearityName
from ffjord.cli.common import check_seed, parse
from ffjord.errors import InputError
from ffjord.experiments import DataConfig, Experiment, FileConfig
from ffjord.runs import Run, check_new

if TYPE_CHECKING:
    from ffjord.table.choose import Chosen

_EXAMPLES = """\
  ffjord fit wine.csv
  ffjord fit houses.parquet --columns price area rooms --dequantize rooms
  ffjord fit houses.csv --columns price --condition-on area rooms
  ffjord fit survey.csv --weights weight --missing drop --out runs/survey --max-minutes 5"""


@dataclass(frozen=True)
class Settings:
    """How to learn. What is not given is chosen by the size of the table."""

    objective: FlowObjective | None = None
    """What training minimises: the likelihood up to 32 columns, flow matching for more, if not given."""
    dynamics: DynamicsName | None = None
    """The network."""
    hidden: tuple[int, ...] | None = None
    """Widths of its hidden layers."""
    nonlinearity: NonlinearityName | None = None
    """Its nonlinearity."""
    steps: int | None = None
    """Most optimiser steps; training stops before when the validation loss no longer improves."""
    max_minutes: float | None = None
    """Stop after so many minutes of training."""
    batch_size: int | None = None
    """Rows a step."""
    learning_rate: float | None = None
    """Peak learning rate of Adam."""
    weight_decay: float | None = None
    """Decoupled weight decay."""
    validate_every: int | None = None
    """Steps between validations."""
    patience: int | None = None
    """Validations without improvement before the learning rate drops, and again before training stops."""
    method: MethodName | None = None
    """ODE solver."""
    num_steps: int | None = None
    """Number of steps of the fixed-step solvers."""
    rtol: float | None = None
    """Relative tolerance in training."""
    atol: float | None = None
    """Absolute tolerance in training."""


@dataclass(frozen=True)
class Arguments:
    """Learns the density of a table's rows, and compares it with simpler densities on rows it has not seen.

    The table is a .csv (any usual delimiter, with or without a header), .npy, .npz or .parquet file. Columns of text,
    and those with one value only, are left out. Rows are split 80 : 10 : 10 for training, validation and testing.
    """

    data: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DATA", help="The table's file. It comes first.")]
    columns: tuple[str, ...] = ()
    """Columns to learn, by name or by number from 1; all that hold numbers if not given."""
    condition_on: tuple[str, ...] = ()
    """Columns that are given: learns p(columns | these)."""
    weights: str | None = None
    """Column with the weight of each row."""
    dequantize: tuple[str, ...] | None = None
    """Columns of whole numbers, or others on a grid, to spread by noise; without names all that look like it."""
    missing: Literal["refuse", "drop"] = "refuse"
    """What to do about missing values (an empty cell, NA, NaN, ?, null): refuse, or drop their rows."""
    out: Path | None = None
    """Run directory; runs/fit/<name of the file> if not given. An existing run is never overwritten."""
    seed: int = 0
    """Seed of everything random, the split too."""
    settings: Settings = field(default_factory=Settings)


def main(argv: Sequence[str]) -> int:
    given = parse(Arguments, argv, "fit", _EXAMPLES)
    if check_seed(given.seed) < 0:
        raise InputError(f"--seed must not be negative; got {given.seed}.")
    path = given.out or Path("runs") / "fit" / given.data.stem
    check_new(path)
    experiment = _experiment(given)
    from ffjord import compilation
    from ffjord.cli.evaluate import evaluate, show_and_write
    from ffjord.cli.train import check_settings, train_with_display

    compilation.enable_cache()
    check_settings(experiment)
    run = Run.create(path, experiment)
    print(f"{experiment.summary}; into {path}", flush=True)
    train_with_display(run, experiment)
    show_and_write(run, evaluate(run))
    print(f"next: ffjord score {path} FILE --out scores.csv; ffjord sample {path} -n 1000 --out samples.csv")
    return 0


def _experiment(given: Arguments) -> Experiment:
    """Reads and checks the table, says what was found, and chooses settings for it."""
    from ffjord import automatic
    from ffjord.table import open_table
    from ffjord.table.choose import choose
    from ffjord.table.rows import digest, prepared

    table, drop = open_table(given.data), given.missing == "drop"
    sha256 = digest(given.data)
    options = {"columns": given.columns, "condition_on": given.condition_on, "weights": given.weights}
    chosen = choose(table, **options, drop_missing=drop)
    names, conditions = (tuple(table.names[j] for j in group) for group in chosen.roles[:2])
    weights = None if chosen.roles.weights is None else table.names[chosen.roles.weights]
    for notice in chosen.notices:
        print(notice, flush=True)
    spread = _dequantized(given, chosen)
    file = FileConfig(str(given.data.resolve()), sha256, names, conditions, weights, spread, given.missing)
    rows = len(prepared(file, given.seed).train.x)
    chosen_by_user = {name: value for name, value in asdict(given.settings).items() if value is not None}
    model, solve, train = automatic.configs(automatic.DEFAULTS | chosen_by_user, rows, len(names))
    return Experiment(
        name=f"fit/{given.data.stem}",
        summary=_summary(given.data, len(chosen.x), names, conditions, train.objective),
        data=DataConfig(name="file"),
        model=model,
        solve=solve,
        train=train,
        seed=given.seed,
        file=file,
    )


def _dequantized(given: Arguments, chosen: "Chosen") -> tuple[str, ...]:
    """Names of the columns to dequantise; says which others look as if they should be."""
    from ffjord.table.prepare import discrete

    table, found = chosen.table, discrete(chosen)
    wanted = [] if given.dequantize is None else table.find(given.dequantize, "--dequantize") or found
    if others := [table.names[column] for column in found if column not in wanted]:
        print(
            f"hint: {', '.join(others)} {'looks' if len(others) == 1 else 'look'} discrete (values on a grid that come "
            f"again and again), where a density grows spikes; consider --dequantize {shlex.join(others)}",
            flush=True,
        )
    return tuple(table.names[column] for column in wanted)


def _summary(path: Path, rows: int, names: tuple[str, ...], conditions: tuple[str, ...], objective: Any) -> str:
    listed = lambda names: ", ".join(names) if len(names) <= 8 else f"{', '.join(names[:7])}, … ({len(names)})"
    given = f" given {listed(conditions)}" if conditions else ""
    return f"{path.name}: the density of {listed(names)}{given} from {rows:,} rows, by {objective}"
