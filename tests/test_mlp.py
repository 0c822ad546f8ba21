"""The MLP is the composition of its layers, and knows its waist."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ffjord.dynamics import MLP, nonlinearity

pytestmark = pytest.mark.usefixtures("x64")

T = 0.4


@pytest.fixture
def mlp(build):
    return build(MLP, 3, (8, 2, 6))


@pytest.fixture
def z():
    return jax.random.normal(jax.random.key(1), (3,))


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("tanh", np.tanh),
        ("softplus", lambda x: np.log1p(np.exp(x))),
        ("elu", lambda x: np.where(x > 0, x, np.expm1(x))),
        ("swish", lambda x: x / (1 + np.exp(-x))),
        ("square", np.square),
        ("identity", lambda x: x),
    ],
)
def test_nonlinearity_is_its_formula(name, formula):
    x = np.linspace(-3, 3, 12)
    np.testing.assert_allclose(nonlinearity(name)(jnp.asarray(x)), formula(x), rtol=1e-14)


def test_mlp_is_the_composition_of_its_layers(mlp, z):
    t = jnp.asarray(T)
    h = z
    for layer in mlp.layers[:-1]:
        h = jnp.tanh(layer(t, h))
    np.testing.assert_allclose(mlp(t, z), mlp.layers[-1](t, h), rtol=1e-14)


def test_waist_is_the_narrowest_hidden_layer(mlp, z):
    t = jnp.asarray(T)
    assert mlp.waist == 2
    assert mlp.encode(t, z).shape == (2,)
    np.testing.assert_allclose(mlp.decode(t, mlp.encode(t, z)), mlp(t, z), rtol=1e-14)


def test_without_hidden_layers_the_mlp_is_affine_and_has_no_waist(z, build):
    mlp = build(MLP, 3, ())
    t = jnp.asarray(T)
    np.testing.assert_allclose(mlp(t, z), mlp.layers[0](t, z), rtol=1e-14)
    with pytest.raises(ValueError, match="no waist"):
        mlp.encode(t, z)


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_closed_form_exists_up_to_two_hidden_layers(depth, build):
    assert build(MLP, 3, (4,) * depth).has_closed_form == (depth <= 2)


def test_three_hidden_layers_have_no_closed_form(mlp, z):
    with pytest.raises(ValueError, match=r"at most two hidden layers; this MLP has 3"):
        mlp.value_and_divergence(jnp.asarray(T), z)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hidden": (8, 0)}, r"hidden widths must be positive; got dim=3, hidden=\(8, 0\)"),
        ({"dim": 0}, "dim and hidden widths must be positive"),
        ({"nonlinearity": "relu6"}, "nonlinearity must be one of tanh, .*'relu6'"),
        ({"layer": "dense"}, "layer must be one of ignore, .*'dense'"),
    ],
)
def test_bad_configuration_is_an_error_that_names_the_argument(arguments, message):
    with pytest.raises(ValueError, match=message):
        MLP(**{"dim": 3, "hidden": (8,), "key": jax.random.key(0), **arguments})
