"""One training loop for every model."""

import math
import time
from collections.abc import Callable
from typing import Any, Protocol, get_args, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from ffjord import devices
from ffjord.choices import ObjectiveName
from ffjord.data.source import Conditioned, Source
from ffjord.errors import TrainingError
from ffjord.experiments.config import TrainConfig
from ffjord.objectives import Objective, Staged, objective_of
from ffjord.parameters import trainable
from ffjord.solve import MESSAGES, OK
from ffjord.training.optimizer import optimizer, stages
from ffjord.training.state import TrainState, replace, start, validated_model
from ffjord.training.step import compile_steps


@runtime_checkable
class Recorder(Protocol):
    """Who is told what happens in training."""

    def steps(self, rows: list[dict[str, Any]]) -> None:
        """Metrics of steps just taken."""

    def validated(self, row: dict[str, Any], state: TrainState, improved: bool) -> None:
        """A validation was made; `state.best` is the best model so far."""

    def event(self, row: dict[str, Any]) -> None:
        """Something out of the ordinary, named by `row["event"]`."""

    def boundary(self, state: TrainState) -> None:
        """A moment between two compiled calls: the time to write a checkpoint."""


class Silent:
    """A recorder that keeps nothing."""

    def steps(self, rows: list[dict[str, Any]]) -> None: ...
    def validated(self, row: dict[str, Any], state: TrainState, improved: bool) -> None: ...
    def event(self, row: dict[str, Any]) -> None: ...
    def boundary(self, state: TrainState) -> None: ...


