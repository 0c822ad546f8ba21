"""Exact traces are exact; estimates are unbiased, with the variance that theory gives."""

from typing import Any, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ffjord.choices import LayerKind, NonlinearityName
from ffjord.divergence import Bottleneck, ClosedForm, Exact, Hutchinson, HutchPlusPlus, Orthogonal, automatic
from ffjord.dynamics import MLP
from ffjord.experiments.config import ModelConfig, SolveConfig
from ffjord.models import ffjord

pytestmark = pytest.mark.usefixtures("x64")

DRAWS = 20_000
MATRIX = np.array([[1.0, 2.0, -0.5], [0.3, -2.0, 1.5], [0.7, 0.1, 0.5]])
IDENTITY = lambda t, z: z
T = 0.4


class Linear(eqx.Module):
    """f(t, z) = A z."""

    matrix: jax.Array

    def __call__(self, t, z):
        return self.matrix @ z


@pytest.fixture
def z():
    return jax.random.normal(jax.random.key(1), (3,))


@pytest.fixture
def z6():
    return jax.random.normal(jax.random.key(1), (6,))


def estimates(divergence, f, z):
    """Many independent estimates of the trace."""
    draw = lambda key: divergence(f, jnp.asarray(T), z, divergence.noise(f, z, key=key))[1]
    return np.asarray(jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(2), DRAWS)))


def theoretical_variance(kind, matrix, probes):
    symmetric = (matrix + matrix.T) / 2
    diagonal = np.sum(np.diag(symmetric) ** 2) if kind == "rademacher" else 0.0
    return 2 * (np.sum(symmetric**2) - diagonal) / probes


def orthogonal_variance(matrix, probes):
    symmetric, dim = (matrix + matrix.T) / 2, len(matrix)
    factor = 2 * dim * (dim - probes) / (probes * (dim - 1) * (dim + 2))
    return factor * (np.sum(symmetric**2) - np.trace(symmetric) ** 2 / dim)


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


# Orthogonal probes.


@pytest.mark.parametrize("probes", [1, 2])
def test_orthogonal_probes_are_unbiased_with_the_variance_of_theory(probes, z):
    draws = estimates(Orthogonal(probes), Linear(jnp.asarray(MATRIX)), z)
    assert_mean_and_variance(draws, np.trace(MATRIX), orthogonal_variance(MATRIX, probes))


def test_orthogonal_probes_vary_less_than_independent_ones(z6, build):
    mlp = build(MLP, 6, (8,))
    exact = Exact()(mlp, jnp.asarray(T), z6)[1]
    orthogonal, independent = (estimates(make(probes=4), mlp, z6) for make in (Orthogonal, Hutchinson))
    assert abs(orthogonal.mean() - exact) < 4 * orthogonal.std() / np.sqrt(DRAWS)
    assert 0.1 * independent.std() < orthogonal.std() < 0.7 * independent.std()


def test_as_many_orthogonal_probes_as_dimensions_are_exact(z6, build):
    t, mlp = jnp.asarray(T), build(MLP, 6, (8,))
    estimator = Orthogonal(6)
    _, trace = estimator(mlp, t, z6, estimator.noise(mlp, z6, key=jax.random.key(0)))
    np.testing.assert_allclose(trace, Exact()(mlp, t, z6)[1], rtol=1e-12)


def test_orthogonal_probes_are_at_right_angles_and_uniform_on_the_sphere(z):
    draw = jax.jit(jax.vmap(lambda key: Orthogonal(2).noise(IDENTITY, z, key=key)))
    eps = np.asarray(draw(jax.random.split(jax.random.key(0), DRAWS)))
    gram = np.einsum("nkd,nld->nkl", eps, eps)
    np.testing.assert_allclose(gram, np.broadcast_to(3 * np.eye(2), gram.shape), atol=1e-12)
    for moment, expected in ((eps.mean(0), 0), (np.einsum("nkd,nke->kde", eps, eps) / DRAWS, np.eye(3))):
        np.testing.assert_allclose(moment - expected, 0, atol=5 * np.sqrt(3 / DRAWS))  # |v| <= sqrt(3)


def test_more_probes_than_right_angles_are_an_error(z):
    with pytest.raises(ValueError, match=r"probes=4 .*D=3 .*set probes to at most 3.* or use Exact or Hutchinson"):
        Orthogonal(4).noise(Linear(jnp.asarray(MATRIX)), z, key=jax.random.key(0))


# Hutch++.


@pytest.mark.parametrize(("kind", "probes"), [("gaussian", 3), ("rademacher", 8)])
def test_hutch_plus_plus_is_unbiased(kind, probes, z6, build):
    mlp = build(MLP, 6, (8,))
    exact = Exact()(mlp, jnp.asarray(T), z6)[1]
    draws = estimates(HutchPlusPlus(kind, probes), mlp, z6)
    assert draws.std() > 0.01
    assert abs(draws.mean() - exact) < 4 * draws.std() / np.sqrt(DRAWS)


