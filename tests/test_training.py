"""The training loop, on a model small enough to follow."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ffjord.data import TOYS, FreshSamples
from ffjord.dynamics import Convolution
from ffjord.experiments import ModelConfig, SolveConfig, TrainConfig
from ffjord.models import build_model, ffjord
from ffjord.objectives import Progress, likelihood
from ffjord.parameters import Buffer, trainable
from ffjord.training import Silent, initial_state, train
from ffjord.training.optimizer import _matrices, optimizer, schedule
from ffjord.training.spectral import limit_norms
from ffjord.training.state import start
from ffjord.training.step import compile_steps


class Line(eqx.Module):
    """A model with a matrix, a bias and a buffer."""

    weight: jax.Array
    bias: jax.Array
    seen: Buffer

    def rows_to_calibrate(self):
        return 0

    def calibrate(self, x, *, key):
        return self

    def absorb(self, observed):
        return eqx.tree_at(lambda m: m.seen.array, self, observed)


def line() -> Line:
    return Line(jnp.ones((2, 2)), jnp.ones(2), Buffer(jnp.zeros(())))


def square(model: Line, x, key):
    loss = jnp.mean((x @ model.weight + model.bias) ** 2)
    return loss, Progress({"nfe": jnp.zeros(())}, jnp.mean(x))


SOURCE = FreshSamples(TOYS["moons"], batch_size=16, seed=0, num_validation=64)
CONFIG = TrainConfig(steps=20, batch_size=16, validate_every=10, steps_per_call=5, learning_rate=1e-2)


class Log(Silent):
    def __init__(self):
        self.rows, self.validations = [], []

    def steps(self, rows):
        self.rows += rows

    def validated(self, row, state, improved):
        self.validations.append((row, float(state.rate_scale), improved))


def run(config=CONFIG, objective=square, losses=None, model=None, log=None, source=SOURCE):
    log, values = log or Log(), iter(losses or [])
    validate = lambda model: {
        "loss": next(values, 0.0) if losses else float(square(model, source.validation(), None)[0])
    }
    state = initial_state(model or line(), source, config, seed=0)
    return train(state, source, objective, validate, config, seed=0, recorder=log), log


def test_training_lowers_the_loss_and_records_every_step():
    state, log = run()
    assert [row["step"] for row in log.rows] == list(range(1, 21))
    assert log.rows[-1]["loss"] < log.rows[0]["loss"]
    assert {"loss", "nfe", "backward_nfe", "grad_norm", "seconds"} <= log.rows[0].keys()
    assert [row["step"] for row, *_ in log.validations] == [10, 20]
    assert int(state.step) == 20


def test_the_best_model_is_kept_not_the_last():
    state, log = run(losses=[1.0, 2.0])
    assert [improved for *_, improved in log.validations] == [True, False]
    assert float(state.best_loss) == 1.0
    assert not np.array_equal(state.best.weight, state.model.weight)


def test_buffers_follow_the_data_and_not_the_optimiser():
    state, _ = run()
    assert np.allclose(state.model.seen.array, SOURCE.batches(19, 1).mean(), atol=1e-6)


def test_learning_rate_drops_and_training_stops_early():
    config = dataclasses.replace(CONFIG, steps=1000, patience=2, drops=1)
    state, log = run(config, losses=[1.0] + [2.0] * 50)
    assert [round(scale, 6) for _, scale, _ in log.validations] == [1, 1, 0.1, 0.1, 0.1]
    assert int(state.step) == 50


def test_training_ends_when_the_time_is_up():
    state, log = run(dataclasses.replace(CONFIG, steps=10_000, max_minutes=1e-9))
    assert int(state.step) == 5
    assert len(log.validations) == 1


def test_a_step_that_is_not_finite_changes_nothing_and_is_counted():
    def broken(model, x, key):
        loss, progress = square(model, x, key)
        return loss * jnp.where(x[0, 0] > 0, jnp.nan, 1.0), progress

    steps = compile_steps(broken, optimizer(CONFIG), 0.9)
    state = start(line(), optimizer(CONFIG), average=True)
    bad = jnp.ones((1, 16, 2))
    after, metrics = steps(state, bad, jax.random.key(0))
    assert not bool(metrics["sound"][0])
    assert (int(after.step), int(after.skipped)) == (1, 1)
    for field in ("model", "optimizer", "average"):
        same = jax.tree.map(np.array_equal, getattr(after, field), getattr(state, field))
        assert jax.tree.all(same), field
    good, _ = steps(after, -bad, jax.random.key(0))
    assert int(good.skipped) == 1
    assert not np.array_equal(good.model.weight, after.model.weight)


def test_steps_do_not_copy_what_they_do_not_change():
    state = start(line(), optimizer(CONFIG), average=True)
    after, _ = compile_steps(square, optimizer(CONFIG), 0.9)(state, jnp.ones((1, 16, 2)), jax.random.key(0))
    for field in ("best", "good"):
        same = jax.tree.map(lambda new, old: new is old, getattr(after, field), getattr(state, field))
        assert jax.tree.all(same), field


def test_weight_decay_knows_matrices_of_stacked_layers():
    flow = build_model(2, ModelConfig(kind="glow", flows=3, hidden=(8, 8)), key=jax.random.key(0))
    params = eqx.filter(flow, trainable(flow))
    marked = jax.tree.map(lambda p, matrix: (p.ndim - 1 >= 2) == matrix, params, _matrices(params))
    assert all(jax.tree.leaves(marked))
    assert len(set(jax.tree.leaves(_matrices(params)))) == 2


def test_norms_of_stacked_layers_are_limited_one_by_one():
    flow = build_model(2, ModelConfig(kind="nice", flows=2, hidden=(8, 8)), key=jax.random.key(0))
    scaled = jax.tree.map(lambda p: p * jnp.asarray([1.0, 100.0]).reshape(2, *[1] * (p.ndim - 1)), _stacked(flow))
    limited = limit_norms(_with_stacked(flow, scaled), 3.0)
    for before, after in zip(jax.tree.leaves(scaled), jax.tree.leaves(_stacked(limited)), strict=True):
        if before.ndim == 3 and min(before.shape[1:]) > 1:
            np.testing.assert_array_equal(after[0], before[0])  # small ones stay as they are
            assert float(jnp.linalg.norm(after[1], 2)) < 3.2 < float(jnp.linalg.norm(before[1], 2))


def _stacked(flow):
    return eqx.filter(flow.bijection.parts[1], eqx.is_inexact_array)


def _with_stacked(flow, arrays):
    return eqx.tree_at(lambda f: f.bijection.parts[1], flow, eqx.combine(arrays, flow.bijection.parts[1]))


def test_weight_decay_shrinks_matrices_and_nothing_else():
    zero_loss = lambda model, x, key: (0.0 * jnp.sum(model.weight + model.bias), Progress({}, None))
    rates = dataclasses.replace(CONFIG, weight_decay=0.5, schedule="constant", learning_rate=0.1)
    steps = compile_steps(zero_loss, optimizer(rates), None)
    state, _ = steps(start(line(), optimizer(rates), average=False), jnp.ones((1, 4, 2)), jax.random.key(0))
    assert np.allclose(state.model.weight, 1 - 0.1 * 0.5)
    assert np.array_equal(state.model.bias, line().bias)


@pytest.mark.parametrize(("name", "factor"), [("adam", 3.3), ("adamax", 0.11)])
def test_how_far_a_single_large_gradient_moves_weights(name, factor):
    config = dataclasses.replace(CONFIG, optimizer=name, clip=None, weight_decay=0.0, schedule="constant")
    rule, w = optimizer(config), jnp.ones((1, 1))

    def usual(state, _):
        return rule.update(w, state, w)[1], None

    state, _ = jax.lax.scan(usual, rule.init(w), length=5000)
    update, _ = rule.update(100 * w, state, w)
    assert float(-update[0, 0] / config.learning_rate) == pytest.approx(factor, rel=0.02)


def test_an_optimiser_that_is_not_there_is_named(unchecked):
    with pytest.raises(ValueError, match="optimizer must be adam or adamax; got 'sgd'"):
        optimizer(dataclasses.replace(CONFIG, optimizer="sgd"))


def test_clipping_bounds_the_gradient_the_optimiser_sees():
    rule = optimizer(dataclasses.replace(CONFIG, clip=1e-3, weight_decay=0.0))
    grads = {"w": jnp.full((3, 3), 100.0)}
    _, state = rule.update(grads, rule.init(grads), grads)
    first_moment = optax.tree_utils.tree_get(state, "mu")
    assert np.isclose(optax.tree.norm(first_moment), 0.1 * 1e-3)


def test_schedules_rise_and_fall():
    rate = schedule(dataclasses.replace(CONFIG, steps=100, warmup=10, learning_rate=1.0))
    assert np.isclose(rate(0), 0.1)
    assert np.isclose(rate(10), 1.0)
    assert np.isclose(rate(55), 0.5)
    assert np.isclose(rate(100), 0.0)
    assert schedule(dataclasses.replace(CONFIG, schedule="constant"))(77) == CONFIG.learning_rate


def test_the_moving_average_is_what_is_validated_and_kept():
    state, _ = run(dataclasses.replace(CONFIG, average=0.99))
    assert np.array_equal(state.best.weight, state.average.weight)
    assert not np.allclose(state.model.weight, state.average.weight)


def test_the_same_seed_gives_the_same_weights():
    first, again = run()[0], run()[0]
    assert np.array_equal(first.model.weight, again.model.weight)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("steps", 0),
        ("batch_size", 0),
        ("learning_rate", 0.0),
        ("average", 1.0),
        ("weight_decay", -1.0),
        ("patience", 0),
    ],
)
def test_settings_that_make_no_sense_are_named(field, value):
    with pytest.raises(ValueError, match=field):
        run(dataclasses.replace(CONFIG, **{field: value}))


def test_a_flow_learns_and_its_compiled_step_is_traced_once():
    solve = SolveConfig(method="midpoint", num_steps=3)
    model = ffjord(2, ModelConfig(hidden=(8, 8), norm="moving", flows=2), solve, key=jax.random.key(0))
    traced = []

    def objective(model, x, key):
        traced.append(1)
        return likelihood(model, x, key)

    source = FreshSamples(TOYS["8gaussians"], batch_size=64, seed=0)
    config = TrainConfig(steps=40, batch_size=64, validate_every=20, steps_per_call=10, learning_rate=3e-2)
    log = Log()
    state = initial_state(model, source, config, seed=0)
    train(state, source, objective, lambda m: {"loss": 0.0}, config, seed=0, recorder=log)
    losses = [row["loss"] for row in log.rows]
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) - 0.05
    assert len(traced) == 1, "validation, and what it changes in the state, compiles nothing anew"
    assert log.rows[0]["nfe"] == 2 * 2 * 3


def test_norms_of_kernels_are_limited_as_matrices_of_places_and_channels():
    layer = Convolution(2, 5, key=jax.random.key(0))
    scaled = jax.tree.map(lambda p: 100.0 * p, layer)
    limited = limit_norms(scaled, 3.0)
    norm = lambda layer: float(jnp.linalg.norm(layer.kernel.reshape(18, 5), 2))
    assert norm(limited) < 3.2 < norm(scaled)
    np.testing.assert_allclose(limited.kernel * (norm(scaled) / norm(limited)), scaled.kernel, rtol=1e-4)
    np.testing.assert_array_equal(limited.bias, scaled.bias)
