"""Flow matching: the interpolants, the couplings, and that what it learns is the density."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from ffjord.bijections import CNF, ActNorm, Chain, MovingNorm, Numerics, Standardize
from ffjord.data import FreshSamples
from ffjord.data.source import Conditioned, Rows
from ffjord.divergence import Exact
from ffjord.dynamics import MLP, ResidualMLP
from ffjord.experiments import MatchingConfig, ModelConfig, RegularizationConfig, SolveConfig, TrainConfig
from ffjord.experiments.build import build_objective
from ffjord.flow import Flow, StandardNormal
from ffjord.matching import FlowMatching, check_matching, draw_times, interpolate, optimal_assignment
from ffjord.models import ffjord
from ffjord.objectives import Likelihood, Staged, Tightening, likelihood, objective_of
from ffjord.parameters import trainable
from ffjord.scoring import score
from ffjord.solve import Solver
from ffjord.training import Silent, initial_state, train
from ffjord.training.loop import check
from ffjord.training.optimizer import stages

KEY = jax.random.key(0)


@pytest.mark.parametrize("kind", ["straight", "trigonometric"])
def test_paths_lead_from_base_to_data_at_the_given_velocity(kind):
    rng = np.random.default_rng(0)
    z, x = (jnp.asarray(rng.normal(size=(6, 2)), jnp.float32) for _ in range(2))
    at = lambda s: interpolate(kind, z, x, jnp.full(6, s))
    np.testing.assert_allclose(at(0.0)[0], z, atol=1e-6)
    np.testing.assert_allclose(at(1.0)[0], x, atol=1e-6)
    slope = jax.jvp(lambda s: at(s)[0], (0.3,), (1.0,))[1]
    np.testing.assert_allclose(at(0.3)[1], slope, atol=1e-5)


def test_the_trigonometric_path_keeps_the_variance_of_independent_ends():
    z, x = (jax.random.normal(jax.random.key(i), (20_000, 1)) for i in range(2))
    middle, _ = interpolate("trigonometric", z, x, jnp.full(20_000, 0.5))
    assert float(jnp.var(middle)) == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("kind", ["uniform", "stratified", "logit-normal"])
def test_times_lie_between_base_and_data(kind):
    s = np.asarray(draw_times(kind, 1000, jnp.float32, key=KEY))
    assert s.min() >= 0
    assert s.max() <= 1
    assert s.mean() == pytest.approx(0.5, abs=0.05)


def test_stratified_times_have_one_in_every_part():
    s = np.sort(draw_times("stratified", 100, jnp.float32, key=KEY))
    np.testing.assert_array_equal(np.floor(100 * s + 1e-4), np.arange(100))
    assert not np.array_equal(s, draw_times("stratified", 100, jnp.float32, key=KEY))  # in no order


def test_the_coupling_is_the_optimal_assignment():
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(2, 40, 3))
    chosen = np.asarray(optimal_assignment(jnp.asarray(x), jnp.asarray(z)))
    cost = ((x[:, None] - z[None]) ** 2).sum(-1)
    rows, columns = linear_sum_assignment(cost)
    assert sorted(chosen) == list(range(40))
    assert cost[np.arange(40), chosen].sum() == pytest.approx(cost[rows, columns].sum(), rel=1e-5)


class Known(eqx.Module):
    """f = (x₁ - z) / (1 - t) for a single data point x₁: what flow matching has to find."""

    target: jax.Array

    def __call__(self, t, z):
        return (self.target - z) / (1 - t)


def one(dynamics, end_time=1.0) -> Flow:
    numerics = Numerics(Exact(), Solver())
    return Flow(StandardNormal((2,)), CNF(dynamics, end_time=end_time, training=numerics, testing=numerics))


def test_the_loss_is_zero_at_the_velocity_field_of_the_paths():
    target = jnp.asarray([1.0, -2.0])
    x = jnp.broadcast_to(target, (64, 2))
    loss, (metrics, _) = FlowMatching(times="uniform")(one(Known(target)), x, KEY)
    assert float(loss) < 1e-6
    assert float(metrics["nfe"]) == 1
    worse, _ = FlowMatching()(one(Known(target + 1)), x, KEY)
    assert float(worse) > 0.1


class Longer(eqx.Module):
    """The same field when the path takes twice the time."""

    inner: Known

    def __call__(self, t, z):
        return self.inner(t / 2, z) / 2


def test_the_loss_does_not_depend_on_the_units_of_time():
    target, x = jnp.asarray([1.0, -2.0]), jnp.zeros((64, 2))
    short, _ = FlowMatching()(one(Known(target)), x, KEY)
    long, _ = FlowMatching()(one(Longer(Known(target)), end_time=2.0), x, KEY)
    assert float(long) == pytest.approx(float(short), rel=1e-4)


def test_coupling_shortens_the_paths(build):
    model, x = one(build(MLP, 2, (4,))), jax.random.normal(jax.random.key(3), (64, 2)) + 3
    still = eqx.tree_at(lambda m: m.bijection.dynamics, model, Still())
    lengths = [float(FlowMatching(coupling=c)(still, x, KEY)[0]) for c in ("independent", "optimal")]
    assert lengths[1] < 0.95 * lengths[0]


class Still(eqx.Module):
    """f = 0: the loss is then the mean squared velocity."""

    def __call__(self, t, z):
        return jnp.zeros_like(z)


def test_normalisations_around_the_continuous_part_are_passed_and_do_not_learn(build):
    cnf = one(build(MLP, 2, (4,))).bijection
    model = Flow(
        StandardNormal((2,)), Chain([cnf, ActNorm((2,)), MovingNorm((2,)), Standardize(np.zeros(2), np.ones(2))])
    )
    x = 5 + jax.random.normal(KEY, (32, 2))
    model = model.calibrate(x, key=KEY)
    (loss, progress), grads = eqx.filter_value_and_grad(FlowMatching(), has_aux=True)(model, x, KEY)
    alone, _ = FlowMatching()(Flow(model.base, cnf), model.bijection.parts[1].inverse(x).value, KEY)
    assert np.isfinite(float(loss))
    assert np.isfinite(float(alone))
    assert float(jnp.max(jnp.abs(grads.bijection.parts[1].log_scale))) == 0
    assert float(jnp.max(jnp.abs(grads.bijection.parts[0].dynamics.layers[0].linear.weight))) > 0
    moved = model.absorb(progress.observed).bijection.parts[2].mean.value
    assert moved.shape == (2,)


@pytest.mark.usefixtures("unchecked")
def test_refusals(build):
    cnf = one(build(MLP, 2, (4,))).bijection
    with pytest.raises(ValueError, match="exactly one continuous part; this one has 2"):
        check_matching(Flow(StandardNormal((2,)), Chain([cnf, cnf])))
    with pytest.raises(ValueError, match="exactly one continuous part; this one has 0"):
        check_matching(Flow(StandardNormal((2,)), ActNorm((2,))))
    with pytest.raises(ValueError, match="coupling must be independent where there are conditions"):
        FlowMatching(coupling="optimal")(one(cnf.dynamics), Conditioned(jnp.zeros((4, 2)), jnp.zeros((4, 1))), KEY)
    with pytest.raises(ValueError, match="interpolant must be one of straight, trigonometric; got 'bent'"):
        FlowMatching(interpolant="bent")  # pyright: ignore[reportArgumentType]


def draw(n, rng):
    return np.stack([2 + 0.5 * rng.normal(size=n), -1 + 2 * rng.normal(size=n)], axis=1)


ENTROPY = 2 * 0.5 * np.log(2 * np.pi * np.e) + np.log(0.5 * 2)
MODEL = ModelConfig(dynamics="residual", hidden=(32, 32), nonlinearity="swish", end_time=1.0)
SOLVE = SolveConfig(rtol=1e-3, atol=1e-3, test_rtol=1e-4, test_atol=1e-4)
TRAIN = TrainConfig(
    objective="flow-matching", steps=600, batch_size=128, learning_rate=5e-3, average=0.95, validate_every=300
)


class Log(Silent):
    def __init__(self):
        self.rows = []

    def steps(self, rows):
        self.rows += rows


def fit(train_config, **parts):
    source = FreshSamples(draw, batch_size=train_config.batch_size, seed=0, num_validation=512)
    regularization = parts.get("regularization", RegularizationConfig())
    flow = ffjord(2, MODEL, SOLVE, regularization, key=KEY)
    objective = build_objective(train_config, SOLVE, parts.get("matching", MatchingConfig()), regularization)
    validate = lambda flow: {"loss": -float(score(flow, source.validation()).log_prob.mean())}
    log = Log()
    state = initial_state(flow, source, train_config, seed=0)
    return train(state, source, objective, validate, train_config, seed=0, recorder=log), log


@pytest.mark.parametrize(
    "matching",
    [
        pytest.param(MatchingConfig(), id="plain"),
        pytest.param(MatchingConfig("optimal", "trigonometric", "uniform"), id="options", marks=pytest.mark.slow),
    ],
)
def test_flow_matching_learns_the_density(matching):
    state, log = fit(TRAIN, matching=matching)
    assert float(state.best_loss) < ENTROPY + 0.12
    assert {row["nfe"] for row in log.rows} == {1.0}


def test_a_warm_start_is_followed_by_the_likelihood_in_one_run():
    config = dataclasses.replace(
        TRAIN, objective="likelihood", steps=240, warm_start=200, validate_every=40, average=0.9
    )
    state, log = fit(config)
    nfe = [row["nfe"] for row in log.rows]
    assert nfe[:200] == [1.0] * 200
    assert min(nfe[200:]) > 1
    assert int(state.step) == 240
    count = [leaf for leaf in jax.tree.leaves(state.optimizer) if leaf.ndim == 0]
    assert {int(c) for c in count} == {40}  # the second stage's optimiser has seen its own steps only


def test_stages_have_their_own_learning_rates():
    config = TrainConfig(steps=1000, warm_start=800, learning_rate=1e-2, patience=3)
    first, second = stages(config)
    assert second is not None
    assert (first.steps, first.learning_rate, first.patience) == (800, 1e-2, None)
    assert (second.steps, second.learning_rate, second.patience) == (200, 1e-3, 3)
    assert stages(dataclasses.replace(config, likelihood_learning_rate=5e-4))[1].learning_rate == 5e-4  # pyright: ignore[reportOptionalMemberAccess]
    assert stages(TrainConfig()) == (TrainConfig(), None)


def test_objectives_of_a_configuration():
    build = lambda **train: build_objective(
        TrainConfig(**train), SolveConfig(start_tolerance=1e-2), MatchingConfig(), RegularizationConfig(kinetic=0.1)
    )
    assert build(objective="flow-matching") == FlowMatching()
    then = Likelihood((("kinetic", 0.1),), Tightening(1e-2 / 1e-5, 5000))
    assert build() == then
    assert build(warm_start=10) == Staged(FlowMatching(), 10, then)
    assert objective_of(build(warm_start=10), 9) == FlowMatching()
    assert objective_of(build(warm_start=10), 10) == then
    assert objective_of(likelihood, 3) is likelihood
    with pytest.raises(ValueError, match="start_tolerance must not be less than rtol"):
        build_objective(TrainConfig(), SolveConfig(start_tolerance=1e-7), MatchingConfig(), RegularizationConfig())


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"objective": "luck"}, "objective must be one of likelihood, flow-matching, elbo; got 'luck'"),
        ({"warm_start": 5000}, "warm_start must be less than steps"),
        ({"warm_start": -1}, "warm_start must not be negative"),
        ({"warm_start": 5, "objective": "flow-matching"}, "warm_start goes before the likelihood"),
        ({"spectral_norm": 0.0}, "spectral_norm must be positive"),
        ({"likelihood_learning_rate": -1.0}, "likelihood_learning_rate must be positive"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_settings_that_make_no_sense(fields, words):
    with pytest.raises(ValueError, match=words):
        check(TrainConfig(**fields))


def test_tolerances_fall_evenly_on_a_log_scale_to_what_they_should_be(build):
    tightening = Tightening(100.0, 10)
    factors = [float(tightening.factor(jnp.asarray(step))) for step in (0, 5, 10, 20)]
    np.testing.assert_allclose(factors, [100, 10, 1, 1], rtol=1e-5)
    model = one(build(MLP, 2, (8, 8)), end_time=4.0)
    x = 3 * jax.random.normal(KEY, (32, 2))
    objective = Likelihood(tightening=Tightening(1e4, 10))
    nfe = [float(objective.at(jnp.asarray(step))(model, x, KEY)[1].metrics["nfe"]) for step in (0, 10)]
    assert nfe[0] < nfe[1]
    assert nfe[1] == float(likelihood(model, x, KEY)[1].metrics["nfe"])


def test_spectral_normalisation_bounds_every_matrix():
    config = dataclasses.replace(TRAIN, steps=20, validate_every=20, spectral_norm=0.5, average=None)
    state, _ = fit(config)
    matrices = [p for p in jax.tree.leaves(eqx.filter(state.model, trainable(state.model))) if p.ndim == 2]
    norms = [np.linalg.norm(np.asarray(matrix), 2) for matrix in matrices]
    assert max(norms) < 0.55
    assert max(norms) > 0.45


def test_the_residual_network_starts_as_the_identity_and_sees_time_and_condition():
    net = ResidualMLP(2, (8, 8), condition_size=3, key=KEY)
    assert float(jnp.max(jnp.abs(net(jnp.asarray(0.3), jnp.ones(2), jnp.ones(3))))) == 0
    net = eqx.tree_at(lambda n: n.last.weight, net, jnp.ones((2, 8)))
    at = lambda t, c: np.asarray(net(jnp.asarray(t), jnp.ones(2), c * jnp.ones(3)))
    assert not np.allclose(at(0.3, 1.0), at(0.4, 1.0))
    assert not np.allclose(at(0.3, 1.0), at(0.3, 2.0))
    with pytest.raises(ValueError, match="one positive width, repeated; got \\(8, 4\\)"):
        ResidualMLP(2, (8, 4), key=KEY)
    with pytest.raises(ValueError, match="frequencies must be at least 1; got 0"):
        ResidualMLP(2, (8,), frequencies=0, key=KEY)
    with pytest.raises(ValueError, match="harmonics must not be negative; got -1"):
        ResidualMLP(2, (8,), harmonics=-1, key=KEY)


def test_harmonics_are_waves_of_every_coordinate():
    net = ResidualMLP(2, (8,), harmonics=3, key=KEY)
    net = eqx.tree_at(lambda n: n.last.weight, net, jnp.ones((2, 8)))
    z, t = jnp.asarray([0.3, -1.2]), jnp.asarray(0.5)
    seen = [z, *(f(np.pi / 4 * 2**k * z) for f in (jnp.sin, jnp.cos) for k in range(3))]
    np.testing.assert_allclose(net._with_harmonics(z), jnp.concatenate(seen), rtol=1e-6)
    period = jnp.asarray([8.0, 0.0])  # of the longest wave: but for z itself, nothing changes
    linear = eqx.tree_at(lambda n: n.first.weight, net, net.first.weight.at[:, :2].set(0.0))
    np.testing.assert_allclose(linear(t, z), linear(t, z + period), rtol=1e-4)


def test_whole_numbers_are_spread_anew_in_every_batch():
    rows = np.arange(8, dtype=np.float32)[:, None]
    source = Rows(rows, rows, rows, batch_size=8, seed=0, jitter=np.ones(1, np.float32))
    first, second = source.batches(0, 2)
    np.testing.assert_array_equal(np.sort(np.floor(first[:, 0])), np.arange(8))
    assert not np.array_equal(np.sort(first[:, 0] % 1), np.sort(second[:, 0] % 1))
    np.testing.assert_array_equal(source.batches(1, 1)[0], second)
    np.testing.assert_array_equal(source.validation(), rows)


def test_late_times_have_their_density():
    """P(s < a) = -log(1 - a)/c down to 1 - a = δ, and evenly from there."""
    s = np.sort(np.asarray(draw_times("late", 20_000, jnp.float32, key=KEY)))
    c = 1 - np.log(0.02)
    for a in (0.3, 0.7, 0.95, 0.98):
        np.testing.assert_allclose(np.mean(s < a), -np.log(1 - a) / c, atol=2e-4)
    np.testing.assert_allclose(np.mean(s < 0.99), 1 - 0.5 / c, atol=2e-4)
    assert 0 <= s[0] < s[-1] <= 1