def given_sketch(estimator, f, z):
    """The estimator with its sketch, but not the rest of its noise, drawn beforehand."""
    sketch, _ = estimator.noise(f, z, key=jax.random.key(7))
    return sketch, lambda t, z, key: estimator(f, t, z, (sketch, estimator.noise(f, z, key=key)[1]))[1]


def test_hutch_plus_plus_is_for_any_sketch_unbiased_with_hutchinsons_variance_of_the_rest(z6, build):
    matrix = np.random.default_rng(0).normal(size=(6, 6))
    sketch, estimate = given_sketch(HutchPlusPlus("gaussian", 7), Linear(jnp.asarray(matrix)), z6)
    draw = jax.jit(jax.vmap(lambda key: estimate(jnp.asarray(T), z6, key)))
    draws = np.asarray(draw(jax.random.split(jax.random.key(2), DRAWS)))
    q, _ = np.linalg.qr(matrix @ np.asarray(sketch).T)
    beyond = np.eye(6) - q @ q.T
    assert q.shape == (6, 2)
    assert_mean_and_variance(draws, np.trace(matrix), theoretical_variance("gaussian", beyond @ matrix @ beyond, 3))


def test_the_gradient_of_hutch_plus_plus_is_unbiased(z6, build):
    mlp = build(MLP, 6, (8,))
    _, estimate = given_sketch(HutchPlusPlus(), mlp, z6)
    draw = jax.jit(jax.vmap(jax.grad(lambda z, key: estimate(jnp.asarray(T), z, key)), in_axes=(None, 0)))
    draws = np.asarray(draw(z6, jax.random.split(jax.random.key(2), DRAWS)))
    exact = jax.jit(jax.grad(lambda z: Exact()(mlp, jnp.asarray(T), z)[1]))(z6)
    assert np.all(np.abs(draws.mean(0) - exact) < 4 * draws.std(0) / np.sqrt(DRAWS))


@pytest.mark.parametrize(("rank", "probes"), [(1, 3), (1, 6), (2, 8)])
def test_hutch_plus_plus_is_exact_where_the_rank_is_at_most_the_sketchs(rank, probes, z6):
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(6, rank)) @ rng.normal(size=(rank, 6))
    estimator, f = HutchPlusPlus("rademacher", probes), Linear(jnp.asarray(matrix))
    _, trace = estimator(f, jnp.asarray(T), z6, estimator.noise(f, z6, key=jax.random.key(0)))
    np.testing.assert_allclose(trace, np.trace(matrix), rtol=1e-10)


def test_hutch_plus_plus_is_finite_where_the_jacobian_is_zero(z):
    estimator = HutchPlusPlus("rademacher", 6)

    def trace(matrix):
        eps = estimator.noise(IDENTITY, z, key=jax.random.key(0))
        return estimator(Linear(matrix), jnp.asarray(T), z, eps)[1]

    value, grad = jax.value_and_grad(trace)(jnp.zeros((3, 3)))
    assert value == 0
    assert np.all(np.isfinite(grad))
    assert np.trace(grad) > 1  # that of the exact trace is I


@pytest.mark.parametrize("probes", [3, 4, 5, 12])
def test_hutch_plus_plus_takes_as_many_products_as_it_says(probes, z6):
    sketch, rest = HutchPlusPlus(probes=probes).noise(IDENTITY, z6, key=jax.random.key(0))
    assert len(sketch) == probes // 3
    assert 2 * len(sketch) + len(rest) == probes


def test_the_sketch_of_hutch_plus_plus_is_never_singular(z):
    """Of three vectors of signs in three dimensions two are the same, up to sign, more often than not."""
    draw = jax.jit(jax.vmap(lambda key: HutchPlusPlus("rademacher", 9).noise(IDENTITY, z, key=key)))
    sketch, rest = draw(jax.random.split(jax.random.key(0), 100))
    assert np.linalg.svd(sketch, compute_uv=False).min() > 1
    assert np.all(np.abs(rest) == 1)


def test_hutch_plus_plus_needs_three_products_and_room_for_its_sketch(z):
    with pytest.raises(ValueError, match=r"probes of at least 3.*got 2\. Raise probes, or use Hutchinson"):
        HutchPlusPlus(probes=2)
    HutchPlusPlus(probes=11).noise(IDENTITY, z, key=jax.random.key(0))
    with pytest.raises(ValueError, match=r"probes=12 .* 4 vectors in D=3 .* at most 11, or use Exact"):
        HutchPlusPlus(probes=12).noise(IDENTITY, z, key=jax.random.key(0))


# What all estimators share.


PROBING = [Exact(), Hutchinson("rademacher", 2), Orthogonal(2), HutchPlusPlus(probes=6)]


