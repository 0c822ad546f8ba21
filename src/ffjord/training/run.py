"""Trains the experiment of a run directory, from its start or from its last checkpoint."""

from typing import Any

import jax

from ffjord.data.source import Source
from ffjord.errors import SolveError
from ffjord.experiments.build import build_flow
from ffjord.objectives import likelihood
from ffjord.runs import Run
from ffjord.scoring import score
from ffjord.training.checkpoint import Checkpoints
from ffjord.training.loop import initial_state, train
from ffjord.training.recorder import RunRecorder, Show, cut_metrics
from ffjord.training.state import TrainState


def train_run(run: Run, source: Source, *, show: Show) -> TrainState:
    """Trains to the end, goes on where the last checkpoint left off if there is one, and saves the last state."""
    config, seed = run.experiment.train, run.experiment.seed
    state = initial_state(build_flow(run.experiment, source), source, config, seed=seed)
    checkpoints = Checkpoints(run.checkpoints)
    if checkpoints.latest() is not None:
        state = checkpoints.restore(state)
    cut_metrics(run, int(state.step))
    recorder = RunRecorder(run, checkpoints, show=show)
    try:
        validate = _validation(source, seed)
        state = train(state, source, likelihood, validate, config, seed=seed, recorder=recorder)
        recorder.save(state)
    finally:
        recorder.close()
        checkpoints.close()
    return state


def _validation(source: Source, seed: int):
    """Mean negative log-likelihood of the validation points, with the testing numerics and always the same noise."""
    points, key = source.validation(), jax.random.fold_in(jax.random.key(seed), 2)

    def validate(flow: Any) -> dict[str, float]:
        try:
            scores = score(flow, points, key=key)
        except SolveError:
            return {"loss": float("inf")}
        return {"loss": -float(scores.log_prob.mean()), "nfe": scores.nfe}

    return validate
