"""Regularisers: each against its definition, Taylor mode against nested derivatives, integrals against fine sums."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ffjord.bijections import CNF, Numerics
from ffjord.divergence import ClosedForm, Exact, Hutchinson, Local
from ffjord.dynamics import MLP, ResidualMLP
from ffjord.experiments import RegularizationConfig
from ffjord.flow import Flow, StandardNormal
from ffjord.models import regularizers
from ffjord.objectives import Likelihood
from ffjord.regularizers import (
    SIMPLE,
    JacobianFrobenius,
    Kinetic,
    TotalDerivative,
    _by_forward_mode,
    _by_taylor_mode,
    total_derivative,
)
from ffjord.solve import Solver

pytestmark = pytest.mark.usefixtures("x64")

D = 3
with jax.enable_x64(True):
    T, Z = jnp.asarray(0.3), jnp.asarray(np.random.default_rng(1).normal(size=D))
    PROBE = jnp.asarray([1.0, -1.0, 1.0])


@pytest.fixture(scope="module")
def f(build, x64):
    return build(MLP, D, (8, 8))


def definitions(f) -> dict[str, float]:
    value, jacobian = np.asarray(f(T, Z)), np.asarray(jax.jacobian(lambda z: f(T, z))(Z))
    rms = lambda x: np.sqrt(np.mean(x**2))
    off_diagonal = jacobian[~np.eye(D, dtype=bool)]
    return {
        "kinetic": np.mean(value**2),
        "jacobian": np.sum(jacobian**2) / D,
        "mean_speed": np.mean(np.abs(value)),
        "speed": rms(value),
        "directional": rms(jacobian @ value),
        "jacobian_full": rms(jacobian),
        "jacobian_diagonal": rms(np.diagonal(jacobian)),
        "jacobian_off_diagonal": np.mean(off_diagonal**2),
    }


@pytest.mark.parametrize("name", SIMPLE)
def test_each_is_what_it_says(f, name):
    seen = Exact().look(f, T, Z, None)
    assert float(SIMPLE[name]()(f, T, Z, seen, PROBE)) == pytest.approx(definitions(f)[name], rel=1e-12)


@pytest.mark.parametrize("name", ["jacobian_full", "jacobian_diagonal", "jacobian_off_diagonal"])
def test_the_whole_jacobian_does_not_depend_on_the_divergence(f, name):
    closed = SIMPLE[name]()(f, T, Z, ClosedForm().look(f, T, Z, None), PROBE)
    assert float(closed) == pytest.approx(definitions(f)[name], rel=1e-12)


def test_the_frobenius_norm_is_estimated_without_bias_by_the_noise_of_the_trace(f):
    noise = jax.random.normal(jax.random.key(0), (20_000, 1, D))
    estimate = jax.vmap(lambda eps: JacobianFrobenius()(f, T, Z, Hutchinson().look(f, T, Z, eps), None))(noise)
    error = float(jnp.std(estimate)) / len(noise) ** 0.5
    assert float(jnp.mean(estimate)) == pytest.approx(definitions(f)["jacobian"], abs=4 * error)


def test_the_frobenius_norm_needs_no_product_beyond_the_trace(f):
    seen = Hutchinson().look(f, T, Z, jnp.ones((1, D)))
    norm = lambda products: JacobianFrobenius()(f, T, Z, seen._replace(products=products), None)
    with_products = jax.make_jaxpr(lambda z: Hutchinson().look(f, T, z, jnp.ones((1, D))).products)(Z)
    assert "dot_general" in str(with_products)
    assert "dot_general" not in str(jax.make_jaxpr(norm)(seen.products))


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("network", ["mlp", "residual"])
def test_taylor_mode_gives_the_total_derivatives(build, network, order):
    kinds = {
        "mlp": lambda: build(MLP, D, (6,)),
        "residual": lambda: build(ResidualMLP, D, (6, 6), frequencies=2),
    }
    g = kinds[network]()
    expected = _by_forward_mode(g, order)(T, Z)
    np.testing.assert_allclose(_by_taylor_mode(g, T, Z, order), expected, rtol=1e-9)


def test_the_first_total_derivative_is_the_acceleration(f):
    by_time = jax.jacfwd(lambda t: f(t, Z))(T)
    expected = by_time + jax.jacobian(lambda z: f(T, z))(Z) @ f(T, Z)
    nothing = Local(f(T, Z), jnp.zeros(()), None, None, False)
    value = TotalDerivative(1)(f, T, Z, nothing, None)
    assert float(value) == pytest.approx(float(jnp.mean(expected**2)), rel=1e-10)


class Odd(eqx.Module):
    """A part that Taylor mode does not know."""

    def __call__(self, t, z):
        return jnp.cbrt(z) * t


def test_a_network_beyond_taylor_mode_is_differentiated_all_the_same(build):
    for g in (Odd(), build(MLP, D, (6,), nonlinearity="softplus", layer="concat")):
        np.testing.assert_allclose(total_derivative(g, T, Z, 2), _by_forward_mode(g, 2)(T, Z))


BOTH = (Kinetic(), TotalDerivative(2))


def flow(build, *, divergence=None, steer=0.0, names=BOTH, **solver):
    tight = Solver(**{"rtol": 1e-9, "atol": 1e-9} | solver)
    training = Numerics(divergence or ClosedForm(), tight, tuple(names), steer)
    cnf = CNF(build(MLP, D, (8,)), end_time=0.7, training=training, testing=Numerics(ClosedForm(), tight))
    return Flow(StandardNormal((D,)), cnf)


def test_penalties_are_integrals_along_the_path_per_sample_in_both_directions(build):
    model = flow(build)
    z = np.random.default_rng(2).normal(size=(4, D))
    out = model.bijection.forward(jnp.asarray(z), train=True)
    back = model.bijection.inverse(out.value, train=True)
    dynamics = model.bijection.dynamics

    @jax.jit
    def speed(time):
        points = model.at(time).bijection.forward(jnp.asarray(z)).value
        return jax.vmap(lambda point: jnp.mean(dynamics(0.7 * time, point) ** 2))(points)

    speeds = [speed(time) for time in (np.arange(200) + 0.5) / 200]
    np.testing.assert_allclose(out.report.penalties["kinetic"], 0.7 * np.mean(speeds, axis=0), rtol=1e-5)
    for name, value in out.report.penalties.items():
        assert value.shape == (4,)
        np.testing.assert_allclose(value, back.report.penalties[name], rtol=1e-6)


def test_penalties_do_not_steer_the_steps(build):
    x = np.random.default_rng(3).normal(size=(8, D))
    loose = {"rtol": 1e-4, "atol": 1e-4}
    plain, rich = (flow(build, names=names, **loose).density(x, train=True) for names in ((), (TotalDerivative(3),)))
    np.testing.assert_array_equal(plain.log_prob, rich.log_prob)
    assert int(plain.report.nfe) == int(rich.report.nfe)


@pytest.mark.parametrize(("gradient", "method", "steps"), [("checkpointed", "midpoint", 3), ("adjoint", "rk4", 40)])
def test_the_regularised_loss_has_the_right_gradient(build, gradient, method, steps):
    """That of few steps if it is the discrete solve's, that of many if it is the continuous one's."""
    model = flow(build, gradient=gradient, method=method, num_steps=steps)
    weights = (("kinetic", 0.5), ("derivative", 0.1))
    x = jnp.asarray(np.random.default_rng(4).normal(size=(5, D)))
    where = lambda m: m.bijection.dynamics.layers[0].linear.weight

    @jax.jit
    @jax.value_and_grad
    def loss(weight):
        return Likelihood(weights)(eqx.tree_at(where, model, weight), x, jax.random.key(0))[0]

    weight = where(model)
    direction = jnp.asarray(np.random.default_rng(5).normal(size=weight.shape))
    slope = (loss(weight + 1e-5 * direction)[0] - loss(weight - 1e-5 * direction)[0]) / 2e-5
    assert float(jnp.vdot(loss(weight)[1], direction)) == pytest.approx(float(slope), rel=1e-5)


def test_the_objective_adds_the_weighted_penalties(build):
    model, x = flow(build), jnp.asarray(np.random.default_rng(6).normal(size=(5, D)))
    loss, (metrics, _) = Likelihood((("kinetic", 2.0),))(model, x, jax.random.key(0))
    plain, _ = Likelihood()(model, x, jax.random.key(0))
    assert float(metrics["nll"]) == pytest.approx(float(plain))
    assert float(loss) == pytest.approx(float(plain + D * 2 * metrics["kinetic"]))


def test_the_jacobian_has_noise_of_its_own_where_the_trace_has_none(build):
    x = jnp.asarray(np.random.default_rng(7).normal(size=(3, D)))
    for divergence in (ClosedForm(), Hutchinson(), Exact()):
        model = flow(build, divergence=divergence, names=[JacobianFrobenius()], rtol=1e-4, atol=1e-4)
        penalty = model.density(x, train=True, key=jax.random.key(1)).report.penalties["jacobian"]
        assert bool(jnp.all(penalty > 0))
    with pytest.raises(ValueError, match="jacobian needs noise"):
        flow(build, names=[JacobianFrobenius()]).density(x, train=True)


def test_steer_moves_the_end_of_the_path_in_training_only(build):
    model, x = flow(build, steer=0.5, names=()), jnp.asarray(np.random.default_rng(8).normal(size=(3, D)))
    ends = [model.density(x, train=True, key=jax.random.key(i)).z for i in range(2)]
    assert float(jnp.max(jnp.abs(ends[0] - ends[1]))) > 1e-3
    np.testing.assert_array_equal(model.density(x).z, flow(build, names=()).density(x).z)
    with pytest.raises(ValueError, match="steer"):
        flow(build, steer=1.0)


def test_coefficients_choose_the_regularisers():
    chosen = regularizers(RegularizationConfig(kinetic=0.1, derivative=0.2, derivative_order=3))
    assert [(r.name, weight) for r, weight in chosen] == [("derivative", 0.2), ("kinetic", 0.1)]
    assert regularizers(RegularizationConfig()) == []
    with pytest.raises(ValueError, match="kinetic must be a number and not negative; got -1"):
        regularizers(RegularizationConfig(kinetic=-1.0))
    with pytest.raises(ValueError, match="derivative_order must be at least 1"):
        regularizers(RegularizationConfig(derivative_order=0))
