"""Every bijection keeps every promise; then what is particular to each."""

import io
import threading

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
import pytest

from ffjord.bijections import (
    CNF,
    ActNorm,
    Chain,
    Levels,
    Logit,
    Marginals,
    MaskedCoupling,
    MovingNorm,
    Numerics,
    OnHalf,
    Radial,
    Squeezed,
    Standardize,
)
from ffjord.divergence import AbstractDivergence, Bottleneck, ClosedForm, Exact, Hutchinson
from ffjord.dynamics import MLP
from ffjord.parameters import trainable
from ffjord.solve import OK, Solver

pytestmark = pytest.mark.usefixtures("x64")


class FreeForm(eqx.Module):
    """Any network of (t, z), with nothing of this library in it."""

    net: eqx.nn.MLP

    def __init__(self, *, key):
        self.net = eqx.nn.MLP(3, 2, 4, 1, activation=jnp.sin, key=key)

    def __call__(self, t, z):
        return self.net(jnp.append(z, t))


ACCURATE = Solver("dopri5", rtol=1e-10, atol=1e-10, gradient="direct", max_steps=64)
FIXED = Solver("rk4", num_steps=100, gradient="direct")


def cnf(dynamics, divergence, solver, **kwargs):
    numerics = Numerics(divergence, solver)
    return CNF(dynamics, training=numerics, testing=numerics, **kwargs)


def norms(build, seed=0):
    """A moving, a trained and a fixed normalisation, with arbitrary values."""
    moving, act = build(lambda key: (MovingNorm((2,)), ActNorm((2,))), seed=seed)
    moving = eqx.tree_at(lambda n: n.variance.array, moving, jnp.asarray([0.5, 2.0]))
    return moving, act, Standardize(jnp.asarray([1.0, -2.0]), jnp.asarray([3.0, 0.5]))


def chain(build):
    moving, act, standardize = norms(build)
    first = cnf(build(MLP, 2, (4,)), ClosedForm(), FIXED, end_time=1.3, learn_end_time=True)
    second = cnf(build(MLP, 2, (4, 3, 4), layer="blend", seed=1), Exact(), FIXED)
    return Chain([first, moving, act, second, standardize])


def gaussianized(kind):
    rows = jnp.asarray(np.random.default_rng(0).standard_t(4, (4000, 2)) @ [[2.0, 0.3], [0.0, 0.1]] + [1.0, 0.0])
    return kind(2, knots=32).calibrate(rows, key=jax.random.key(0))


def levels():
    pixels = np.minimum(np.random.default_rng(0).exponential(0.1, (1000, 2, 2, 1)), 0.99)
    return Levels(16).calibrate(jnp.asarray(pixels), key=jax.random.key(0))


IMAGE = (2, 2, 2)
BIJECTIONS = {
    "cnf": lambda build: cnf(build(FreeForm), Exact(), ACCURATE),
    "chain": chain,
    "moving norm": lambda build: norms(build)[0],
    "act norm": lambda build: norms(build)[1],
    "standardize": lambda build: norms(build)[2],
    "marginals": lambda build: gaussianized(Marginals),
    "radial": lambda build: gaussianized(Radial),
}
OF_IMAGES = {
    "logit": lambda build: Logit(0.05),
    "levels": lambda build: levels(),
    "squeezed": lambda build: Squeezed(build(MaskedCoupling, (1, 1, 8), 4, pattern="channels")),
    "on half": lambda build: OnHalf(build(lambda key: ActNorm((2, 2, 1)))),
    "masked coupling": lambda build: build(MaskedCoupling, IMAGE, 4),
}


def build_mlp(build):
    return build(MLP, 2, (8,))


@pytest.fixture
def z():
    return jnp.asarray([[0.5, -1.0], [1.5, 0.3], [-0.7, 0.2]])


