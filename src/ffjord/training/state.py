"""All that training knows at a moment: saved and restored whole, so that a run can go on exactly."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from ffjord.parameters import trainable


class TrainState(eqx.Module):
    """Weights, optimiser, moving average, best model so far, and the counters of early stopping."""

    model: Any
    optimizer: Any
    average: Any
    """Moving average of the trained arrays, or None."""
    best: Any
    """The model with the lowest validation loss so far."""
    step: Int[Array, ""]
    skipped: Int[Array, ""]
    """Steps whose loss or gradient was not finite; they change nothing."""
    failures: Int[Array, ""]
    """How many of them came last, one after another."""
    rollbacks: Int[Array, ""]
    """How often training went back to `good`."""
    good: Any
    """Model, optimiser and average at the last validation that could be solved: where to go back to."""
    rate_scale: Float[Array, ""]
    """Factor on the learning rate: smaller each time that validation stalls or training goes back."""
    best_loss: Float[Array, ""]
    since_best: Int[Array, ""]
    """Validations since the last improvement or drop of the learning rate."""
    drops: Int[Array, ""]
    seconds: Float[Array, ""]
    """Time spent in training so far."""


def start(model: Any, rule: optax.GradientTransformation, *, average: bool) -> TrainState:
    """The state before the first step."""
    params = eqx.filter(model, trainable(model))
    zero = jnp.zeros((), jnp.int32)
    memory = rule.init(params)
    return TrainState(
        model=model,
        optimizer=memory,
        average=params if average else None,
        best=model,
        step=zero,
        skipped=zero,
        failures=zero,
        rollbacks=zero,
        good=(model, memory, params if average else None),
        rate_scale=jnp.ones(()),
        best_loss=jnp.inf * jnp.ones(()),  # of a fixed type, as all that a compiled step takes and gives
        since_best=zero,
        drops=zero,
        seconds=jnp.zeros(()),
    )


def validated_model(state: TrainState) -> Any:
    """The model to validate and keep: with averaged weights where there are any."""
    return state.model if state.average is None else eqx.combine(state.average, state.model)


def replace(state: TrainState, **fields: Any) -> TrainState:
    """The state with some fields changed; plain numbers become arrays of the field's type."""
    for name, value in fields.items():
        old = getattr(state, name)
        value = jnp.asarray(value, old.dtype) if isinstance(old, jax.Array) else value
        state = eqx.tree_at(lambda s, name=name: getattr(s, name), state, value, is_leaf=lambda leaf: leaf is None)
    return state
