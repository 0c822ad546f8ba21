"""Deep dense sigmoidal flows: the monotone network, its autoregressive map, and MAF with them."""

import io

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ffjord.bijections import SigmoidalAutoregressive
from ffjord.bijections.sigmoidal import MaskedNetwork, Sigmoids
from ffjord.data import Rows
from ffjord.experiments.config import ModelConfig, TrainConfig
from ffjord.models import build_model
from ffjord.objectives import likelihood
from ffjord.parameters import trainable
from ffjord.training import initial_state, train

pytestmark = pytest.mark.usefixtures("x64")

KEY = jax.random.key(0)
FAR = np.asarray([-1e6, -50.0, -3.0, -0.4, 0.0, 0.7, 2.5, 50.0, 1e6])


@pytest.fixture(scope="module")
def sigmoids(build):
    """A family of maps, and one of its maps for every number of `FAR`."""
    family = build(Sigmoids, 5, depth=3)
    free = np.random.default_rng(1).normal(size=family.num_free)
    return family, jnp.broadcast_to(jnp.asarray(2 * free), (len(FAR), family.num_free))


def written_out(family, free, x):
    """The network of the paper's equation, with its weights, at one number."""
    h, position = jnp.asarray([x]), 0
    for layer in family.layers:
        units, part = layer.outer.shape[1], free[position : position + layer.num_free]
        logits = lambda shared: 10 * jnp.tanh(shared / 10)
        a = jax.nn.softplus(part[:units] + jnp.log(jnp.expm1(jnp.sqrt(1 + jnp.pi / 8)))) + 1e-6
        w = jax.nn.softmax(logits(layer.outer) + part[2 * units : 3 * units], axis=1)
        u = jnp.ones((units, 1)) if layer.inner is None else jax.nn.softmax(logits(layer.inner) + part[3 * units :], 1)
        mean = w @ jax.nn.sigmoid(a * (u @ h) + layer.shift + part[units : 2 * units])
        h, position = jnp.log(mean) - jnp.log1p(-mean), position + layer.num_free
    return h[0]


@eqx.filter_jit
def slopes(family, x, free):
    """f(x), log f'(x), f'(x) by differentiation, and the gradient of the first two."""
    (value, log_slope), tangents = jax.jvp(lambda x: family(x, free), (x,), (jnp.ones_like(x),))
    grads = eqx.filter_grad(lambda args: sum(jnp.sum(out) for out in args[0](*args[1:])))((family, x, free))
    return value, log_slope, tangents[0], grads


@eqx.filter_jit
def origins(family, y, free):
    """f⁻¹(y) and its derivative."""
    return jax.jvp(lambda y: family.invert(y, free), (y,), (jnp.ones_like(y),))


def test_the_network_is_that_of_the_paper(sigmoids):
    family, free = sigmoids
    assert family.num_free == 3 * 5 + 2 * 4 * 5
    value, log_slope, *_ = slopes(family, FAR, free)
    near = slice(2, 7)  # where its sigmoids are neither 0 nor 1
    expected, slope = jax.jit(jax.vmap(jax.value_and_grad(lambda x: written_out(family, free[0], x))))(FAR[near])
    np.testing.assert_allclose(value[near], expected, rtol=1e-10)
    np.testing.assert_allclose(log_slope[near], jnp.log(slope), atol=1e-9)


def test_the_network_rises_everywhere_also_far_out_where_sigmoids_saturate(sigmoids):
    """At ±50 and ±10⁶ sigmoids are 0 or 1; the map is nearly linear there, and its slope is not zero."""
    value, log_slope, slope, grads = slopes(sigmoids[0], FAR, sigmoids[1])
    np.testing.assert_allclose(log_slope, jnp.log(slope), atol=1e-9)
    assert bool(jnp.all(jnp.diff(value) > 0))
    assert value[0] < -100
    assert value[-1] > 100
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(grads))


def test_slopes_keep_in_32_bits(sigmoids):
    family, free = sigmoids
    single = lambda tree: jax.tree.map(lambda leaf: leaf.astype(jnp.float32), tree)
    _, exact, *_ = slopes(family, FAR, free)
    _, log_slope, _, grads = slopes(single(family), single(FAR), single(free))
    np.testing.assert_allclose(log_slope[1:-1], exact[1:-1], atol=5e-6)
    np.testing.assert_allclose(log_slope, exact, atol=0.02)  # differences of numbers of the size of 10⁶
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(grads))