@pytest.fixture(params=[*BIJECTIONS, *OF_IMAGES])
def bijection_and_points(request, build, z):
    if request.param in BIJECTIONS:
        return BIJECTIONS[request.param](build), z
    return OF_IMAGES[request.param](build), jnp.asarray(np.random.default_rng(1).normal(size=(3, *IMAGE)))


def with_jacobian(direction, points):
    """Values, log-determinants and outcomes, and the log-determinant of the whole map's Jacobian."""

    def one(point):
        out = direction(point[None])
        return out.value[0], (out.value[0], out.log_det[0], out.report.outcome)

    jacobians, out = jax.vmap(jax.jacfwd(one, has_aux=True))(points)
    return *out, jnp.linalg.slogdet(jacobians.reshape(len(points), points[0].size, -1))[1]


@eqx.filter_jit
def everything(bijection, z):
    forward = with_jacobian(bijection.forward, z)
    inverse = with_jacobian(bijection.inverse, forward[0])

    def loss(pair):
        out = pair[0].inverse(pair[1], train=True)
        return jnp.sum(out.value**2) + jnp.sum(out.log_det)

    return forward, inverse, eqx.filter_grad(loss)((bijection, forward[0]))


def test_every_bijection_keeps_every_promise(bijection_and_points):
    bijection, z = bijection_and_points
    (x, log_det, outcome, brute), (back, log_det_back, outcome_back, brute_back), (grad, grad_x) = everything(
        bijection, z
    )
    assert bool(jnp.all(outcome == OK) & jnp.all(outcome_back == OK))
    assert float(jnp.min(jnp.max(jnp.abs(x - z).reshape(len(z), -1), axis=1))) > 1e-3
    np.testing.assert_allclose(back, z, atol=1e-8)
    np.testing.assert_allclose(log_det, brute, atol=1e-8)
    np.testing.assert_allclose(log_det_back, brute_back, atol=1e-8)
    np.testing.assert_allclose(log_det_back, -log_det, atol=1e-8)
    trained = eqx.filter(grad, trainable(bijection))
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves((trained, grad_x)))
    assert all(bool(jnp.any(leaf != 0)) for leaf in jax.tree.leaves(trained))
    saved = io.BytesIO()
    eqx.tree_serialise_leaves(saved, bijection)
    saved.seek(0)
    blank = jax.tree.map(lambda leaf: jnp.zeros_like(leaf) if eqx.is_array(leaf) else leaf, bijection)
    assert eqx.tree_equal(eqx.tree_deserialise_leaves(saved, blank), bijection)


def test_linear_dynamics_is_the_matrix_exponential(z, build):
    end_time = 1.7
    f = build(MLP, 2, (), layer="ignore")
    flow = cnf(f, ClosedForm(), Solver(rtol=1e-10, atol=1e-10), end_time=end_time)
    weight, bias = f.layers[0].linear.weight, f.layers[0].linear.bias
    generator = jnp.zeros((3, 3)).at[:2, :2].set(weight).at[:2, 2].set(bias)
    run = eqx.filter_jit(lambda flow, z: (flow.forward(z), flow.inverse(z)))
    for sign, out in zip((1, -1), run(flow, z), strict=True):
        exponential = jax.scipy.linalg.expm(sign * end_time * generator)
        np.testing.assert_allclose(out.value, z @ exponential[:2, :2].T + exponential[:2, 2], atol=1e-8)
        np.testing.assert_allclose(out.log_det, jnp.full(3, sign * end_time * jnp.trace(weight)), atol=1e-8)


class Recorded(AbstractDivergence):
    """An estimator that shows its noise to Python at each evaluation."""

    stochastic = True
    inner: AbstractDivergence
    show: object = eqx.field(static=True)

    def noise(self, f, z, *, key):
        return self.inner.noise(f, z, key=key)

    def __call__(self, f, t, z, eps):
        jax.debug.callback(self.show, eps)
        return self.inner(f, t, z, eps)


