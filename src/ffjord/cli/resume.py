"""`ffjord resume`."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ffjord.cli.common import Cluster, RunPath, parse
from ffjord.errors import InputError
from ffjord.experiments import MatchingConfig, RegularizationConfig, SolveConfig, TrainConfig, find
from ffjord.runs import Run

_SETTINGS = ("solve", "train", "matching", "regularization")
_EXAMPLES = """\
  ffjord resume runs/toy/pinwheel
  ffjord resume runs/toy/pinwheel --max-minutes 60
  ffjord resume runs/toy/rings --rtol 1e-3 --atol 1e-3"""


@dataclass(frozen=True)
class Arguments:
    """Goes on with a run from its last checkpoint: without options exactly as if it had never stopped.

    Options change how the run is solved and trained from here on; the change is noted in its config and metrics. With
    other `--steps` the learning rate's curve is stretched to them.
    """

    run: RunPath
    solve: SolveConfig
    train: TrainConfig
    matching: MatchingConfig
    regularization: RegularizationConfig
    cluster: Cluster
    data_dir: Path | None = None
    """Directory of the data's files, in place of the one that the run was trained with so far."""
    report: bool = False
    """Keep a page about the run up to date: report.html in its directory, with the flow in motion at the end."""


def main(argv: Sequence[str]) -> int:
    from ffjord.cli.train import check_settings, train_and_tell

    run = _run(argv)
    default = Arguments(run=Path(argv[0]) if run else Path("RUN"), **_settings(run), cluster=Cluster())
    given = parse(Arguments, argv, "resume", _EXAMPLES, default)
    if run is None:
        raise InputError("name the run directory first: `ffjord resume runs/toy/pinwheel`.")
    for name in ("start_from", "optimizer"):  # the state of one optimiser means nothing to another
        had, wanted = getattr(run.experiment.train, name), getattr(given.train, name)
        if wanted != had:
            option = f"--{name.replace('_', '-')} {wanted}"
            raise InputError(
                f"{option} is for the start of a training, and {run.path} has begun with {had}; leave it out."
            )
    looking = run.with_data_dir(given.data_dir).experiment
    experiment = dataclasses.replace(looking, **{name: getattr(given, name) for name in _SETTINGS})
    from ffjord import compilation

    given.cluster.join()
    compilation.enable_cache()
    if experiment != run.experiment:
        check_settings(experiment, run.path)
    return train_and_tell(run, experiment, report=given.report)


def _run(argv: Sequence[str]) -> Run | None:
    """The run named by the first argument: its settings are the defaults of all options."""
    if not argv or argv[0].startswith("-"):
        return None
    return Run.open(Path(argv[0]))


def _settings(run: Run | None) -> dict[str, Any]:
    experiment = run.experiment if run else find("toy/pinwheel")
    return {name: getattr(experiment, name) for name in _SETTINGS}
