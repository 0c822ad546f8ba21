"""Exact traces are exact; estimates are unbiased, with the variance that theory gives."""

from typing import get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ffjord.choices import LayerKind, NonlinearityName
from ffjord.divergence import Bottleneck, ClosedForm, Exact, Hutchinson, automatic
from ffjord.dynamics import MLP

pytestmark = pytest.mark.usefixtures("x64")

DRAWS = 20_000
MATRIX = np.array([[1.0, 2.0, -0.5], [0.3, -2.0, 1.5], [0.7, 0.1, 0.5]])
T = 0.4


class Linear(eqx.Module):
    """f(t, z) = A z."""

    matrix: jax.Array

    def __call__(self, t, z):
        return self.matrix @ z


@pytest.fixture
def z():
    return jax.random.normal(jax.random.key(1), (3,))


def estimates(divergence, f, z):
    """Many independent estimates of the trace."""
    draw = lambda key: divergence(f, jnp.asarray(T), z, divergence.noise(f, z, key=key))[1]
    return np.asarray(jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(2), DRAWS)))


def theoretical_variance(kind, matrix, probes):
    symmetric = (matrix + matrix.T) / 2
    diagonal = np.sum(np.diag(symmetric) ** 2) if kind == "rademacher" else 0.0
    return 2 * (np.sum(symmetric**2) - diagonal) / probes


def assert_mean_and_variance(draws, mean, variance):
    """Both within five standard errors of the sample's own mean and variance."""
    squares = (draws - draws.mean()) ** 2
    assert abs(draws.mean() - mean) < 5 * draws.std() / np.sqrt(DRAWS)
    assert abs(squares.mean() - variance) < 5 * squares.std() / np.sqrt(DRAWS)


@pytest.mark.parametrize("kind", get_args(LayerKind))
@pytest.mark.parametrize("name", get_args(NonlinearityName))
@pytest.mark.parametrize("hidden", [(), (5,), (5, 4)], ids=len)
def test_closed_form_and_exact_are_the_trace_of_the_jacobian_to_rounding(kind, name, hidden, z, build):
    t, mlp = jnp.asarray(T), build(MLP, 3, hidden, layer=kind, nonlinearity=name)
    jacobian = jax.jacfwd(lambda z: mlp(t, z))(z)
    for divergence in (ClosedForm(), Exact()):
        value, trace = divergence(mlp, t, z)
        np.testing.assert_allclose(value, mlp(t, z), rtol=1e-13, atol=1e-14)
        np.testing.assert_allclose(trace, jnp.trace(jacobian), rtol=1e-13, atol=1e-14)


def test_exact_is_the_trace_of_the_jacobian(z, build):
    mlp = build(MLP, 3, (5, 4, 5))
    value, trace = Exact()(mlp, jnp.asarray(T), z)
    np.testing.assert_allclose(value, mlp(jnp.asarray(T), z), rtol=1e-14)
    np.testing.assert_allclose(trace, jnp.trace(jax.jacrev(lambda z: mlp(jnp.asarray(T), z))(z)), rtol=1e-13)


def test_exact_takes_events_of_any_shape():
    z = jnp.arange(6.0).reshape(2, 3)
    value, trace = Exact()(lambda t, z: t * z**2, jnp.asarray(0.5), z)
    np.testing.assert_allclose(value, 0.5 * z**2)
    np.testing.assert_allclose(trace, jnp.sum(z))


@pytest.mark.parametrize("free_form", [True, False])
def test_closed_form_without_one_is_an_error(free_form, z, build):
    f = (lambda t, z: z) if free_form else build(MLP, 3, (4, 4, 4))
    with pytest.raises(ValueError, match=r"no divergence in closed form .*two hidden layers.*use Exact or Hutchinson"):
        ClosedForm()(f, jnp.asarray(T), z)


@pytest.mark.parametrize("probes", [1, 4])
@pytest.mark.parametrize("kind", ["gaussian", "rademacher"])
def test_hutchinson_is_unbiased_with_the_variance_of_theory(kind, probes, z):
    draws = estimates(Hutchinson(kind, probes), Linear(jnp.asarray(MATRIX)), z)
    assert_mean_and_variance(draws, np.trace(MATRIX), theoretical_variance(kind, MATRIX, probes))


def test_rademacher_noise_is_exact_for_a_diagonal_jacobian(z):
    draws = estimates(Hutchinson("rademacher"), Linear(jnp.diag(jnp.asarray([1.0, 2.0, 3.0]))), z)
    np.testing.assert_allclose(draws, 6.0, rtol=1e-14)


@pytest.mark.parametrize("probes", [1, 4])
@pytest.mark.parametrize("kind", ["gaussian", "rademacher"])
def test_bottleneck_is_unbiased_with_the_variance_of_the_waist(kind, probes, z, build):
    t, mlp = jnp.asarray(T), build(MLP, 3, (8, 2, 8), layer="ignore")
    down = jax.jacfwd(lambda z: mlp.encode(t, z))(z)
    up = jax.jacfwd(lambda h: mlp.decode(t, h))(mlp.encode(t, z))
    waist = np.asarray(down @ up)
    np.testing.assert_allclose(np.trace(waist), Exact()(mlp, t, z)[1], rtol=1e-12)
    draws = estimates(Bottleneck(kind, probes), mlp, z)
    assert_mean_and_variance(draws, np.trace(waist), theoretical_variance(kind, waist, probes))


def test_noise_has_the_width_of_what_is_probed(z, build):
    t, mlp = jnp.asarray(T), build(MLP, 3, (8, 2, 8), layer="ignore")
    key = jax.random.key(3)
    assert Hutchinson(probes=5).noise(mlp, z, key=key).shape == (5, 3)
    eps = Bottleneck(probes=5).noise(mlp, z, key=key)
    assert eps.shape == (5, 2)
    assert eps.dtype == z.dtype
    down = jax.jacfwd(lambda z: mlp.encode(t, z))(z)
    up = jax.jacfwd(lambda h: mlp.decode(t, h))(mlp.encode(t, z))
    value, trace = Bottleneck(probes=5)(mlp, t, z, eps)
    np.testing.assert_allclose(value, mlp(t, z), rtol=1e-13)
    np.testing.assert_allclose(trace, jnp.mean(jax.vmap(lambda e: e @ down @ up @ e)(eps)), rtol=1e-12)


def test_rademacher_noise_is_signs(z):
    eps = Hutchinson("rademacher", 50).noise(lambda t, z: z, z, key=jax.random.key(0))
    assert set(np.unique(eps)) == {-1.0, 1.0}


def test_bottleneck_needs_a_waist(z):
    with pytest.raises(ValueError, match=r"Linear has no `encode` and `decode`.*Use Hutchinson"):
        Bottleneck().noise(Linear(jnp.asarray(MATRIX)), z, key=jax.random.key(0))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("estimator", [Hutchinson, Bottleneck])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"kind": "uniform"}, "noise must be one of gaussian, rademacher; got 'uniform'"), ({"probes": 0}, "probes.*0")],
)
def test_bad_configuration_is_an_error_that_names_the_argument(estimator, arguments, message):
    with pytest.raises(ValueError, match=message):
        estimator(**arguments)


@pytest.mark.parametrize(
    ("hidden", "dim", "expected"), [((4, 4), 100, ClosedForm), ((4, 4, 4), 8, Exact), ((4, 4, 4), 100, Hutchinson)]
)
def test_automatic_takes_the_cheapest_exact_divergence(hidden, dim, expected, build):
    mlp = build(MLP, dim, hidden)
    assert isinstance(automatic(mlp, (dim,), max_products=8), expected)
