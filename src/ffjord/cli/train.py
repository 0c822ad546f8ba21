"""`ffjord train`."""

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from ffjord.cli.common import Cluster, check_seed, parse
from ffjord.cli.progress import TrainingDisplay
from ffjord.cli.report import claim_page, finish_page
from ffjord.errors import InputError
from ffjord.experiments import (
    DataConfig,
    Experiment,
    MatchingConfig,
    ModelConfig,
    RegularizationConfig,
    SolveConfig,
    TrainConfig,
    find,
)
from ffjord.runs import Run
from ffjord.units import in_units, units_of

_EXAMPLES = """\
  ffjord train toy/pinwheel
  ffjord train toy/8gaussians --out runs/mine --seed 1 --max-minutes 5
  ffjord train toy/moons --hidden 128 128 --divergence hutchinson --rtol 1e-3 --atol 1e-3
  ffjord train toy/rings --objective flow-matching --dynamics residual --hidden 128 128 128 --average 0.999
  ffjord train toy/rings --warm-start 2000 --steps 2500
  ffjord train toy/moons --kinetic 0.1 --jacobian 0.1
  ffjord train toy/rings --start-from runs/toy/circles --learning-rate 1e-3
  ffjord train toy/picture --image cat.png
  ffjord train image/digits
  srun ffjord train toy/rings --distributed"""


@dataclass(frozen=True)
class Arguments:
    """Trains an experiment into a run directory. Every setting of the experiment can be changed."""

    experiment: tyro.conf.Positional[str]
    """Name of the experiment, as `ffjord list` shows it. It comes first."""
    out: Path | None
    """Run directory; runs/<experiment> if not given. An existing run is never overwritten."""
    seed: int
    """Seed of everything random."""
    report: bool
    """Keep a page about the run up to date: report.html in its directory, with the flow in motion at the end."""
    data: DataConfig
    model: ModelConfig
    solve: SolveConfig
    train: TrainConfig
    matching: MatchingConfig
    regularization: RegularizationConfig
    cluster: Cluster


_SETTINGS = ("data", "model", "solve", "train", "matching", "regularization")


def main(argv: Sequence[str]) -> int:
    experiment = _experiment(argv)
    configs = {name: getattr(experiment, name) for name in _SETTINGS}
    default = Arguments(experiment.name, None, experiment.seed, False, **configs, cluster=Cluster())
    given = parse(Arguments, argv, "train", _EXAMPLES, default)
    if check_seed(given.seed) < 0:
        raise InputError(f"--seed must not be negative; got {given.seed}.")
    settings = {name: getattr(given, name) for name in ("seed", *_SETTINGS)}
    experiment = dataclasses.replace(experiment, **settings)
    path = given.out or Path("runs") / experiment.name
    return start(path, experiment, given.cluster, report=given.report)


def start(path: Path, experiment: Experiment, cluster: Cluster, *, report: bool = False) -> int:
    """Checks all settings, makes the run directory, trains."""
    from ffjord import compilation, devices

    cluster.join()
    compilation.enable_cache()
    check_settings(experiment)
    made = devices.from_writer(lambda: Run.create(path, experiment).experiment.to_dict())
    print(f"{experiment.name}: {experiment.summary}; into {path}")
    _tell_note(experiment)
    return train_and_tell(Run(path, Experiment.from_dict(made)), report=report)


def _tell_note(experiment: Experiment) -> None:
    """Says how the images of an autoencoder differ from the literature's, if they do."""
    from ffjord.data.discrete import discrete_set, is_discrete
    from ffjord.data.images import note

    if not is_discrete(experiment.data.name):
        return
    if about := note(discrete_set(experiment.data.name).name, experiment.data.data_dir):
        print(f"note: {about}.")


