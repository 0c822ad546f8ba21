"""`ffjord list`."""

from collections.abc import Sequence
from dataclasses import dataclass

from ffjord.cli.common import parse
from ffjord.experiments import EXPERIMENTS, Experiment
from ffjord.experiments.comparisons import KINDS
from ffjord.experiments.vae import POSTERIORS


@dataclass(frozen=True)
class Arguments:
    """Shows every experiment, with its data, model and the paper's number."""


def main(argv: Sequence[str]) -> int:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    parse(Arguments, argv, "list", "  ffjord list")
    table = Table("experiment", "data", "model and training", "in the paper", box=box.SIMPLE_HEAD)
    table.columns[0].no_wrap = True
    for experiment in EXPERIMENTS.values():
        how = f"{experiment.model.in_short()}\n{_training(experiment)}"
        table.add_row(experiment.name, experiment.summary, how, experiment.paper)
    Console().print(table)
    print(f"With the models that the paper compares with: toy/NAME-glow; table/NAME-MODEL for {', '.join(KINDS)};")
    print(f"vae/NAME-POSTERIOR for {', '.join(POSTERIORS)}.")
    return 0


def _training(experiment: Experiment) -> str:
    return f"{experiment.train.steps} steps of {experiment.train.batch_size}"
