"""A flow is a normalised density that can be evaluated, sampled and followed, and that refuses bad input."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ffjord.bijections import CNF, Chain, Numerics, Standardize
from ffjord.divergence import ClosedForm, Exact, Hutchinson
from ffjord.dynamics import MLP
from ffjord.flow import Flow, SolveError, StandardNormal
from ffjord.solve import OK, STEP_LIMIT, Solver

pytestmark = pytest.mark.usefixtures("x64")

MEAN, SCALE = np.array([5.0, -3.0]), np.array([10.0, 0.1])
N = 16


class FreeForm(eqx.Module):
    """An Equinox network as dynamics."""

    net: eqx.nn.MLP

    def __init__(self, *, key):
        self.net = eqx.nn.MLP(2, 2, 4, 1, activation=jnp.tanh, key=key)

    def __call__(self, t, z):
        return self.net(z)


class Explosive(eqx.Module):
    """dz/dt = z²: backwards, points below -1 never arrive."""

    power: jax.Array = eqx.field(default_factory=lambda: jnp.asarray(2.0))

    def __call__(self, t, z):
        return jnp.abs(z) ** self.power


def make(build, *, divergence=None, **solver):
    numerics = Numerics(divergence or ClosedForm(), Solver(**{"rtol": 1e-8, "atol": 1e-8, "steps": "worst"} | solver))
    return Flow(StandardNormal((2,)), CNF(build(MLP, 2, (8,)), training=numerics, testing=numerics))


@pytest.fixture(scope="module")
def flow(build, x64):
    return make(build)


@pytest.fixture(scope="module")
def standardized(flow, x64):
    return Flow(flow.base, Chain([flow.bijection, Standardize(jnp.asarray(MEAN), jnp.asarray(SCALE))]))


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(0).normal(size=(N, 2))


def test_standard_normal_has_its_density(x):
    expected = -0.5 * np.sum(x**2, axis=1) - np.log(2 * np.pi)
    np.testing.assert_allclose(StandardNormal((2,)).log_prob(jnp.asarray(x)), expected, rtol=1e-14)


def test_density_integrates_to_one(flow):
    axis = np.linspace(-12, 12, 97)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    total = np.sum(np.exp(flow.log_prob(grid))) * (axis[1] - axis[0]) ** 2
    assert total == pytest.approx(1, abs=1e-6)


def test_log_prob_takes_numpy_and_jax_arrays_of_any_number_type(flow, x):
    expected = flow.log_prob(x)
    assert isinstance(expected, jax.Array)
    assert (expected.shape, expected.dtype) == ((N,), jnp.float64)
    np.testing.assert_array_equal(flow.log_prob(jnp.asarray(x)), expected)
    rounded = flow.log_prob(x.astype(np.float32).astype(np.float64))
    np.testing.assert_array_equal(flow.log_prob(x.astype(np.float32)), rounded)
    np.testing.assert_array_equal(flow.log_prob(jnp.asarray(x, jnp.float32)), rounded)
    whole = np.round(x).astype(int)
    np.testing.assert_array_equal(flow.log_prob(whole), flow.log_prob(whole.astype(float)))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.zeros((N, 3)), r"shape \(n, 2\); got \(16, 3\)"),
        (np.zeros(2), r"shape \(n, 2\); got \(2,\)"),
        (np.zeros((1, N, 2)), r"shape \(n, 2\); got \(1, 16, 2\)"),
        (np.zeros(()), r"shape \(n, 2\); got \(\)"),
        (np.zeros((0, 2)), "at least one row"),
        (np.array([["a", "b"]]), "hold numbers; got an array of type <U1"),
        (np.array([[0.0, np.nan]]), "finite; got NaN"),
        (np.array([[np.inf, 0.0]]), "finite; got NaN, infinity"),
    ],
)
def test_input_that_is_no_batch_of_points_is_an_error(bad, message, flow):
    with pytest.raises(ValueError, match=f"^x must .*{message}"):
        flow.log_prob(bad)
    with pytest.raises(ValueError, match=f"^x must .*{message}"):
        flow.density(bad)


def test_a_compiled_function_may_bring_points_of_its_own(flow, x):
    points = jnp.asarray(x)
    scale = lambda factor: factor * flow.log_prob(points)
    np.testing.assert_allclose(jax.jit(scale)(2.0), 2 * flow.log_prob(x), rtol=1e-6)


def test_samples_come_with_their_log_density(flow):
    samples = flow.sample_and_log_prob(N, key=jax.random.key(1))
    assert samples.x.shape == (N, 2)
    assert samples.report.outcome == OK
    np.testing.assert_allclose(samples.log_prob, flow.log_prob(samples.x), atol=1e-6)
    np.testing.assert_allclose(flow.sample(N, key=jax.random.key(1)), samples.x, atol=1e-7)
    assert not np.any(flow.sample(N, key=jax.random.key(2)) == samples.x)


def test_no_samples_is_an_error(flow):
    with pytest.raises(ValueError, match="n must be at least 1; got 0"):
        flow.sample(0, key=jax.random.key(0))


def test_path_leads_from_the_base_to_the_samples_with_the_density_of_each_moment(flow):
    key, times = jax.random.key(1), np.linspace(0, 1, 4)
    path = flow.path(N, times, key=key)
    assert path.x.shape == (4, N, 2)
    assert path.log_prob.shape == (4, N)
    np.testing.assert_allclose(path.log_prob[0], flow.base.log_prob(path.x[0]), atol=1e-12)
    np.testing.assert_allclose(path.x[3], flow.sample(N, key=key), atol=1e-12)
    np.testing.assert_allclose(flow.density(path.x[3]).z, path.x[0], atol=1e-6)
    for time, x, log_prob in zip(path.times, path.x, path.log_prob, strict=True):
        np.testing.assert_allclose(flow.at(time).log_prob(x), log_prob, atol=1e-6)


def test_standardised_flow_has_densities_in_the_datas_own_units(flow, standardized, x):
    expected = flow.log_prob(x) - np.sum(np.log(SCALE))
    np.testing.assert_allclose(standardized.log_prob(MEAN + SCALE * x), expected, atol=1e-7)
    samples = standardized.sample_and_log_prob(N, key=jax.random.key(1))
    plain = flow.sample_and_log_prob(N, key=jax.random.key(1))
    np.testing.assert_allclose(samples.x, MEAN + SCALE * plain.x, rtol=1e-12)
    np.testing.assert_allclose(samples.log_prob, standardized.log_prob(samples.x), atol=1e-6)


def test_standardize_takes_numpy_arrays():
    np.testing.assert_array_equal(Standardize(MEAN, SCALE).forward(jnp.zeros((1, 2))).value, MEAN[None])


def test_any_callable_is_a_dynamics(build, x):
    flow = Flow(StandardNormal((2,)), CNF(build(FreeForm)))
    assert isinstance(flow.bijection.testing.divergence, Exact)
    density = flow.density(x)
    assert density.report.outcome == OK
    assert bool(jnp.all(jnp.isfinite(density.log_prob)))


def test_a_solve_that_fails_raises_an_error_that_says_what_to_do(build, x):
    flow = make(build, max_steps=2)
    with pytest.raises(SolveError, match=r"step limit.*; loosen rtol/atol, raise max_steps, use .* kvaerno5"):
        flow.log_prob(x)
    with pytest.raises(SolveError, match="step limit"):
        flow.sample(N, key=jax.random.key(0))
    density = flow.density(x)
    assert density.report.outcome == STEP_LIMIT
    assert bool(jnp.all(jnp.isnan(density.log_prob)))
    assert bool(jnp.all(jnp.isnan(eqx.filter_jit(Flow.log_prob)(flow, x))))


def test_the_error_says_how_many_samples_failed(x):
    numerics = Numerics(Exact(), Solver(steps="sample"))
    flow = Flow(StandardNormal((2,)), CNF(Explosive(), training=numerics, testing=numerics))
    flow.log_prob(np.abs(x))
    with pytest.raises(SolveError, match=rf"\(3 of {N} solves failed\)"):
        flow.log_prob(np.where(np.arange(N)[:, None] < 3, -2.0, np.abs(x)))


def test_an_estimator_needs_a_key_and_the_same_key_gives_the_same_answer(build, x):
    flow = make(build, divergence=Hutchinson())
    with pytest.raises(ValueError, match="pass key="):
        flow.log_prob(x)
    key = jax.random.key(0)
    np.testing.assert_array_equal(flow.log_prob(x, key=key), flow.log_prob(x, key=key))


@pytest.mark.usefixtures("x32")
def test_a_flow_of_32_bits_answers_in_32_bits(build, x):
    flow = make(build, rtol=1e-5, atol=1e-5)
    assert flow.dtype == jnp.float32
    assert flow.log_prob(x).dtype == jnp.float32
    with pytest.raises(ValueError, match="number too large for float32"):
        flow.log_prob(np.full((N, 2), 1e300))
