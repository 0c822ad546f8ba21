"""Maps that make data Gaussian in closed form: what they are fitted to, and how flows use them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from ffjord.bijections import Chain, Marginals, Radial
from ffjord.data import Rows
from ffjord.experiments.config import ModelConfig, SolveConfig, TrainConfig
from ffjord.flow import Flow, StandardNormal
from ffjord.matching import FlowMatching, check_matching
from ffjord.models import ffjord
from ffjord.objectives import likelihood
from ffjord.training import initial_state, train

KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def spiky():
    """Two columns: one with half of its rows in a narrow spike, and one with a heavy tail."""
    rng = np.random.default_rng(0)
    spike = np.where(rng.random(40_000) < 0.5, 0.01 * rng.random(40_000), 3 + rng.random(40_000))
    return np.stack([spike, rng.standard_t(2, 40_000)], axis=1).astype(np.float32)


@pytest.fixture(scope="module")
def scaled():
    """Gaussians of three columns, each row with a scale of its own."""
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((40_000, 3)) * np.exp(rng.standard_normal((40_000, 1)))
    return (rows @ [[2, 1, 0], [0, 1, 0.5], [0, 0, 0.01]] + [5, 0, 0]).astype(np.float32)


def nll(bijection, x):
    flow = Flow(StandardNormal((x.shape[1],)), bijection)
    return -float(np.mean(np.asarray(flow.density(x).log_prob), dtype=np.float64))


def test_every_column_becomes_gaussian(spiky):
    fitted = Marginals(2).calibrate(jnp.asarray(spiky[:20_000]), key=KEY)
    z = fitted.inverse(jnp.asarray(spiky[:20_000])).value
    np.testing.assert_array_equal(z, fitted.inverse(jnp.asarray(spiky[:20_000])).value)
    fresh = np.asarray(fitted.inverse(jnp.asarray(spiky[20_000:])).value)
    for column in fresh.T:
        assert stats.kstest(column, "norm").statistic < 0.015


@pytest.mark.parametrize(("knots", "error"), [(64, 0.2), (256, 0.06)])
def test_the_density_of_columns_is_that_of_their_distributions(spiky, knots, error):
    """The knots on either side of the gap spread a part of the mass over it, the less the more of them there are."""
    fitted = Marginals(2, knots=knots).calibrate(jnp.asarray(spiky[:20_000]), key=KEY)
    truth = np.log(2) + 0.5 * np.log(0.01) - stats.t(2).logpdf(spiky[20_000:, 1]).mean()
    assert 0 < nll(fitted, spiky[20_000:]) - truth < 1.1 * error


def test_a_gaussian_of_random_scale_becomes_a_gaussian(scaled):
    fitted = Radial(3).calibrate(jnp.asarray(scaled[:20_000]), key=KEY)
    z = np.asarray(fitted.inverse(jnp.asarray(scaled[20_000:])).value)
    assert stats.kstest(np.sum(z**2, axis=1), stats.chi2(3).cdf).statistic < 0.015
    for column in z.T:
        assert stats.kstest(column, "norm").statistic < 0.03
    mean, covariance = scaled[:20_000].mean(0), np.cov(scaled[:20_000].T)
    gaussian = -stats.multivariate_normal(mean, covariance).logpdf(scaled[20_000:]).mean()
    assert nll(fitted, scaled[20_000:]) < gaussian - 0.5


def test_columns_of_few_values_have_a_finite_density():
    rows = np.random.default_rng(0).integers(0, 5, (1000, 2)).astype(np.float32)
    fitted = Marginals(2, knots=16).calibrate(jnp.asarray(rows), key=KEY)
    z = fitted.inverse(jnp.asarray(rows)).value
    assert np.isfinite(np.asarray(z)).all()
    far = jnp.asarray([[-100.0, 200.0], [0.5, 3.9]])
    out = fitted.inverse(far)
    assert np.isfinite(out.log_det).all()
    np.testing.assert_allclose(fitted.forward(out.value).value, far, rtol=1e-5)


def test_a_constant_column_is_refused():
    with pytest.raises(ValueError, match="column is constant"):
        Marginals(2).calibrate(jnp.ones((100, 2)), key=KEY)


@pytest.mark.parametrize("kind", [Marginals, Radial])
@pytest.mark.parametrize("knots", [2, 7])
def test_knots_come_in_pairs(kind, knots):
    with pytest.raises(ValueError, match=f"knots must be even and at least 4; got {knots}"):
        kind(2, knots=knots)


@pytest.mark.parametrize("objective", [FlowMatching(), likelihood])
def test_a_flow_is_trained_behind_a_map_that_saw_many_rows(spiky, objective):
    model = ModelConfig(hidden=(8, 8), gaussianize="marginal", knots=64)
    flow = ffjord(2, model, SolveConfig(rtol=1e-3, atol=1e-3, test_rtol=1e-3, test_atol=1e-3), key=KEY)
    check_matching(flow)
    seen = []
    source = Rows(spiky, spiky[:256], spiky[:256], batch_size=64, seed=0)
    batches = source.batches
    source.batches = lambda step, count: seen.append(count) or batches(step, count)
    config = TrainConfig(steps=4, batch_size=64, validate_every=2, steps_per_call=2)
    state = initial_state(flow, source, config, seed=0)
    assert seen == [2**19 // 64]
    assert isinstance(state.model.bijection, Chain)
    before = nll(state.model.bijection.parts[-1], spiky[:256])
    state = train(state, source, objective, lambda flow: {"loss": nll(flow.bijection, spiky[:256])}, config, seed=0)
    assert float(state.best_loss) < before + 0.2
    fitted, trained = state.model.bijection.parts[-1], state.best.bijection.parts[-1]
    np.testing.assert_array_equal(fitted.knots.x.array, trained.knots.x.array)


def test_an_unknown_map_is_refused(unchecked):
    config = dataclasses.replace(ModelConfig(hidden=(8,)), gaussianize="whole")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="gaussianize must be none, marginal or radial for columns; got 'whole'"):
        ffjord(2, config, key=KEY)
