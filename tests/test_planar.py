"""Planar flows: their layers and their inverse, and planar units as continuous dynamics."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ffjord.bijections import CNF
from ffjord.divergence import ClosedForm
from ffjord.dynamics import Planar
from ffjord.experiments.config import ModelConfig, SolveConfig
from ffjord.models import build_model
from ffjord.models.planar import PlanarLayer, _root
from tests.test_autoregressive import GIVEN, KEY, C, D, X, built, check_promises, randomised

pytestmark = pytest.mark.usefixtures("x64")

T = 0.4


@pytest.mark.parametrize("condition_size", [0, C])
def test_a_planar_flow_keeps_every_promise(condition_size, tmp_path):
    flow, blank = (built("planar", condition_size=condition_size, seed=seed) for seed in (0, 1))
    check_promises(randomised(flow), X, GIVEN if condition_size else None, blank, tmp_path / "weights.npz")


def test_densities_of_a_planar_flow_depend_on_the_condition():
    flow = randomised(built("planar", condition_size=C))
    assert np.all(np.abs(flow.log_prob(X, condition=GIVEN + 0.1) - flow.log_prob(X, condition=GIVEN)) > 1e-6)


@pytest.mark.parametrize("condition_size", [0, C])
def test_an_untrained_planar_flow_is_nearly_its_base(condition_size):
    flow = built("planar", condition_size=condition_size, flows=8)
    z = flow.density(X, condition=GIVEN if condition_size else None).z
    np.testing.assert_allclose(z, X, atol=0.2)
    assert np.all(np.abs(z - X) > 1e-6)


@pytest.mark.parametrize("inner_product", [-1e3, -5.0, 0.0, 5.0, 1e3])
def test_a_planar_layer_is_its_formula_and_increases_along_w_whatever_its_coefficients(inner_product):
    w, u = np.asarray([1.0, 2.0, -0.5]), np.asarray([0.3, 0.1, 1.0])
    u = u + (inner_product - w @ u) * w / (w @ w)
    layer = eqx.tree_at(lambda p: p.coefficients, PlanarLayer(D, key=KEY), jnp.asarray([*w, *u, 0.7]))
    stretch = np.logaddexp(0, inner_product) - 1  # the paper's m(wᵀu)
    moved = u + (stretch - inner_product) * w / (w @ w)
    z = np.linspace(-3, 3, 101)[:, None] * w
    x = layer.forward(jnp.asarray(z)).value
    np.testing.assert_allclose(x, z + moved * np.tanh(z @ w + 0.7)[:, None], rtol=1e-10, atol=1e-10)
    assert np.all(np.diff(x @ w) >= (0 if inner_product < -100 else 1e-9))


STRETCHES = [-0.999, -0.5, 0.0, 3.0, 1e3]
ROOTS = np.asarray([-30.0, -3.0, -0.4, -1e-3, 0.0, 1e-6, 0.2, 1.0, 8.0])


@eqx.filter_jit
def roots(stretch, targets):
    return jax.vmap(_root, (None, 0))(stretch, targets)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_root_has_the_precision_of_its_type(dtype):
    """A relative error of the target moves the root by that times target / slope."""
    for stretch in STRETCHES:
        stretch = dtype(stretch)
        target = (ROOTS + np.float64(stretch) * np.tanh(ROOTS)).astype(dtype)
        found = roots(jnp.asarray(stretch), jnp.asarray(target))
        assert found.dtype == dtype
        slope = 1 + np.float64(stretch) / np.cosh(ROOTS) ** 2
        bound = np.abs(target) + np.abs(stretch * np.tanh(ROOTS)) + np.abs(ROOTS)
        assert np.all(np.abs(found - ROOTS) <= 2 * np.finfo(dtype).eps * bound / slope)


def test_the_root_has_the_derivatives_of_an_implicit_function():
    """With s + k tanh(s) = c: ds/dc = 1 / slope, ds/dk = -tanh(s) / slope, d²s/dc² = -slope' / slope³."""
    k, c = jnp.asarray(-0.7), jnp.asarray(1.3)
    s = float(_root(k, c))
    slope, bend = 1 - 0.7 / np.cosh(s) ** 2, 2 * 0.7 * np.tanh(s) / np.cosh(s) ** 2
    np.testing.assert_allclose(jax.grad(_root, (0, 1))(k, c), [-np.tanh(s) / slope, 1 / slope], rtol=1e-12)
    np.testing.assert_allclose(jax.hessian(_root, 1)(k, c), -bend / slope**3, rtol=1e-12)