@pytest.mark.parametrize("estimator", PROBING, ids=lambda estimator: type(estimator).__name__)
def test_look_shows_the_products_that_the_answer_was_made_of(estimator, z, build):
    t, mlp = jnp.asarray(T), build(MLP, 3, (5,))

    @eqx.filter_jit
    def run(z):
        eps = estimator.noise(mlp, z, key=jax.random.key(0))
        jacobian = jax.jacfwd(lambda z: mlp(t, z))(z)
        return estimator.look(mlp, t, z, eps), estimator(mlp, t, z, eps), mlp(t, z), jacobian

    local, (value, trace), expected, jacobian = run(z)
    np.testing.assert_allclose([local.dz, value], [expected, expected], rtol=1e-13)
    np.testing.assert_allclose(local.trace, trace, rtol=1e-13)
    np.testing.assert_allclose(local.products, local.vectors @ jacobian.T, rtol=1e-12)
    assert local.exact == isinstance(estimator, Exact)


@pytest.mark.parametrize("estimator", PROBING, ids=lambda estimator: type(estimator).__name__)
def test_the_products_estimate_the_frobenius_norm_without_bias(estimator, z):
    def squares(key):
        local = estimator.look(Linear(jnp.asarray(MATRIX)), jnp.asarray(T), z, estimator.noise(IDENTITY, z, key=key))
        return jnp.sum(local.products**2) / (1 if local.exact else len(local.products))

    draws = np.asarray(jax.jit(jax.vmap(squares))(jax.random.split(jax.random.key(2), DRAWS)))
    assert abs(draws.mean() - np.sum(MATRIX**2)) < 4 * draws.std() / np.sqrt(DRAWS) + 1e-12


def test_look_without_products_is_the_answer_alone(z, build):
    t, mlp = jnp.asarray(T), build(MLP, 3, (5, 2, 5))
    eps = Bottleneck().noise(mlp, z, key=jax.random.key(0))
    local = eqx.filter_jit(Bottleneck().look)(mlp, t, z, eps)
    np.testing.assert_allclose(local.dz, mlp(t, z), rtol=1e-13)
    np.testing.assert_allclose(local.trace, Bottleneck()(mlp, t, z, eps)[1], rtol=1e-13)
    assert local[2:] == (None, None, False)


@pytest.mark.parametrize("estimator", [Orthogonal(6), HutchPlusPlus("rademacher", 18)])
def test_estimators_take_events_of_any_shape(estimator):
    z = jnp.arange(6.0).reshape(2, 3)
    f = lambda t, z: t * z**2
    noise = lambda z: estimator.noise(f, z, key=jax.random.key(0))
    local = eqx.filter_jit(lambda z: estimator.look(f, jnp.asarray(0.5), z, noise(z)))(z)
    np.testing.assert_allclose(local.dz, 0.5 * z**2)
    np.testing.assert_allclose(local.trace, jnp.sum(z), rtol=1e-12)
    assert local.vectors.shape == local.products.shape == (6, 2, 3)


def test_a_flow_may_name_its_estimator(build):
    x, key = jax.random.normal(jax.random.key(3), (5, 3)), jax.random.key(0)
    loss = lambda flow, x: -flow.density(x, train=True, key=key).log_prob.mean()

    def value_and_grad(name, probes):
        solve = SolveConfig(divergence=name, probes=probes, method="euler", num_steps=4)
        flow = build(ffjord, 3, ModelConfig(hidden=(2,)), solve)
        return jax.tree.leaves(eqx.filter_jit(eqx.filter_value_and_grad(loss))(flow, x))

    exact = value_and_grad("exact", 1)
    for name, enough in (("orthogonal", 3), ("hutch++", 9)):
        for found, expected in zip(value_and_grad(name, enough), exact, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.usefixtures("unchecked")
def test_an_unknown_estimator_is_an_error_that_lists_the_known_ones(build):
    unknown: Any = "guess"
    with pytest.raises(ValueError, match=r"one of auto, .*, orthogonal, hutch\+\+, bottleneck; got 'guess'"):
        build(ffjord, 2, solve=SolveConfig(divergence=unknown))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("estimator", [Hutchinson, Bottleneck, HutchPlusPlus])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"kind": "uniform"}, "noise must be one of gaussian, rademacher; got 'uniform'"), ({"probes": 0}, "probes.*0")],
)
def test_bad_configuration_is_an_error_that_names_the_argument(estimator, arguments, message):
    with pytest.raises(ValueError, match=message):
        estimator(**arguments)


def test_orthogonal_needs_a_probe():
    with pytest.raises(ValueError, match=r"probes must be at least 1; got 0"):
        Orthogonal(0)


@pytest.mark.parametrize(
    ("hidden", "dim", "expected"), [((4, 4), 100, ClosedForm), ((4, 4, 4), 8, Exact), ((4, 4, 4), 100, Hutchinson)]
)
def test_automatic_takes_the_cheapest_exact_divergence(hidden, dim, expected, build):
    mlp = build(MLP, dim, hidden)
    assert isinstance(automatic(mlp, (dim,), max_products=8), expected)
