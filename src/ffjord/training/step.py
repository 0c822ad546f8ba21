"""Optimiser steps, several in one compiled call."""

import functools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PRNGKeyArray, PyTree

from ffjord import devices
from ffjord.compilation import compiled
from ffjord.objectives import Objective
from ffjord.parameters import backward_nfe, trainable
from ffjord.training.spectral import limit_norms
from ffjord.training.state import TrainState, replace

Steps = Callable[[TrainState, PyTree, PRNGKeyArray], tuple[TrainState, dict[str, Array]]]


@functools.lru_cache(maxsize=8)
def compile_steps(
    objective: Objective, rule: optax.GradientTransformation, average: float | None, spectral: float | None = None
) -> Steps:
    """A compiled function (state, stacked batches, key) -> (state, stacked metrics).

    The noise of step i derives from (key, i). A step whose loss or gradient is not finite leaves everything as it was,
    except for the counters. The same arguments give the same function: a second training of a kind compiles nothing.
    """

    def one_step(state: TrainState, batch: PyTree, key: PRNGKeyArray) -> tuple[TrainState, dict[str, Array]]:
        step_key = jax.random.fold_in(key, state.step)
        now = getattr(objective, "at", lambda step: objective)(state.step)
        (loss, progress), grads = eqx.filter_value_and_grad(now, has_aux=True)(state.model, batch, step_key)
        counted = backward_nfe(grads)
        grads = eqx.filter(grads, trainable(state.model))
        norm = optax.tree.norm(grads)
        sound = jnp.isfinite(loss) & jnp.isfinite(norm)
        moved = _update(state, grads, progress.observed, rule, average, spectral)
        state = jax.tree.map(lambda new, old: jnp.where(sound, new, old) if eqx.is_array(new) else new, moved, state)
        failures = jnp.where(sound, 0, state.failures + 1)
        state = replace(state, step=state.step + 1, skipped=state.skipped + ~sound, failures=failures)
        metrics = {"loss": loss, **progress.metrics, "backward_nfe": counted, "grad_norm": norm, "sound": sound}
        return state, metrics

    @compiled
    def moving_steps(state: TrainState, batches: PyTree, key: PRNGKeyArray) -> tuple[TrainState, dict[str, Array]]:
        arrays, static = eqx.partition(state, eqx.is_array)

        def body(arrays, batch):
            state, metrics = one_step(eqx.combine(arrays, static), batch, key)
            return eqx.filter(state, eqx.is_array), metrics

        arrays, metrics = jax.lax.scan(body, arrays, batches)
        return eqx.combine(devices.copied(arrays), static), devices.copied(metrics)

    def steps(state: TrainState, batches: PyTree, key: PRNGKeyArray) -> tuple[TrainState, dict[str, Array]]:
        # What no step changes stays outside: copying it in and out is a third of the time where weights are many.
        moved, metrics = moving_steps(replace(state, best=None, good=None), batches, key)
        return replace(moved, best=state.best, good=state.good), metrics

    return steps


def _update(
    state: TrainState,
    grads: PyTree,
    observed: PyTree,
    rule: optax.GradientTransformation,
    average: float | None,
    spectral: float | None,
) -> TrainState:
    params = eqx.filter(state.model, trainable(state.model))
    updates, optimizer = rule.update(grads, state.optimizer, params)
    updates = jax.tree.map(lambda u: state.rate_scale * u, updates)
    model = eqx.apply_updates(state.model, updates)
    if spectral is not None:
        model = limit_norms(model, spectral)
    if observed is not None:
        model = model.absorb(observed)
    state = replace(state, model=model, optimizer=optimizer)
    return state if average is None else replace(state, average=_moved_average(state, average))


def _moved_average(state: TrainState, decay: float) -> PyTree:
    """avg ← d avg + (1 - d) weights, with d rising to `decay` so that the start is forgotten soon."""
    count = state.step.astype(jnp.float32)
    d = jnp.minimum(decay, (1 + count) / (10 + count))
    return jax.tree.map(
        lambda avg, p: d * avg + (1 - d) * p, state.average, eqx.filter(state.model, trainable(state.model))
    )
