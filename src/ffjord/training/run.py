"""Trains the experiment of a run directory, from its start or from its last checkpoint."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ffjord import devices
from ffjord.arrays import save_arrays, to_dict
from ffjord.data.source import Held, Source
from ffjord.errors import Interrupted, SolveError, StorageError, TrainingError
from ffjord.experiments.build import build_flow, build_objective
from ffjord.experiments.config import Experiment
from ffjord.runs import Run
from ffjord.scoring import score
from ffjord.training.checkpoint import Checkpoints
from ffjord.training.interruption import Interruption
from ffjord.training.loop import Silent, initial_state, train
from ffjord.training.optimizer import optimizer, stages
from ffjord.training.recorder import RunRecorder, Show, cut_metrics
from ffjord.training.state import TrainState, start
from ffjord.vae.fitting import fit_flow


def train_run(
    run: Run,
    source: Source,
    *,
    show: Show,
    tell: Callable[[str], None] = print,
    experiment: Experiment | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> TrainState:
    """Trains to the end, goes on where the last checkpoint left off if there is one, and saves the last state.

    `show` gets every row of metrics, `tell` what a person should know. With `experiment`, the run changes its settings
    to these from here on. It ends early, as if it were done, when `stop` says so. SIGINT and SIGTERM raise
    `Interrupted` once the state is saved; steps that fail for good are a `TrainingError`, a disk that takes no more is
    a `StorageError`. After each of them, and after a kill, `ffjord resume` goes on.
    """
    experiment = experiment or run.experiment
    config, seed = experiment.train, experiment.seed
    with _way_on(run), devices.together(), Interruption(tell) as interruption:
        devices.check_batch(config.batch_size)
        blank = initial_state(build_flow(experiment, source), source, config, seed=seed)
        with _desk(run, experiment, source, blank, show, tell) as (state, recorder):
            validate, ends = _validation(source, seed), lambda: bool(interruption) or stop()
            objective = build_objective(config, experiment.solve, experiment.matching, experiment.regularization)
            try:
                state = train(state, source, objective, validate, config, seed=seed, recorder=recorder, stop=ends)
            except TrainingError as error:
                recorder.save(error.state)
                raise
            recorder.save(state)
    if interruption.signal is not None and int(state.step) < config.steps:
        name = signal.Signals(interruption.signal).name
        raise Interrupted(
            f"stopped by {name} after step {int(state.step)}, and saved. Go on: `ffjord resume {run.path}`.",
            interruption.signal,
        )
    return state


class _Elsewhere(Silent):
    """The recorder of processes that do not write."""

    def save(self, state: TrainState) -> None: ...


@contextlib.contextmanager
def _desk(
    run: Run, experiment: Experiment, source: Source, blank: TrainState, show: Show, tell: Callable[[str], None]
) -> Iterator[tuple[TrainState, RunRecorder | _Elsewhere]]:
    """The state to go on from, and a recorder: the writer's holds lock, checkpoints and metrics."""
    with contextlib.ExitStack() as stack:
        made: list[Any] = []

        def sit_down() -> None:
            stack.enter_context(run.locked())
            changed = run.change(experiment)
            checkpoints = Checkpoints(run.checkpoints, warn=tell)
            state = checkpoints.restore(blank) or _with_lent_weights(blank, experiment, source, tell)
            _prepare(run, state)
            recorder = stack.enter_context(_recording(run, checkpoints, show))
            if changed:
                recorder.event({"step": int(state.step), "event": "settings changed", **changed})
            made.extend([state, recorder])

        devices.from_writer(sit_down)
        state, recorder = made or (blank, _Elsewhere())
        yield devices.arrays_from_writer(state), recorder


def _with_lent_weights(
    blank: TrainState, experiment: Experiment, source: Source, tell: Callable[[str], None]
) -> TrainState:
    """The state before the first step, with the weights of the run that training is to start from, if there is one."""
    config = experiment.train
    if config.start_from is None:
        return blank
    model, count = Run.open(Path(config.start_from)).lend(blank.model)
    tell(f"starting from {config.start_from}: {count} of {len(to_dict(model))} arrays")
    if config.fit_flow:
        model = fit_flow(model, source, config.fit_flow, tell=tell, key=jax.random.key(experiment.seed))
    return start(model, optimizer(stages(config)[0]), average=config.average is not None)


def _prepare(run: Run, state: TrainState) -> None:
    """Brings metrics and best weights in line with the state that training goes on from."""
    cut_metrics(run, int(state.step))
    if np.isfinite(float(state.best_loss)) and not run.weights.is_file():
        save_arrays(run.weights, state.best)


@contextlib.contextmanager
def _recording(run: Run, checkpoints: Checkpoints, show: Show) -> Iterator[RunRecorder]:
    """A recorder; when all is well, everything is on the disk at the end."""
    recorder = RunRecorder(run, checkpoints, show=show)
    try:
        yield recorder
    except BaseException:
        with contextlib.suppress(StorageError):
            recorder.close()
        with contextlib.suppress(StorageError):
            checkpoints.close()
        raise
    recorder.close()
    checkpoints.close()


@contextlib.contextmanager
def _way_on(run: Run) -> Iterator[None]:
    """Adds to an error how to go on after it."""
    try:
        yield
    except TrainingError as error:
        way_on = f"Change a setting and go on, for example: `ffjord resume {run.path} --rtol 1e-3 --atol 1e-3`."
        raise TrainingError(f"{error} {way_on}", error.state) from error
    except (OSError, StorageError) as error:
        why = f"{error.filename}: {error.strerror}." if isinstance(error, OSError) and error.filename else f"{error}"
        whole = sorted(int(path.name) for path in run.checkpoints.glob("[0-9]*") if path.name.isdigit())
        kept = f"the checkpoint of step {whole[-1]} is whole" if whole else "there is no checkpoint yet"
        raise StorageError(
            f"training stopped because {run.path} cannot be written. {why} {kept.capitalize()}; make room (or the "
            f"directory writable), then `ffjord resume {run.path}`."
        ) from error


def _validation(source: Source, seed: int):
    """Mean negative log-likelihood of the validation points, with the testing numerics and always the same noise.

    With weights it is the weighted mean.
    """
    points, key = Held.of(source.validation()), jax.random.fold_in(jax.random.key(seed), 2)

    def validate(flow: Any) -> dict[str, float]:
        try:
            scores = score(flow, points.x, conditions=points.condition, key=key)
        except SolveError:
            return {"loss": float("inf")}
        return {"loss": -float(np.average(scores.log_prob, weights=points.weight)), "nfe": scores.nfe}

    return validate