def train_and_tell(run: Run, experiment: Experiment | None = None, *, report: bool = False) -> int:
    """Trains a run, if wanted with other settings from here on, with a display; shared by `train` and `resume`."""
    if report:
        claim_page(run)
    train_with_display(run, experiment or run.experiment, report=report)
    if report:
        finish_page(run)
    drawn = "" if run.experiment.file.path else f"; ffjord plot {run.path}"
    print(f"next: ffjord evaluate {run.path}{drawn}")
    return 0


def train_with_display(run: Run, experiment: Experiment, *, report: bool = False) -> None:
    """Trains a run and says how it went. Losses of a fitted table are in its own units, of images in bits/dim."""
    from ffjord.training.run import train_run

    source, units = Run(run.path, experiment).source(), units_of(run)
    display = TrainingDisplay(experiment.train.steps, experiment.train.max_minutes)
    with display, _page(run, experiment, display.tell, report) as follow:

        def show(row: dict[str, Any]) -> None:
            display(in_units(row, units, experiment.train))
            follow(row)

        state = train_run(run, source, show=show, tell=display.tell, experiment=experiment)
    loss, seconds = units.shown(float(state.best_loss)), float(state.seconds)
    print(f"best validation loss {loss:.4f} {units.name}, {int(state.step)} steps in {seconds:.0f} s")


def _page(
    run: Run, experiment: Experiment, tell: Callable[[str], None], wanted: bool
) -> contextlib.AbstractContextManager[Callable[[dict[str, Any]], None]]:
    """What keeps the page of the run up to date, if that is wanted and this process writes."""
    from ffjord import devices

    if not (wanted and devices.is_writer()):
        return contextlib.nullcontext(lambda row: None)
    from ffjord.report.page.live import following

    return following(run, experiment, tell)


def _experiment(argv: Sequence[str]) -> Experiment:
    """The experiment named by the first argument: its settings are the defaults of all options."""
    if not argv or argv[0].startswith("-"):
        if any(word in ("-h", "--help") for word in argv):
            return find("toy/pinwheel")
        raise InputError("name an experiment first: `ffjord train toy/pinwheel`; `ffjord list` shows them all.")
    return find(argv[0])


def check_settings(experiment: Experiment, folder: Path | None = None) -> None:
    """Builds data and model once, so that a wrong setting is named before anything is written."""
    from ffjord import devices
    from ffjord.data.discrete import is_discrete
    from ffjord.data.pictures import is_image
    from ffjord.data.sets import SETS
    from ffjord.experiments.build import build_flow, build_objective, build_source
    from ffjord.matching import check_matching
    from ffjord.training.loop import check

    try:
        check(experiment.train)
        devices.check_batch(experiment.train.batch_size)
        source = build_source(experiment, folder=folder)
        flow = build_flow(experiment, source)
        build_objective(experiment.train, experiment.solve, experiment.matching, experiment.regularization)
        if experiment.train.objective == "flow-matching" or experiment.train.warm_start:
            check_matching(flow)  # pyright: ignore[reportArgumentType] (autoencoders have another objective)
        _trace(flow, source)
        if experiment.train.start_from is not None and folder is None:  # a run that is there has started
            Run.open(Path(experiment.train.start_from)).lend(flow)
        if experiment.data.name in SETS or is_image(experiment.data.name) or is_discrete(experiment.data.name):
            source.batches(0, 1)  # reads the set, so that a missing file is named
    except InputError:
        raise
    except ValueError as error:
        raise InputError(str(error)) from error


def _trace(flow, source) -> None:
    """Runs one evaluation in the abstract: what only shows when the model meets data shows here."""
    import equinox as eqx
    import jax

    abstract = lambda shape: jax.ShapeDtypeStruct((2, *shape), flow.dtype)
    given = None if flow.condition_shape is None else abstract(flow.condition_shape)
    run = lambda x, c: flow.density(x, condition=c, train=True, key=jax.random.key(0)).log_prob
    eqx.filter_eval_shape(run, abstract(source.event_shape), given)
