"""Transformation autoregressive networks: the recurrent map, the mixture of the conditionals, and both together."""

import io

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from ffjord.autoregressive import AutoregressiveMixture, Mixture
from ffjord.bijections import Recurrent
from ffjord.data import Rows
from ffjord.experiments.config import ModelConfig, TrainConfig
from ffjord.models import build_model
from ffjord.objectives import likelihood
from ffjord.parameters import trainable
from ffjord.training import initial_state, train

pytestmark = pytest.mark.usefixtures("x64")

KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def recurrent(build):
    return build(Recurrent, 3, (5, 4), nonlinearity="tanh")


@eqx.filter_jit
def with_jacobian(direction, points):
    """Values and log-determinants, and the Jacobian of each point."""

    def one(point):
        out = direction(point[None])
        return out.value[0], (out.value[0], out.log_det[0])

    jacobians, out = jax.vmap(jax.jacfwd(one, has_aux=True))(points)
    return *out, jacobians


def test_the_recurrent_map_keeps_its_promises(recurrent):
    z = jnp.asarray([[0.5, -1.0, 2.0], [1.5, -0.3, -50.0], [50.0, 0.2, 0.1], [-3.0, -2.0, -1.0]])
    x, log_det, jacobian = with_jacobian(recurrent.forward, z)
    back, log_det_back, jacobian_back = with_jacobian(recurrent.inverse, x)
    np.testing.assert_allclose(back, z, atol=1e-12)
    np.testing.assert_allclose(log_det, jnp.linalg.slogdet(jacobian)[1], atol=1e-12)
    np.testing.assert_allclose(log_det_back, jnp.linalg.slogdet(jacobian_back)[1], atol=1e-12)
    assert len(np.unique(np.round(log_det, 6))) == 4  # the number of negative columns decides
    assert bool(jnp.all(jnp.triu(jacobian_back, 1) == 0))
    assert bool(jnp.all(jacobian_back[:, *jnp.tril_indices(3)] != 0))


def test_the_recurrent_map_is_that_of_its_equation(recurrent):
    memory, x = recurrent.memory, jnp.asarray([0.5, -1.0, 2.0])

    @jax.jit
    def written_out(x):
        state, columns = jnp.zeros(5), []
        for i in range(3):
            first, last = memory.layers
            m = last(jnp.tanh(first(state + memory.columns[i])))[0]
            t = jnp.exp(recurrent.log_scale) * x[i] + m
            columns.append(jnp.where(t < 0, jnp.exp(recurrent.log_slope) * t, t))
            state = memory.cell(x[i : i + 1], state)
        return jnp.stack(columns)

    np.testing.assert_allclose(eqx.filter_jit(recurrent.inverse)(x[None]).value[0], written_out(x), atol=1e-12)


def test_a_recurrent_map_needs_a_width():
    with pytest.raises(ValueError, match=r"at least one width; got dim=2, hidden=\(\)"):
        Recurrent(2, (), key=KEY)


@pytest.fixture(scope="module")
def mixture(build):
    """Two columns, whose second depends strongly on the first."""
    base = build(AutoregressiveMixture, 2, 3, (4,), nonlinearity="tanh")
    return eqx.tree_at(lambda base: base.memory.cell.weight_ih, base, replace_fn=lambda weight: 4 * weight)


def test_a_mixture_is_a_mixture():
    weights, means, scales = np.asarray([0.2, 0.5, 0.3]), np.asarray([-1.0, 0.5, 3.0]), np.asarray([0.1, 1.0, 0.5])
    x = np.linspace(-50, 50, 11)
    expected = stats.norm.logpdf(x[:, None], means, scales) + np.log(weights)
    found = Mixture(*(jnp.asarray(part) for part in (np.log(weights), means, np.log(scales)))).log_prob(jnp.asarray(x))
    np.testing.assert_allclose(found, np.logaddexp.reduce(expected, axis=1), rtol=1e-12)


def test_the_conditionals_make_up_a_density(mixture):
    """Its mass on a grid, and p(z_1), the mass of a line of it, is the first conditional."""
    side = np.linspace(-20, 20, 801)
    grid = np.stack(np.meshgrid(side, side, indexing="ij"), -1).reshape(-1, 2)
    density = jnp.exp(eqx.filter_jit(mixture.log_prob)(grid)).reshape(801, 801)
    lines = np.trapezoid(density, side, axis=1)
    assert abs(np.trapezoid(lines, side) - 1) < 1e-6
    first = eqx.filter_jit(mixture.conditionals)(grid[:: len(side)])
    np.testing.assert_allclose(
        lines, np.exp(Mixture(*(part[0] for part in first)).log_prob(jnp.asarray(side))), atol=1e-7
    )
    assert np.ptp(np.asarray(first.means[1]), axis=0).max() > 0.1


