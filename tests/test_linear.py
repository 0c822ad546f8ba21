"""Linear maps of channels, and maps at every place of an image."""

import io

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ffjord.bijections import ActNorm, EachPlace, LULinear, MovingNorm
from ffjord.parameters import trainable
from ffjord.solve import OK

pytestmark = pytest.mark.usefixtures("x64")

KEY = jax.random.key(0)
PLACES = (2, 2, 3)


def perturbed(tree, seed=0, scale=0.5):
    """The tree with arbitrary numbers where it is trained."""
    rng = np.random.default_rng(seed)
    params, rest = eqx.partition(tree, trainable(tree))
    return eqx.combine(jax.tree.map(lambda p: p + scale * rng.normal(size=p.shape), params), rest)


def rows(shape, n=3):
    return jnp.asarray(np.random.default_rng(1).normal(size=(n, *shape)))


@eqx.filter_jit
def everything(bijection, z, condition):
    given = None if condition is None else condition[None, 0]

    def with_jacobian(direction, points):
        """Values, log-determinants and outcomes, and the log-determinant of the whole map's Jacobian."""

        def one(point):
            out = direction(point[None], condition=given)
            return out.value[0], (out.value[0], out.log_det[0], out.report.outcome)

        jacobians, out = jax.vmap(jax.jacfwd(one, has_aux=True))(points)
        return *out, jnp.linalg.slogdet(jacobians.reshape(-1, z[0].size, z[0].size))[1]

    def loss(pair):
        out = pair[0].inverse(pair[1], condition=condition, train=True)
        return jnp.sum(out.value**2) + jnp.sum(out.log_det)

    forward = with_jacobian(bijection.forward, z)
    inverse = with_jacobian(bijection.inverse, forward[0])
    return forward, inverse, eqx.filter_grad(loss)((bijection, z))


def check_promises(bijection, z, condition=None):
    """Round trip, log-determinants against the whole Jacobian, gradients, and save and load."""
    (x, log_det, outcome, brute), (back, log_det_back, outcome_back, brute_back), (grad, grad_z) = everything(
        bijection, z, condition
    )
    assert bool(jnp.all(outcome == OK) & jnp.all(outcome_back == OK))
    assert float(jnp.min(jnp.max(jnp.abs(x - z).reshape(len(z), -1), axis=1))) > 1e-3
    np.testing.assert_allclose(back, z, atol=1e-8)
    np.testing.assert_allclose(log_det, brute, atol=1e-8)
    np.testing.assert_allclose(log_det_back, brute_back, atol=1e-8)
    np.testing.assert_allclose(log_det_back, -log_det, atol=1e-8)
    trained = eqx.filter(grad, trainable(bijection))
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves((trained, grad_z)))
    assert all(bool(jnp.any(leaf != 0)) for leaf in jax.tree.leaves(trained))
    saved = io.BytesIO()
    eqx.tree_serialise_leaves(saved, bijection)
    saved.seek(0)
    blank = jax.tree.map(lambda leaf: jnp.zeros_like(leaf) if eqx.is_array(leaf) else leaf, bijection)
    assert eqx.tree_equal(eqx.tree_deserialise_leaves(saved, blank), bijection)


BIJECTIONS = {
    "rotation": (lambda: LULinear(3, key=KEY), (3,)),
    "identity": (lambda: LULinear(2, start="identity", key=KEY), (2,)),
    "1x1 convolution": (lambda: EachPlace(LULinear(3, key=KEY)), PLACES),
    "act norm of channels": (lambda: EachPlace(ActNorm((3,))), PLACES),
}


@pytest.mark.parametrize("name", BIJECTIONS)
def test_every_bijection_keeps_every_promise(name):
    build, shape = BIJECTIONS[name]
    check_promises(perturbed(build()), rows(shape))


def test_the_matrix_is_the_product_of_its_factors():
    linear, x = perturbed(LULinear(5, key=KEY)), rows((5,))
    factors, order = np.asarray(linear.factors), np.asarray(linear.order.value)
    upper = np.triu(factors, 1) + np.diag(np.asarray(linear.signs.value) * np.exp(np.diag(factors)))
    matrix = np.eye(5)[order] @ (np.tril(factors, -1) + np.eye(5)) @ upper
    assert not np.array_equal(order, np.arange(5))
    np.testing.assert_allclose(linear.matrix(), matrix, rtol=1e-12)
    np.testing.assert_allclose(linear.inverse(x).value, x @ matrix.T, rtol=1e-12)
    np.testing.assert_allclose(linear.forward(x).value, np.linalg.solve(matrix, x.T).T, rtol=1e-10)
    np.testing.assert_allclose(linear.inverse(x).log_det, np.full(3, np.linalg.slogdet(matrix)[1]), rtol=1e-12)


def test_starts_as_a_rotation_or_the_identity():
    np.testing.assert_array_equal(LULinear(4, start="identity", key=KEY).matrix(), np.eye(4))
    first, second = (LULinear(4, key=jax.random.key(seed)).matrix() for seed in (0, 1))
    np.testing.assert_allclose(first @ first.T, np.eye(4), atol=1e-12)
    assert float(jnp.min(jnp.abs(first - second))) > 1e-3


@pytest.mark.usefixtures("unchecked")
def test_start_must_be_known():
    with pytest.raises(ValueError, match="start must be identity or rotation; got 'zero'"):
        LULinear(2, start="zero", key=KEY)


def test_a_map_of_each_place_does_the_same_everywhere():
    linear, x = perturbed(LULinear(3, key=KEY)), rows(PLACES)
    out = EachPlace(linear).inverse(x)
    np.testing.assert_allclose(out.value, jnp.einsum("oc,nhwc->nhwo", linear.matrix(), x), rtol=1e-12)
    np.testing.assert_allclose(out.log_det, 4 * jnp.linalg.slogdet(linear.matrix())[1] * jnp.ones(3), rtol=1e-10)


def test_norms_of_channels_start_from_all_places():
    x = 3.0 + 2.0 * rows(PLACES, n=50)
    for norm in (ActNorm((3,)), MovingNorm((3,))):
        calibrated = EachPlace(norm).calibrate(x, key=KEY)
        z = calibrated.inverse(x).value
        np.testing.assert_allclose(jnp.mean(z, axis=(0, 1, 2)), 0, atol=1e-12)
        np.testing.assert_allclose(jnp.std(z, axis=(0, 1, 2)), 1, atol=1e-4)
        assert calibrated.inner.shift.shape == (3,)


def test_norms_of_channels_take_up_what_they_saw():
    x, norm = rows(PLACES), EachPlace(MovingNorm((3,), lag=0.25))
    moved = norm.absorb(norm.inverse(x, train=True).report.observed)
    np.testing.assert_allclose(moved.inner.mean.value, 0.25 * x.mean((0, 1, 2)), rtol=1e-12)