def test_the_likelihoods_gradient_is_right_so_that_a_planar_flow_can_learn_from_data():
    flow = randomised(built("planar"))
    coefficients = lambda flow: flow.bijection.layers.coefficients
    loss = eqx.filter_jit(lambda c: jnp.mean(eqx.tree_at(coefficients, flow, c).log_prob(X)))
    at, step = coefficients(flow), 1e-5
    along = [step * e.reshape(at.shape) for e in np.eye(at.size)]
    differences = [(loss(at + e) - loss(at - e)) / (2 * step) for e in along]
    np.testing.assert_allclose(jax.grad(loss)(at).ravel(), differences, rtol=1e-6, atol=1e-9)


@pytest.mark.usefixtures("unchecked")
def test_a_conditional_planar_flow_needs_one_width():
    with pytest.raises(ValueError, match=r"hidden must be one positive width.*; got \(8, 4\)"):
        built("planar", condition_size=C, hidden=(8, 4))


# The continuous flow.


@pytest.fixture(scope="module")
def units(build):
    return build(Planar, D, (5,), condition_size=C)


def written_out(units, z, condition):
    """Σ_m g_m u_m tanh(w_mᵀ z + b_m + (C c)_m), unit by unit."""
    total = np.zeros(D)
    for row, shift in zip(np.reshape(units.hypernet(jnp.asarray(T)), (5, -1)), units.given(condition), strict=True):
        w, u, (b, gate) = row[:D], row[D : 2 * D], row[2 * D :]
        total += u * np.tanh(w @ z + b + shift) / (1 + np.exp(-gate))
    return total


def test_planar_dynamics_is_a_sum_of_gated_units_and_knows_its_divergence(units):
    t, z, c = jnp.asarray(T), jnp.asarray(X[0]), jnp.asarray(GIVEN[0])
    np.testing.assert_allclose(units(t, z, c), written_out(units, X[0], c), rtol=1e-12)
    value, divergence = units.value_and_divergence(t, z, c)
    np.testing.assert_allclose(value, units(t, z, c), rtol=1e-14)
    np.testing.assert_allclose(divergence, jnp.trace(jax.jacfwd(lambda z: units(t, z, c))(z)), rtol=1e-12)


def test_planar_dynamics_without_conditions_has_none_to_add(units):
    t, z = jnp.asarray(T), jnp.asarray(X[0])
    alone = eqx.tree_at(lambda units: units.given, units, None)
    np.testing.assert_allclose(alone(t, z), units(t, z, jnp.zeros(C)), rtol=1e-14)


def test_a_planar_continuous_flow_keeps_every_promise(tmp_path):
    model = ModelConfig(dynamics="planar", hidden=(4,), end_time=1.0)
    solve = SolveConfig(method="rk4", num_steps=40)
    flow, blank = (build_model(D, model, solve, condition_size=C, key=jax.random.key(seed)) for seed in (0, 1))
    assert isinstance(flow.bijection, CNF)
    assert isinstance(flow.bijection.training.divergence, ClosedForm)
    assert isinstance(flow.bijection.testing.divergence, ClosedForm)
    check_promises(flow, X, GIVEN, blank, tmp_path / "weights.npz", atol=1e-6)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden": (64, 64)}, r"hidden of planar dynamics must be one number.*; got \(64, 64\)"),
        ({"hidden": (0,)}, r"hidden of planar dynamics must be one number.*; got \(0,\)"),
        ({"nonlinearity": "relu6"}, "nonlinearity must be one of tanh, .*'relu6'"),
    ],
)
def test_errors_name_the_setting(settings, message):
    with pytest.raises(ValueError, match=message):
        Planar(D, key=KEY, **settings)
