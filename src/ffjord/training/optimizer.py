"""Adam or Adamax, with schedule, clipping and a weight decay that has an effect."""

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import optax

from ffjord.bijections.repeated import Repeated
from ffjord.experiments.config import TrainConfig


def schedule(config: TrainConfig) -> optax.Schedule:
    """Learning rate by step."""
    peak, decay_steps = config.learning_rate, max(1, config.steps - config.warmup)
    match config.schedule:
        case "constant":
            main = optax.constant_schedule(peak)
        case "cosine":
            main = optax.cosine_decay_schedule(peak, decay_steps)
        case "drop":
            main = optax.piecewise_constant_schedule(peak, {decay_steps // 2: 0.1})
        case _:
            raise ValueError(f"schedule must be constant, cosine or drop; got {config.schedule!r}.")
    if config.warmup == 0:
        return main
    rise = optax.linear_schedule(peak / config.warmup, peak, config.warmup)
    return optax.join_schedules([rise, main], [config.warmup])


def stages(config: TrainConfig) -> tuple[TrainConfig, TrainConfig | None]:
    """The settings of a run as those of its stages: with a warm start, those of flow matching and of the likelihood.

    Each stage has the learning rate's whole curve over its own steps. Flow matching does not stop early.
    """
    if not config.warm_start:
        return config, None
    rate = config.likelihood_learning_rate or 0.1 * config.learning_rate
    rest = max(1, config.steps - config.warm_start)
    first = dataclasses.replace(config, steps=config.warm_start, patience=None)
    return first, dataclasses.replace(config, steps=rest, learning_rate=rate, warmup=min(config.warmup, rest - 1))


@functools.lru_cache(maxsize=8)  # the same object for the same settings, so that the compiled steps are found again
def optimizer(config: TrainConfig) -> optax.GradientTransformation:
    """The update rule. Decay acts on weight matrices, not on biases, gates of t or scalars.

    Adam divides a mean of gradients by their root mean square, Adamax by a running maximum of |g|: a gradient that is a
    hundred times as long as the others moves weights three times as far as usual in Adam, and a tenth as far in Adamax.
    """
    rules = {"adam": optax.scale_by_adam, "adamax": optax.scale_by_adamax}
    if config.optimizer not in rules:
        raise ValueError(f"optimizer must be {' or '.join(rules)}; got {config.optimizer!r}.")
    return optax.chain(
        optax.identity() if config.clip is None else optax.clip_by_global_norm(config.clip),
        rules[config.optimizer](),
        optax.add_decayed_weights(config.weight_decay, mask=_matrices),
        optax.scale_by_learning_rate(schedule(config)),
        optax.identity()
        if config.flow_rate == 1
        else optax.stateless(functools.partial(_flow_slowed, config.flow_rate)),
    )


def _flow_slowed(factor: float, updates: Any, params: Any) -> Any:
    """An autoencoder's updates, of which those of its posterior's flow are so many times as long."""
    flow = lambda vae: vae.posterior.flow
    return eqx.tree_at(flow, updates, jax.tree.map(lambda update: factor * update, flow(updates)))


def _matrices(params: Any) -> Any:
    """Which parameters are matrices. Layers of a `Repeated` are stacked, so that theirs have one axis more."""
    stacked = lambda layers: jax.tree.map(lambda p: p.ndim >= 3, layers)
    mark = lambda node: stacked(node) if isinstance(node, Repeated) else node.ndim >= 2
    return jax.tree.map(mark, params, is_leaf=lambda node: isinstance(node, Repeated))