def initial_state(model: Any, source: Source, config: TrainConfig, *, seed: int) -> TrainState:
    """The state before the first step; normalisations are set from the first batch, or as many as they want to see."""
    check(config)
    key = jax.random.fold_in(jax.random.key(seed), 1)
    count = max(1, -(-model.rows_to_calibrate() // config.batch_size))
    rows = source.batches(0, count)
    x, condition = Conditioned.of(jax.tree.map(lambda rows: jnp.asarray(rows.reshape(-1, *rows.shape[2:])), rows))
    given = {} if condition is None else {"condition": condition}
    return start(model.calibrate(x, **given, key=key), optimizer(stages(config)[0]), average=config.average is not None)


def train(
    state: TrainState,
    source: Source,
    objective: Objective | Staged,
    validate: Callable[[Any], dict[str, float]],
    config: TrainConfig,
    *,
    seed: int,
    recorder: Recorder | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> TrainState:
    """Trains from `state` to the end: `config.steps`, `config.max_minutes`, early stopping, or when `stop` says so.

    A step that fails (loss or gradient not finite, which includes solves that gave up) changes nothing. After
    `config.max_failures` in a row, training goes back to the last validation that could be solved and goes on from
    there, with other batches and a third of the learning rate; after `config.max_rollbacks` of these it is a
    `TrainingError`. All of this depends on the steps alone and not on the clock, so that a resumed run does the same.

    **Arguments:**

    - `objective`: (model, batch, key) -> (loss, Progress). Two, in `Staged`, take turns at `config.warm_start`: the
        second goes on from the averaged weights, with an optimiser that remembers nothing.
    - `validate`: model -> figures, of which `loss` decides which model is best.
    """
    check(config)
    recorder = recorder or Silent()
    count = math.gcd(config.steps_per_call, config.validate_every, config.steps, config.warm_start)  # one shape
    key = jax.random.key(seed)
    stopped, (early, late) = False, stages(config)
    while int(state.step) < config.steps and not stopped:
        began, first = time.perf_counter(), int(state.step)
        stage = late if late is not None and first >= config.warm_start else early
        if _finished(state, stage):
            break
        if stage is late and first == config.warm_start:
            state = _change_over(state, optimizer(stage))
        steps = compile_steps(objective_of(objective, first), optimizer(stage), config.average, config.spectral_norm)
        batches = jax.tree.map(lambda rows: devices.split(rows, axis=1), source.batches(first, count))
        with devices.spread():
            state, metrics = steps(devices.copied(state), batches, devices.copied(key))
        metrics = {name: np.asarray(values) for name, values in metrics.items()}
        state = replace(state, seconds=float(state.seconds) + devices.agree(time.perf_counter() - began))
        recorder.steps(_rows(first, metrics, float(state.seconds)))
        if int(state.failures) >= config.max_failures:
            state = _go_back(state, config, recorder, _reason(metrics))
        last = int(state.step) >= config.steps or _out_of_time(state, config)
        if int(state.step) % config.validate_every == 0 or last:
            state = _validate(state, validate, stage, recorder)
        recorder.boundary(state)
        stopped = devices.anyone(stop())
    return state


def check(config: TrainConfig) -> None:
    """Refuses settings that make no sense, before any work is done."""
    for name in ("steps", "batch_size", "validate_every", "steps_per_call", "patience", "max_failures"):
        value = getattr(config, name)
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1; got {value}.")
    for name in (
        "learning_rate",
        "likelihood_learning_rate",
        "max_minutes",
        "clip",
        "checkpoint_minutes",
        "flow_rate",
        "spectral_norm",
    ):
        value = getattr(config, name)
        if value is not None and not value > 0:
            raise ValueError(f"{name} must be positive; got {value}.")
    for name in ("weight_decay", "warmup", "kl_warmup", "fit_flow", "warm_start", "drops", "max_rollbacks"):
        if not getattr(config, name) >= 0:
            raise ValueError(f"{name} must not be negative; got {getattr(config, name)}.")
    if config.objective not in get_args(ObjectiveName):
        raise ValueError(f"objective must be one of {', '.join(get_args(ObjectiveName))}; got {config.objective!r}.")
    if config.warm_start and config.objective != "likelihood":
        raise ValueError("warm_start goes before the likelihood; with objective flow-matching leave it out.")
    if config.warm_start >= config.steps:
        raise ValueError(
            f"warm_start must be less than steps, of which it is a part; got {config.warm_start} and {config.steps}."
        )
    if config.average is not None and not 0 < config.average < 1:
        raise ValueError(f"average must be between 0 and 1; got {config.average}.")


def _change_over(state: TrainState, rule: optax.GradientTransformation) -> TrainState:
    """The state in which the likelihood takes over from flow matching."""
    model = validated_model(state)
    memory = rule.init(eqx.filter(model, trainable(model)))
    good = (model, memory, state.average)
    return replace(state, model=model, optimizer=memory, good=good, rate_scale=1.0, since_best=0, drops=0)


def _validate(
    state: TrainState, validate: Callable[[Any], dict[str, float]], config: TrainConfig, recorder: Recorder
) -> TrainState:
    began = time.perf_counter()
    model = validated_model(state)
    figures = validate(model)
    improved = figures["loss"] < float(state.best_loss)
    if improved:
        state = replace(state, best=model, best_loss=figures["loss"], since_best=0)
    elif int(state.step) > config.kl_warmup:  # until then the objective is another
        state = replace(state, since_best=int(state.since_best) + 1)
        state = _maybe_drop(state, config)
    if math.isfinite(figures["loss"]):
        state = replace(state, good=(state.model, state.optimizer, state.average))
    state = replace(state, seconds=float(state.seconds) + devices.agree(time.perf_counter() - began))
    row = {"step": int(state.step)} | {f"validation_{name}": value for name, value in figures.items()}
    recorder.validated(row | {"seconds": round(float(state.seconds), 3)}, state, improved)
    return state


def _go_back(state: TrainState, config: TrainConfig, recorder: Recorder, reason: str) -> TrainState:
    """The state with the weights of `good` and a smaller step; an error if that has been tried often enough."""
    failed = f"{int(state.failures)} steps in a row failed, the last at step {int(state.step)}: {reason}"
    tried, again = int(state.rollbacks), int(state.rollbacks) < config.max_rollbacks
    model, memory, average = state.good
    state = replace(
        state,
        model=model,
        optimizer=memory,
        average=average,
        failures=0,
        rollbacks=tried + 1 if again else 0,
        rate_scale=float(state.rate_scale) / 3,
    )
    event = "rollback" if again else "gave up"
    recorder.event({"step": int(state.step), "event": event, "reason": reason, "rate_scale": float(state.rate_scale)})
    if again:
        return state
    raise TrainingError(
        f"{failed} Going back to sound weights with a smaller learning rate, {tried} times, did not help. What may: "
        "looser tolerances (rtol, atol), a smaller learning_rate, more weight_decay, a regulariser, more max_steps, or "
        "the solver for stiff flows (method kvaerno5).",
        state,
    )


def _reason(metrics: dict[str, np.ndarray]) -> str:
    outcome = int(metrics["outcome"][-1]) if "outcome" in metrics else OK
    return "the loss or its gradient was not finite." if outcome == OK else MESSAGES[outcome]


def _maybe_drop(state: TrainState, config: TrainConfig) -> TrainState:
    """A tenth of the learning rate after `patience` validations without improvement."""
    if config.patience is None or int(state.since_best) < config.patience or int(state.drops) >= config.drops:
        return state
    return replace(state, rate_scale=0.1 * float(state.rate_scale), drops=int(state.drops) + 1, since_best=0)


def _finished(state: TrainState, config: TrainConfig) -> bool:
    exhausted = config.patience is not None and int(state.since_best) >= config.patience
    return (exhausted and int(state.drops) >= config.drops) or _out_of_time(state, config)


def _out_of_time(state: TrainState, config: TrainConfig) -> bool:
    return config.max_minutes is not None and float(state.seconds) >= 60 * config.max_minutes


def _rows(first: int, metrics: dict[str, np.ndarray], seconds: float) -> list[dict[str, Any]]:
    count = len(metrics["loss"])
    columns = {name: values.tolist() for name, values in metrics.items()}
    return [
        {"step": first + i + 1} | {name: values[i] for name, values in columns.items()} | {"seconds": round(seconds, 3)}
        for i in range(count)
    ]