def test_every_number_is_reached_and_its_origin_found(sigmoids):
    family, free = sigmoids
    origin, rate = origins(family, FAR, free)
    back, log_slope, *_ = slopes(family, np.asarray(origin), free)
    np.testing.assert_allclose(back, FAR, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(rate, jnp.exp(-log_slope), rtol=1e-9)


@pytest.mark.parametrize("beyond", [np.nan, 1e200, -1e200])
def test_what_comes_from_beyond_the_search_is_not_a_number(sigmoids, beyond):
    assert bool(jnp.all(jnp.isnan(origins(sigmoids[0], np.full_like(FAR, beyond), sigmoids[1])[0])))


@pytest.mark.parametrize(("condition_size", "hidden"), [(0, (7, 9)), (2, (7, 9)), (0, ())])
def test_the_masked_network_tells_a_column_of_those_before_and_of_all_conditions(build, condition_size, hidden):
    network = build(MaskedNetwork, 4, 3, hidden, nonlinearity="tanh", condition_size=condition_size)
    x, c = jnp.asarray([0.3, -0.2, 0.5, 1.0]), jnp.asarray([0.4, -0.7])[:condition_size]
    out = lambda x, c: network(x[None], c[None] if condition_size else None)[0]
    by_x, by_c = jax.jit(jax.jacfwd(out, (0, 1)))(x, c)
    assert np.array_equal(np.any(by_x != 0, axis=1), np.tril(np.ones((4, 4), bool), -1))
    assert bool(jnp.all(by_c != 0))
    column = lambda i: network.column(x[None], c[None] if condition_size else None, i)[0]
    one, all_ = jax.jit(lambda: (jax.vmap(column)(jnp.arange(4)), out(x, c)))()
    np.testing.assert_allclose(one, all_, rtol=1e-12)


def test_a_network_too_narrow_for_its_columns_is_refused():
    with pytest.raises(ValueError, match=r"must have 3 units at least for 4 columns; got \(8, 2\)"):
        MaskedNetwork(4, 1, (8, 2), nonlinearity="tanh", key=KEY)


@eqx.filter_jit
def everything(bijection, z, condition):
    """Both directions with their Jacobians' log-determinants, and the gradient of a loss in the parameters."""

    def with_jacobian(direction, points):
        def one(point, given):
            out = direction(point[None], condition=given[None])
            return out.value[0], (out.value[0], out.log_det[0])

        jacobians, out = jax.vmap(jax.jacfwd(one, has_aux=True))(points, condition)
        return *out, jnp.linalg.slogdet(jacobians)[1]

    def loss(bijection, x):
        out = bijection.inverse(x, condition=condition)
        return jnp.sum(out.value**2) + jnp.sum(out.log_det)

    forward = with_jacobian(bijection.forward, z)
    return forward, with_jacobian(bijection.inverse, forward[0]), eqx.filter_grad(loss)(bijection, forward[0])


def test_the_map_keeps_its_promises(build):
    bijection = build(SigmoidalAutoregressive, 3, 4, (6,), nonlinearity="tanh", condition_size=2)
    assert not bijection.exact_inverse
    z = jnp.asarray([[0.5, -1.0, 2.0], [1.5, 0.3, -50.0], [50.0, 0.2, 0.1]])
    condition = jnp.asarray([[1.0, 0.0], [0.3, -2.0], [0.0, 0.0]])
    (_, log_det, brute), (back, log_det_back, brute_back), grad = everything(bijection, z, condition)
    np.testing.assert_allclose(back, z, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(log_det, brute, atol=1e-8)
    np.testing.assert_allclose(log_det_back, brute_back, atol=1e-8)
    np.testing.assert_allclose(log_det_back, -log_det, atol=1e-8)
    trained = jax.tree.leaves(eqx.filter(grad, trainable(bijection)))
    assert all(bool(jnp.all(jnp.isfinite(leaf)) & jnp.any(leaf != 0)) for leaf in trained)
    saved = io.BytesIO()
    eqx.tree_serialise_leaves(saved, bijection)
    saved.seek(0)
    blank = jax.tree.map(lambda leaf: jnp.zeros_like(leaf) if eqx.is_array(leaf) else leaf, bijection)
    assert eqx.tree_equal(eqx.tree_deserialise_leaves(saved, blank), bijection)


def test_the_gradient_of_the_numerical_direction_is_that_of_the_exact_one(build):
    """The identity x = forward(inverse(x)) has no gradient in the parameters."""
    bijection = build(SigmoidalAutoregressive, 2, 3, (4,))
    x = jnp.asarray([[0.5, -1.0], [1.5, 0.3]])

    @eqx.filter_jit
    @eqx.filter_grad
    def grad(bijection):
        return jnp.sum(jnp.asarray([[1.0, 2.0], [3.0, 5.0]]) * bijection.forward(bijection.inverse(x).value).value)

    for leaf in jax.tree.leaves(grad(bijection)):
        np.testing.assert_allclose(leaf, 0, atol=1e-10)


CONFIG = ModelConfig(kind="maf-ddsf", flows=2, hidden=(16,), components=4, nonlinearity="elu")


def test_samples_have_the_density_that_is_reported():
    flow = build_model(2, CONFIG, key=KEY)
    samples = flow.sample_and_log_prob(16, key=KEY)
    np.testing.assert_allclose(samples.log_prob, flow.log_prob(samples.x), atol=1e-8)


@pytest.mark.usefixtures("x32")
def test_densities_far_out_are_finite_with_their_gradients():
    flow, x = build_model(2, CONFIG, key=KEY), jnp.asarray([[50.0, -50.0], [-50.0, 0.0], [1e4, 1e4]])
    loss = lambda pair: jnp.mean(pair[0].density(pair[1]).log_prob)
    value, grads = eqx.filter_jit(eqx.filter_value_and_grad(loss))((flow, x))
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves((value, grads)))


def test_one_column_and_conditions_alone_are_enough():
    flow = build_model(1, CONFIG, condition_size=1, key=KEY)
    x, c = jnp.linspace(-12, 12, 801)[:, None], jnp.asarray([0.7])
    mass = jnp.trapezoid(jnp.exp(flow.log_prob(x, condition=c)), x[:, 0])
    assert abs(float(mass) - 1) < 1e-6
    assert abs(float(flow.log_prob(x[:1], condition=c)[0] - flow.log_prob(x[:1], condition=-c)[0])) > 1e-6


def test_no_sigmoids_are_refused():
    with pytest.raises(ValueError, match="components must be at least 1; got 0"):
        build_model(2, ModelConfig(kind="maf-ddsf", components=0), key=KEY)


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