def test_samples_of_the_conditionals_have_their_distributions(mixture):
    """F(z_i | z_1, …, z_{i-1}) is uniform, and independent of it for the columns before."""
    z = mixture.sample(4000, dtype=jnp.float64, key=KEY)
    log_weights, means, log_scales = (np.asarray(part) for part in eqx.filter_jit(mixture.conditionals)(z))
    levels = np.sum(np.exp(log_weights) * stats.norm.cdf(z.T[..., None], means, np.exp(log_scales)), axis=-1)
    for column in levels:
        assert stats.kstest(column, "uniform").pvalue > 0.01
    correlation = lambda columns: np.corrcoef(stats.rankdata(columns, axis=1))[0, 1] * np.sqrt(len(z))  # in deviations
    assert abs(correlation(levels)) < 2.5
    assert abs(correlation(np.asarray(z.T))) > 5


def test_scales_have_limits(build):
    """However far a network goes, no Gaussian gets so narrow or wide that its density is not a number."""
    base = build(AutoregressiveMixture, 2, 3, (4,))
    wild = jax.tree.map(lambda array: 1e3 * array, base)
    loss = lambda pair: jnp.sum(pair[0].log_prob(pair[1]))
    value, grads = eqx.filter_jit(eqx.filter_value_and_grad(loss))((wild, jnp.asarray([[50.0, -50.0], [0.0, 1e4]])))
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves((value, grads)))


CONFIG = ModelConfig(kind="tan", flows=2, hidden=(16,), components=5, nonlinearity="relu")


@pytest.fixture(scope="module")
def flow(build):
    """A whole model with arbitrary numbers; permutations and signs are those that it starts with."""
    shape = lambda *, key: build_model(3, CONFIG, key=key)
    made, random = shape(key=KEY), build(shape)
    return jax.tree.map(lambda yes, new, old: new if yes else old, trainable(made), random, made)


def test_samples_have_the_density_that_is_reported(flow):
    samples = flow.sample_and_log_prob(16, key=KEY)
    np.testing.assert_allclose(samples.log_prob, flow.log_prob(samples.x), atol=1e-10)


def test_every_number_is_trained_also_by_points_far_out(flow):
    x = jnp.asarray([[50.0, -50.0, 50.0], [-50.0, 0.0, 0.0], [0.3, 0.7, -0.1]])
    loss = lambda flow: jnp.mean(flow.density(x).log_prob)
    value, grads = eqx.filter_jit(eqx.filter_value_and_grad(loss))(flow)
    assert bool(jnp.isfinite(value))
    for path, leaf in jax.tree_util.tree_leaves_with_path(eqx.filter(grads, trainable(flow))):
        assert bool(jnp.all(jnp.isfinite(leaf)) & jnp.any(leaf != 0)), jax.tree_util.keystr(path)


def test_save_and_load(flow):
    saved = io.BytesIO()
    eqx.tree_serialise_leaves(saved, flow)
    saved.seek(0)
    blank = jax.tree.map(lambda leaf: jnp.zeros_like(leaf) if eqx.is_array(leaf) else leaf, flow)
    assert eqx.tree_equal(eqx.tree_deserialise_leaves(saved, blank), flow)


def test_one_column_is_enough():
    flow = build_model(1, CONFIG, key=KEY)
    x = np.linspace(-20, 20, 2001)[:, None]
    assert abs(np.trapezoid(np.exp(flow.log_prob(x)), x[:, 0]) - 1) < 1e-6


def test_what_it_cannot_do_is_refused():
    with pytest.raises(ValueError, match="condition_size must be 0; got 2"):
        build_model(2, CONFIG, condition_size=2, key=KEY)
    with pytest.raises(ValueError, match="components must be at least 1; got 0"):
        AutoregressiveMixture(2, 0, key=KEY)


@pytest.mark.usefixtures("x32")
def test_training_beats_one_gaussian():
    """Two arcs, whose entropy is 1.04 nats, and one Gaussian's cross-entropy 2.21."""
    rng = np.random.default_rng(0)
    angle, side = rng.uniform(0, np.pi, 6000), rng.choice([-1, 1], 6000)
    arcs = np.stack([side * (np.cos(angle) - 0.5), side * np.sin(angle)], 1) + 0.1 * rng.normal(size=(6000, 2))
    rows, test = arcs[:5000].astype(np.float32), arcs[5000:].astype(np.float32)
    gaussian = 0.5 * np.linalg.slogdet(2 * np.pi * np.e * np.cov(rows.T))[1]
    source = Rows(rows, test, test, batch_size=256, seed=0)
    config = TrainConfig(steps=200, batch_size=256, learning_rate=1e-2, validate_every=100)
    state = initial_state(build_model(2, CONFIG, key=KEY), source, config, seed=0)
    loss = lambda flow: {"loss": -float(jnp.mean(flow.log_prob(test)))}
    best = float(train(state, source, likelihood, loss, config, seed=0).best_loss)
    assert best < gaussian - 0.8
