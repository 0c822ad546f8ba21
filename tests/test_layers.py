"""Every time-conditioned layer is the affine map that its docstring says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.nn import sigmoid

from ffjord.dynamics import time_linear

pytestmark = pytest.mark.usefixtures("x64")


def affine(linear, x):
    return linear.weight @ x + linear.bias


def hyper(layer, t, x):
    bias, weight = jnp.split(layer.hypernet(t), [5])
    return weight.reshape(5, 3) @ x + bias


FORMULAS = {
    "ignore": lambda layer, t, x: affine(layer.linear, x),
    "concat": lambda layer, t, x: affine(layer.linear, jnp.concatenate([t[None], x])),
    "squash": lambda layer, t, x: affine(layer.linear, x) * sigmoid(layer.gate(t)),
    "concatsquash": lambda layer, t, x: affine(layer.linear, x) * sigmoid(layer.gate(t)) + layer.shift.weight[:, 0] * t,
    "hyper": hyper,
    "blend": lambda layer, t, x: (1 - t) * affine(layer.first, x) + t * affine(layer.second, x),
}


@pytest.fixture(params=FORMULAS)
def kind(request):
    return request.param


@pytest.fixture
def layer(kind, build):
    return build(time_linear, kind, 3, 5)


@pytest.fixture
def x():
    return jax.random.normal(jax.random.key(1), (3,))


def test_layer_is_its_formula(kind, layer, x):
    t = jnp.asarray(0.3)
    np.testing.assert_allclose(layer(t, x), FORMULAS[kind](layer, t, x), rtol=1e-13, atol=1e-13)


def test_matrix_is_the_jacobian(layer, x):
    t = jnp.asarray(0.7)
    np.testing.assert_allclose(layer.at(t).matrix(), jax.jacfwd(lambda x: layer(t, x))(x), rtol=1e-13, atol=1e-13)


def test_only_ignore_ignores_the_time(kind, layer, x):
    early, late = layer(jnp.asarray(0.1), x), layer(jnp.asarray(0.9), x)
    assert bool(jnp.all(early == late)) == (kind == "ignore")


def test_layer_has_the_precision_it_was_made_in(kind, x):
    layer = time_linear(kind, 3, 5, key=jax.random.key(0))
    assert layer(jnp.asarray(0.5), x).dtype == jnp.float64


@pytest.mark.usefixtures("unchecked")
def test_unknown_kind_is_an_error():
    with pytest.raises(ValueError, match=r"layer must be one of ignore, .*'dense'"):
        time_linear("dense", 3, 5, key=jax.random.key(0))