@pytest.mark.parametrize("estimator", [Hutchinson("gaussian", 2), Bottleneck("gaussian", 2)])
def test_noise_is_drawn_once_for_each_sample_and_solve(estimator, z, build):
    lock, seen = threading.Lock(), []

    def show(eps):
        with lock:
            seen.append(np.asarray(eps))

    flow = cnf(build(MLP, 2, (3,)), Recorded(estimator, show), Solver())
    run = eqx.filter_jit(lambda flow, z, key: flow.inverse(z, key=key))

    def noise_of(key):
        out = run(flow, z, key)
        jax.block_until_ready(out)
        jax.effects_barrier()
        found, count = np.unique(seen, axis=0, return_counts=True)
        seen.clear()
        np.testing.assert_array_equal(count, [out.report.nfe] * len(z))
        return found, out.log_det

    first, log_det = noise_of(jax.random.key(0))
    assert first.shape == (len(z), 2, {Hutchinson: 2, Bottleneck: 3}[type(estimator)])
    again, same_log_det = noise_of(jax.random.key(0))
    other, other_log_det = noise_of(jax.random.key(1))
    np.testing.assert_array_equal(again, first)
    np.testing.assert_array_equal(same_log_det, log_det)
    assert not np.any(other == first)
    assert not np.any(other_log_det == log_det)


@pytest.mark.parametrize("estimator", [Hutchinson(), Bottleneck()])
def test_estimators_need_a_key(estimator, z, build):
    flow = cnf(build_mlp(build), estimator, Solver())
    for direction in (flow.forward, flow.inverse):
        with pytest.raises(ValueError, match=rf"{type(estimator).__name__} .* pass key=jax.random.key"):
            direction(z)


def test_bottleneck_needs_dynamics_with_a_waist(z, build):
    with pytest.raises(ValueError, match="FreeForm has no `encode` and `decode`"):
        cnf(build(FreeForm), Bottleneck(), Solver()).forward(z, key=jax.random.key(0))


@pytest.mark.parametrize("end_time", [0.0, -1.0, float("nan")])
def test_end_time_must_be_positive(end_time, build):
    with pytest.raises(ValueError, match=f"end_time must be positive; got {end_time}"):
        CNF(build(FreeForm), end_time=end_time)


@pytest.mark.parametrize("lag", [0.0, 1.5])
def test_lag_must_be_a_fraction(lag):
    with pytest.raises(ValueError, match=f"lag must be in .*; got {lag}"):
        MovingNorm((2,), lag=lag)


def test_a_chain_needs_parts():
    with pytest.raises(ValueError, match="at least one part"):
        Chain([])


def test_training_and_testing_have_their_own_numerics(z, build):
    few, many = (Numerics(ClosedForm(), Solver("euler", num_steps=n)) for n in (2, 5))
    flow = CNF(build_mlp(build), training=few, testing=many)
    run = eqx.filter_jit(lambda flow, z: [flow.inverse(z, train=train).report.nfe for train in (True, False)])
    assert run(flow, z) == [2, 5]


@pytest.fixture
def x():
    return jnp.asarray(np.random.default_rng(0).normal([3.0, -1.0], [2.0, 0.1], (100, 2)))


