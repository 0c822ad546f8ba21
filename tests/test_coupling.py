"""Couplings, repeated layers, and the flows made of them: NICE, Real NVP and Glow."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ffjord.bijections import (
    ActNorm,
    Chain,
    ConvNetwork,
    Coupling,
    DenseNetwork,
    EachPlace,
    LULinear,
    MovingNorm,
    Repeated,
    glow_step,
)
from ffjord.data import TOYS
from ffjord.experiments.config import ModelConfig
from ffjord.models import build_model
from ffjord.parameters import trainable
from tests.test_linear import KEY, check_promises, perturbed, rows

pytestmark = pytest.mark.usefixtures("x64")

KINDS = ["nice", "real-nvp", "glow"]
IMAGE = (2, 3, 3)
DENSE = partial(DenseNetwork, hidden=(4,), nonlinearity="tanh")


def model(kind, dim=3, condition_size=0, **changes):
    settings = {"kind": kind, "hidden": (4,), "flows": 2, **changes}
    return build_model(dim, ModelConfig(**settings), condition_size=condition_size, key=KEY)


def block(key, dim=3, norm=ActNorm):
    first, second = jax.random.split(key)
    return Chain([Coupling((dim,), DENSE, key=first), LULinear(dim, key=second), norm((dim,))])


def images(key):
    return Chain(glow_step(IMAGE, 4, key=key))


BIJECTIONS = {
    "coupling": (lambda: Coupling((3,), DENSE, key=KEY), (3,), 0),
    "coupling given a condition": (lambda: Coupling((3,), partial(DENSE, condition_size=2), key=KEY), (3,), 2),
    "coupling of images": (lambda: Coupling(IMAGE, partial(ConvNetwork, width=4), key=KEY), IMAGE, 0),
    "repeated steps on images": (lambda: Repeated(images, 2, key=KEY), IMAGE, 0),
    **{kind: (lambda kind=kind: model(kind, condition_size=2).bijection, (3,), 2) for kind in KINDS},
}


@pytest.mark.parametrize("name", BIJECTIONS)
def test_every_bijection_keeps_every_promise(name):
    build, shape, condition_size = BIJECTIONS[name]
    condition = rows((condition_size,)) if condition_size else None
    check_promises(perturbed(build()), rows(shape), condition)


@pytest.mark.parametrize(("shape", "network"), [((3,), DENSE), (IMAGE, partial(ConvNetwork, width=4))])
def test_a_coupling_starts_by_scaling_half_of_the_channels(shape, network):
    x, scale = rows(shape), jax.nn.sigmoid(2.0)
    out = Coupling(shape, network, key=KEY).inverse(x)
    np.testing.assert_array_equal(out.value[..., :1], x[..., :1])
    np.testing.assert_allclose(out.value[..., 1:], scale * x[..., 1:], rtol=1e-12)
    np.testing.assert_allclose(out.log_det, x[0, ..., 1:].size * jnp.log(scale) * jnp.ones(3), rtol=1e-12)


def test_each_place_has_the_condition_of_its_image():
    coupling = perturbed(Coupling((3,), partial(DENSE, condition_size=2), key=KEY))
    x, condition = rows(IMAGE), rows((2,))
    out = EachPlace(coupling).inverse(x, condition=condition)
    place = coupling.inverse(x[:, 1, 2], condition=condition)
    np.testing.assert_allclose(out.value[:, 1, 2], place.value, rtol=1e-12)


def layers_of(repeated, count):
    """The layers one by one, as a chain."""
    arrays, static = eqx.partition(repeated.layers, eqx.is_array)
    return Chain([eqx.combine(jax.tree.map(lambda a, i=i: a[i], arrays), static) for i in range(count)])


@eqx.filter_jit
def both_ways(bijection, x):
    return bijection.forward(x), bijection.inverse(x, train=True)


def test_repeated_layers_are_a_chain_of_them():
    repeated = perturbed(Repeated(partial(block, norm=MovingNorm), 3, key=KEY))
    chain, x = layers_of(repeated, 3), rows((3,))
    for one, other in zip(both_ways(repeated, x), both_ways(chain, x), strict=True):
        np.testing.assert_allclose(one.value, other.value, rtol=1e-10)
        np.testing.assert_allclose(one.log_det, other.log_det, rtol=1e-10)
        assert [int(n) for n in (one.report.nfe, one.report.accepted, one.report.outcome)] == [0, 0, 0]


def test_repeated_layers_take_up_what_each_of_them_saw():
    repeated = perturbed(Repeated(partial(block, norm=MovingNorm), 3, key=KEY))
    chain, x = layers_of(repeated, 3), rows((3,))
    moved = repeated.absorb(both_ways(repeated, x)[1].report.observed)
    expected = chain.absorb(both_ways(chain, x)[1].report.observed)
    for i, layer in enumerate(expected.parts):
        np.testing.assert_allclose(moved.layers.parts[2].mean.value[i], layer.parts[2].mean.value, rtol=1e-10)
        np.testing.assert_allclose(moved.layers.parts[2].variance.value[i], layer.parts[2].variance.value, rtol=1e-10)


@pytest.mark.parametrize(("build", "shape"), [(block, (3,)), (images, IMAGE)])
def test_calibrating_repeated_layers_normalises_what_each_sees(build, shape):
    x = 3.0 + 2.0 * rows(shape, n=100)
    calibrated = perturbed(Repeated(build, 3, key=KEY)).calibrate(x, key=KEY)
    z = calibrated.inverse(x).value
    for layer in reversed(layers_of(calibrated, 3).parts):
        normalised = layer.parts[2].inverse(x).value.reshape(-1, 3)
        np.testing.assert_allclose(jnp.mean(normalised, axis=0), 0, atol=1e-10)
        np.testing.assert_allclose(jnp.std(normalised, axis=0), 1, atol=1e-4)
        x = layer.inverse(x).value
    np.testing.assert_allclose(x, z, rtol=1e-10)


def test_a_hundred_layers_are_as_long_a_program_as_two():
    def length(count):
        repeated, x = Repeated(block, count, key=KEY), rows((3,))
        arrays, static = eqx.partition(repeated, eqx.is_array)
        loss = lambda arrays: jnp.sum(eqx.combine(arrays, static).inverse(x).log_det)
        return str(jax.make_jaxpr(jax.grad(loss, allow_int=True))(arrays)).count(" = ")

    assert length(2) == length(100)


@pytest.mark.parametrize("kind", KINDS)
def test_samples_have_the_density_that_they_are_given(kind):
    flow = perturbed(model(kind, condition_size=2))
    condition = rows((2,))
    samples = flow.sample_and_log_prob(3, condition=condition, key=KEY)
    np.testing.assert_allclose(samples.log_prob, flow.log_prob(samples.x, condition=condition), atol=1e-8)
    assert float(jnp.max(jnp.abs(flow.log_prob(samples.x, condition=-condition) - samples.log_prob))) > 1e-3


@pytest.mark.parametrize(("kind", "dim"), [("nice", 5), ("real-nvp", 5), ("glow", 2)])
def test_every_column_depends_on_every_other(kind, dim):
    bijection = perturbed(model(kind, dim, flows=5).bijection)
    jacobian = jax.jit(jax.jacfwd(lambda z: bijection.forward(z[None]).value[0]))(rows((dim,))[0])
    assert float(jnp.min(jnp.abs(jacobian))) > 1e-6


def test_nice_changes_volume_by_its_scaling_alone():
    flow = perturbed(model("nice"))
    out = flow.bijection.forward(rows((3,)))
    np.testing.assert_allclose(out.log_det, jnp.sum(flow.bijection.parts[0].log_scale) * jnp.ones(3), rtol=1e-10)


def test_the_scale_of_real_nvp_is_bounded():
    flow = model("real-nvp", dim=2, flows=1)
    params, rest = eqx.partition(flow, trainable(flow))
    wild = eqx.combine(jax.tree.map(lambda p: 1e3 * p, params), rest)
    log_det = wild.bijection.forward(rows((2,), n=20)).log_det
    assert 1.9 < float(jnp.max(jnp.abs(log_det))) <= 2


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_settings_are_named(kind):
    with pytest.raises(ValueError, match=r"dim must be at least 2 .*; got 1\."):
        model(kind, dim=1)
    with pytest.raises(ValueError, match=r"hidden .* one positive width, repeated for every layer; got \(4, 8\)"):
        model(kind, hidden=(4, 8))


def test_wrong_shapes_are_named():
    with pytest.raises(ValueError, match=r"event_shape must end in at least two channels.*\(4, 4, 1\)"):
        glow_step((4, 4, 1), 4, key=KEY)
    with pytest.raises(ValueError, match="count must be at least 1; got 0"):
        Repeated(block, 0, key=KEY)


@pytest.mark.parametrize("kind", ["real-nvp", "glow"])
def test_training_beats_one_gaussian(kind):
    draws = jnp.asarray(TOYS["moons"](22_000, np.random.default_rng(0)))
    batches, held_out = draws[:20_000].reshape(200, 100, 2), draws[20_000:]
    flow = model(kind, dim=2, hidden=(16, 16), nonlinearity="relu", flows=4).calibrate(batches[0], key=KEY)
    rule, (params, rest) = optax.adam(5e-3), eqx.partition(flow, trainable(flow))

    def step(state, x):
        loss = lambda params: -jnp.mean(eqx.combine(params, rest).density(x).log_prob)
        updates, optimizer = rule.update(jax.grad(loss)(state[0]), state[1])
        return (optax.apply_updates(state[0], updates), optimizer), None

    (params, _), _ = jax.jit(lambda state: jax.lax.scan(step, state, batches))((params, rule.init(params)))
    gaussian = np.linalg.slogdet(2 * np.pi * np.e * np.cov(draws.T))[1] / 2
    nll = -jnp.mean(eqx.combine(params, rest).log_prob(held_out))
    assert float(nll) < gaussian - 0.3
