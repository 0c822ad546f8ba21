"""The paper's search for an architecture (appendix B.1), or a random or guided one over the same space.

Every trial is a run of its own. The study is kept in a journal on the disk: a search that was stopped, or killed, goes
on where it was, with the trial that was under way. A trial whose validation loss is worse than the median of the others
at the same step is given up.
"""

import dataclasses
import itertools
import math
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from ffjord.errors import InputError, TrainingError
from ffjord.experiments import Experiment
from ffjord.runs import Run

SPACE: dict[str, tuple[Any, ...]] = {
    "flows": (1, 2, 5, 10),
    "layers": (1, 2, 3, 4),
    "multiplier": (5, 10, 20),
    "nonlinearity": ("tanh", "softplus"),
}
"""Flows in a chain, hidden layers, their width as a multiple of the columns, and their nonlinearity."""

SamplerName = Literal["grid", "random", "tpe"]
_FEW = 4
"""Trials that are trained to the end before any is given up."""


def trial_settings(experiment: Experiment, dim: int, values: dict[str, Any]) -> Experiment:
    """The experiment with the architecture of a trial."""
    hidden = (values["multiplier"] * dim,) * values["layers"]
    model = {"hidden": hidden, "flows": values["flows"], "nonlinearity": values["nonlinearity"]}
    return dataclasses.replace(experiment, model=dataclasses.replace(experiment.model, **model))


def trial_name(values: dict[str, Any]) -> str:
    """What the trial's run directory is called, such as 5-flows-3-layers-10x-tanh."""
    return "{flows}-flows-{layers}-layers-{multiplier}x-{nonlinearity}".format(**values)


Train = Callable[[Run, Callable[[int, float], bool]], float]
"""Trains a run and returns its best validation loss. Every validation is told, as (step, loss), to the function that is
given; when that says so, training stops."""


class Search:
    """A study of architectures in a directory."""

    def __init__(
        self, folder: Path, experiment: Experiment, *, sampler: SamplerName, space: dict[str, tuple[Any, ...]] = SPACE
    ):
        self.folder, self.experiment, self.space = folder, experiment, space
        self.study = _study(folder, experiment, sampler)
        self._queue = self._under_way() + (self._grid() if sampler == "grid" else [])

    def run(self, trials: int | None, train: Train) -> None:
        """Goes on until so many trials are finished, or every architecture has been tried."""
        every = math.prod(map(len, self.space.values()))
        while len(self.rows()) < (every if trials is None else min(trials, every)):
            self._one(train)

    def rows(self) -> list[dict[str, Any]]:
        """All finished trials, the best first: what was tried, its best validation loss, and how it ended."""
        first = reversed(
            [trial for trial in self._trials() if not _cut_off(trial)]
        )  # of those that were asked for twice
        rows = {trial_name(trial.params): self._row(trial) for trial in first}
        return sorted(rows.values(), key=lambda row: (row["state"] != "complete", row["loss"]))

    def _row(self, trial: Any) -> dict[str, Any]:
        known = [*trial.intermediate_values.values(), math.inf if trial.value is None else trial.value]
        losses = [loss for loss in known if math.isfinite(loss)]
        about = {"state": trial.state.name.lower(), "steps": max(trial.intermediate_values, default=0)}
        return trial.params | {"loss": min(losses, default=math.inf)} | about | trial.user_attrs

    def _trials(self) -> list[Any]:
        return [trial for trial in self.study.get_trials(deepcopy=False) if trial.state.is_finished()]

    def _under_way(self) -> list[dict[str, Any]]:
        """What was tried when the program ended."""
        from optuna.trial import TrialState

        trials = self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        for trial in trials:
            self.study.tell(trial.number, state=TrialState.FAIL)
        return [trial.params for trial in trials if trial.params]

    def _grid(self) -> list[dict[str, Any]]:
        """All architectures that have not been tried, in random order."""
        known = {trial_name(row) for row in self.rows()}
        grid = [dict(zip(self.space, values, strict=True)) for values in itertools.product(*self.space.values())]
        order = random.Random(self.experiment.seed).sample(grid, len(grid))
        return [values for values in order if trial_name(values) not in known]

    def _one(self, train: Train) -> None:
        from optuna.trial import TrialState

        if self._queue:
            self.study.enqueue_trial(self._queue.pop(0))
        trial, given_up = self.study.ask(), False
        values = {name: trial.suggest_categorical(name, choices) for name, choices in self.space.items()}
        known = next((row for row in self.rows() if trial_name(row) == trial_name(values)), None)
        if known is not None:  # a sampler may ask for the same again
            self.study.tell(trial, None if math.isinf(known["loss"]) else known["loss"], _end(known["loss"]))
            return

        def told(step: int, loss: float) -> bool:
            nonlocal given_up
            trial.report(loss, step)
            given_up = given_up or bool(trial.should_prune())
            return given_up

        run = self._run_of(values)
        trial.set_user_attr("run", run.path.name)
        try:
            loss = train(run, told)
        except TrainingError as error:
            trial.set_user_attr("failed", str(error))
            self.study.tell(trial, state=TrialState.FAIL)
            return
        self.study.tell(trial, None if given_up else loss, TrialState.PRUNED if given_up else _end(loss))

    def _run_of(self, values: dict[str, Any]) -> Run:
        """The run of a trial: a new one, or the one that was cut off."""
        from ffjord.experiments.build import build_source

        path = self.folder / trial_name(values)
        if (path / "config.json").exists():
            return Run.open(path)
        (dim,) = build_source(self.experiment).event_shape
        return Run.create(path, trial_settings(self.experiment, dim, values))


def _end(loss: float) -> Any:
    from optuna.trial import TrialState

    return TrialState.COMPLETE if math.isfinite(loss) else TrialState.FAIL


def _cut_off(trial: Any) -> bool:
    """Whether a trial was under way when the program ended; it is in the queue again."""
    from optuna.trial import TrialState

    return trial.state == TrialState.FAIL and "failed" not in trial.user_attrs


def _study(folder: Path, experiment: Experiment, sampler: SamplerName) -> Any:
    try:
        import optuna
        from optuna.storages.journal import JournalFileBackend
    except ImportError as error:
        raise InputError("a search needs the library Optuna: pip install 'ffjord[search]'.") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    folder.mkdir(parents=True, exist_ok=True)
    chosen = optuna.samplers.TPESampler if sampler == "tpe" else optuna.samplers.RandomSampler
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return optuna.create_study(
            study_name=experiment.name,
            storage=optuna.storages.JournalStorage(JournalFileBackend(str(folder / "study.journal"))),
            sampler=chosen(seed=experiment.seed),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=_FEW),
            load_if_exists=True,
        )