def test_calibrated_act_norm_gives_zero_mean_and_unit_deviation(x):
    norm = ActNorm((2,)).calibrate(x, key=jax.random.key(0))
    z = norm.inverse(x).value
    np.testing.assert_allclose(jnp.mean(z, axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(jnp.std(z, axis=0), 1, atol=1e-4)


def test_calibrated_moving_norm_has_the_batchs_statistics(x):
    norm = MovingNorm((2,)).calibrate(x, key=jax.random.key(0))
    z = norm.inverse(x).value
    np.testing.assert_allclose(norm.mean.value, jnp.mean(x, axis=0))
    np.testing.assert_allclose(norm.variance.value, jnp.var(x, axis=0))
    np.testing.assert_allclose(z, (x - x.mean(0)) / jnp.sqrt(x.var(0) + 1e-4), rtol=1e-12)


def test_moving_norm_moves_by_its_lag_when_training_and_only_then(x):
    norm = MovingNorm((2,), lag=0.25)
    moved = norm.absorb(norm.inverse(x, train=True).report.observed)
    np.testing.assert_allclose(moved.mean.value, 0.25 * x.mean(0))
    np.testing.assert_allclose(moved.variance.value, 0.75 + 0.25 * x.var(0))
    assert eqx.tree_equal(norm.absorb(norm.inverse(x).report.observed), norm)


def test_chain_hands_each_part_what_it_saw(x):
    chain = Chain([MovingNorm((2,)), Standardize(jnp.asarray([1.0, 0.0]), jnp.asarray([4.0, 0.2])), MovingNorm((2,))])
    moved = chain.absorb(chain.inverse(x, train=True).report.observed)
    standardized = (x - jnp.asarray([1.0, 0.0])) / jnp.asarray([4.0, 0.2]) / jnp.sqrt(1 + 1e-4)
    np.testing.assert_allclose(moved.parts[2].mean.value, 0.1 * x.mean(0))
    np.testing.assert_allclose(moved.parts[0].mean.value[1], 0.1 * standardized.mean(0)[1])
    assert eqx.tree_equal(moved.parts[1], chain.parts[1])


def test_calibrating_a_chain_normalises_what_each_part_sees(x):
    chain = Chain([ActNorm((2,)), Standardize(jnp.asarray([1.0, 0.0]), jnp.asarray([4.0, 0.2])), MovingNorm((2,))])
    calibrated = chain.calibrate(x, key=jax.random.key(0))
    z = calibrated.inverse(x).value
    np.testing.assert_allclose(calibrated.parts[2].mean.value, x.mean(0))
    np.testing.assert_allclose(jnp.mean(z, axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(jnp.std(z, axis=0), 1, atol=1e-4)


def test_calibrating_a_chain_inside_of_a_chain_is_calibrating_its_parts(x):
    standardize = Standardize(jnp.asarray([1.0, 0.0]), jnp.asarray([4.0, 0.2]))
    parts = [ActNorm((2,)), standardize, MovingNorm((2,)), ActNorm((2,))]
    nested = Chain([parts[0], Chain(parts[1:3]), parts[3]]).calibrate(x, key=jax.random.key(0))
    first, second = nested.parts[0], nested.parts[1].parts[1]
    for norm, seen in [(first, nested.parts[1].inverse(nested.parts[2].inverse(x).value).value), (nested.parts[2], x)]:
        np.testing.assert_allclose(norm.shift, seen.mean(0), atol=1e-12)
        np.testing.assert_allclose(norm.log_scale, jnp.log(seen.std(0) + 1e-6), atol=1e-12)
    np.testing.assert_allclose(second.mean.value, 0, atol=1e-12)
    assert float(jnp.min(jnp.abs(first.log_scale))) > 0.1
    flat = Chain(parts).calibrate(x, key=jax.random.key(0))
    np.testing.assert_allclose(nested.inverse(x).value, flat.inverse(x).value, atol=1e-12)


def test_until_stops_each_continuous_part_in_its_turn(build):
    first, second = (cnf(build_mlp(build), ClosedForm(), FIXED, end_time=t) for t in (1.0, 3.0))
    standardize = norms(build)[2]
    times = {0.0: (0.0, 0.0), 0.25: (0.5, 0.0), 0.5: (1.0, 0.0), 0.75: (1.0, 1.5), 1.0: (1.0, 3.0)}
    for fraction, expected in times.items():
        stopped = Chain([first, standardize, second]).until(jnp.asarray(fraction))
        found = [float(stopped.parts[i].end_time) for i in (0, 2)]
        np.testing.assert_allclose(found, expected, atol=1e-12)
        assert eqx.tree_equal(stopped.parts[1], standardize)
