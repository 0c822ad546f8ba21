"""Convolutions against XLA's own, every time-conditioned one against its equation, and the networks made of them."""

import itertools
from typing import Any, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.nn import sigmoid

from ffjord.bijections import CNF, Numerics
from ffjord.choices import ConvKind
from ffjord.divergence import Bottleneck, Exact, Hutchinson
from ffjord.dynamics import ConvNet, Convolution, EncoderDecoder, UNet, time_convolution
from ffjord.dynamics.convolution import Change, convolve
from ffjord.products import are_worth_keeping
from ffjord.solve import Solver
from ffjord.squeezing import squeezed, unsqueezed

pytestmark = pytest.mark.usefixtures("x64")

KEY = jax.random.key(0)
CHANGES: tuple[Change, ...] = get_args(Change)
KINDS = get_args(ConvKind)
LARGER = {"keep": 1, "halve": 0.5, "double": 2}


def draw(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def reference(x, kernel, change):
    """XLA's convolution: of stride 2 when halving, of an image with zeros between its pixels when doubling."""
    by = {"keep": len(kernel) // 2, "halve": 1, "double": 2}[change]
    return jax.lax.conv_general_dilated(
        x[None],
        kernel,
        window_strides=(2, 2) if change == "halve" else (1, 1),
        padding=((by, by), (by, by)),
        lhs_dilation=(2, 2) if change == "double" else (1, 1),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )[0]


@pytest.mark.parametrize(
    ("change", "size", "height"),
    [
        *[("keep", 1, 4), ("keep", 3, 4), ("keep", 5, 4), ("keep", 5, 6)],
        *[("halve", 4, 4), ("halve", 4, 8), ("double", 4, 4), ("double", 4, 2)],
    ],
)
@pytest.mark.parametrize(("channels", "out"), [(2, 3), (3, 2)])
def test_convolve_is_xlas_convolution_and_has_its_gradients(change, size, height, channels, out):
    x, kernel = draw(height, 6, channels), draw(size, size, channels, out, seed=1)

    @jax.jit
    def both(x, kernel):
        values, pulls = zip(
            *(jax.vjp(lambda x, k, f=f: f(x, k, change), x, kernel) for f in (convolve, reference)), strict=True
        )
        weights = jnp.sin(jnp.arange(values[0].size)).reshape(values[0].shape)
        return values, [pull(weights) for pull in pulls]

    (ours, theirs), (our_grads, their_grads) = both(x, kernel)
    assert ours.shape == (height * LARGER[change], 6 * LARGER[change], out)
    np.testing.assert_allclose(ours, theirs, atol=1e-12)
    for our, their in zip(our_grads, their_grads, strict=True):
        np.testing.assert_allclose(our, their, atol=1e-12)


@pytest.mark.parametrize(("axes", "channels"), [((0, None), (2, 3)), ((None, 0), (2, 3)), ((1, 2), (3, 2))])
def test_all_derivatives_of_batches_are_xlas(axes, channels):
    """Forward, reverse, and reverse of forward and of reverse, with images, kernels or both in a batch in a loop."""
    both = draw(2, 4, 6, channels[0]), draw(2, 3, 3, *channels, seed=1)
    x, kernel = (y[0] if axis is None else jnp.moveaxis(y, 0, axis) for y, axis in zip(both, axes, strict=True))

    def derivatives(function):
        def loss(x, kernel):
            out = jax.vmap(lambda x, k: function(x, k, "keep"), axes)(x, kernel)
            return jnp.sum(jnp.sin(out))

        def towards(x, kernel):
            return jax.jvp(loss, (x, kernel), (jnp.cos(x), jnp.sin(kernel)))[1]

        def gradients(x, kernel):
            return sum(jnp.sum(jnp.cos(g)) for g in jax.grad(loss, (0, 1))(x, kernel))

        def body(carry, _):
            found = (
                loss(*carry),
                towards(*carry),
                jax.grad(towards, (0, 1))(*carry),
                jax.grad(gradients, (0, 1))(*carry),
            )
            return jax.tree.map(lambda a: 0.9 * a, carry), found

        return jax.lax.scan(body, (x, kernel), length=2)[1]

    ours, theirs = (jax.jit(derivatives, static_argnums=0)(f) for f in (convolve, reference))
    for our, their in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(our, their, rtol=1e-9, atol=1e-9)


def test_the_docstrings_equations_in_one_direction():
    k, x = np.array([2.0, 3.0, 5.0, 7.0]), np.array([1.0, 10.0, 100.0, 1000.0])
    row = lambda change, kernel, x: convolve(
        jnp.asarray(np.stack([0 * x, x, 0 * x, 0 * x]))[..., None], jnp.asarray(kernel)[..., None, None], change
    )[..., 0]
    along = lambda size, at: np.eye(size)[at][:, None] * k[:size]  # of a kernel that looks at one row only
    np.testing.assert_allclose(row("keep", along(3, 1), x)[1], [53, 532, 5320, 3200])
    np.testing.assert_allclose(row("halve", along(4, 2), x)[0], [3 + 50 + 700, 20 + 300 + 5000])
    doubled = row("double", along(4, 2), x)[2]
    np.testing.assert_allclose(doubled[0::2], 2 * np.append(0, x[:-1]) + 5 * x)
    np.testing.assert_allclose(doubled[1::2], 3 * x + 7 * np.append(x[1:], 0))


def test_doubling_is_the_transpose_of_halving():
    x, y, kernel = draw(4, 6, 2), draw(2, 3, 3, seed=1), draw(4, 4, 2, 3, seed=2)
    turned = kernel[::-1, ::-1].swapaxes(2, 3)
    there, back = jnp.vdot(convolve(x, kernel, "halve"), y), jnp.vdot(x, convolve(y, turned, "double"))
    np.testing.assert_allclose(there, back, rtol=1e-12)


@pytest.mark.parametrize("shape", [(3, 4, 1), (4, 3, 1)])
def test_odd_sides_cannot_be_halved(shape):
    layer = Convolution(1, 1, change="halve", key=KEY)
    with pytest.raises(ValueError, match=f"must be even to be halved; got {shape[0]} × {shape[1]}"):
        layer(jnp.zeros(shape))


def test_squeezing_takes_blocks_of_two_by_two():
    x = jnp.arange(8.0).reshape(2, 4, 1)
    np.testing.assert_array_equal(squeezed(x), [[[0, 1, 4, 5], [2, 3, 6, 7]]])
    np.testing.assert_array_equal(unsqueezed(squeezed(x)), x)
    many = draw(3, 4, 6, 2)
    np.testing.assert_array_equal(squeezed(many)[1, 1, 2], many[1, 2:4, 4:6].ravel())
    np.testing.assert_array_equal(unsqueezed(squeezed(many)), many)
    with pytest.raises(ValueError, match="must be even to be squeezed; got 2 × 3"):
        squeezed(x[:, :3])


def test_a_layer_is_its_kernel_and_bias_and_starts_with_inputs_of_one_size():
    x = draw(8, 8, 8)
    for change in CHANGES:
        layer = Convolution(8, 64, change=change, key=KEY)
        value = layer(x)
        np.testing.assert_allclose(value, convolve(x, layer.kernel, change) + layer.bias, atol=1e-12)
        assert layer.kernel.shape[:2] == ((3, 3) if change == "keep" else (4, 4))
        inner = value[1:-1, 1:-1]  # where no zeros are met; the uniform distribution has a variance of a third
        assert 0.25 < float(jnp.var(inner)) < 0.45
        assert not np.any(np.asarray(layer.zeroed()(x)))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((0, 1), "channels must be positive; got 0 and 1"),
        ((1, 0), "channels must be positive; got 1 and 0"),
        ((1, 1, 2), "size must be odd and positive.*got 2"),
        ((1, 1, -1), "size must be odd and positive.*got -1"),
    ],
)
def test_wrong_layers_are_named(args, message):
    with pytest.raises(ValueError, match=message):
        Convolution(*args, key=KEY)


def apply(inner, x):
    return reference(x, inner.kernel, inner.change) + inner.bias


def with_channels(x, *channels):
    return jnp.concatenate([*(jnp.broadcast_to(c, x.shape[:2])[..., None] for c in channels), x], axis=-1)


def squash(layer, t, x):
    return apply(layer.inner, x) * sigmoid(layer.gate[0] * t + layer.gate[1])


def hyper(layer, t, x):
    kernel, bias, added = layer.inner.kernel, layer.inner.bias, layer.hypernet(t)
    kernel = kernel + added[len(bias) :].reshape(kernel.shape)
    return reference(x, kernel, layer.inner.change) + bias + added[: len(bias)]


def concat_coord(layer, t, x):
    rows, columns = jnp.linspace(0, 1, x.shape[0])[:, None], jnp.linspace(0, 1, x.shape[1])[None]
    return apply(layer.inner, with_channels(x, t, rows, columns))


FORMULAS = {
    "ignore": lambda layer, t, x: apply(layer.inner, x),
    "concat": lambda layer, t, x: apply(layer.inner, with_channels(x, t)),
    "squash": squash,
    "concatsquash": lambda layer, t, x: squash(layer.squash, t, x) + layer.shift[0] * t,
    "hyper": hyper,
    "blend": lambda layer, t, x: (1 - t) * apply(layer.first, x) + t * apply(layer.second, x),
    "concatcoord": concat_coord,
}


@eqx.filter_jit
def values(kind, layer, t, x):
    of_time = lambda f: jax.vmap(lambda t: f(t, x))(t)
    return of_time(layer), of_time(lambda t, x: FORMULAS[kind](layer, t, x))


@pytest.mark.parametrize(("kind", "change"), [*itertools.product(KINDS, CHANGES)])
def test_every_layer_is_its_formula_and_only_ignore_ignores_the_time(kind, change, build):
    layer = build(time_convolution, kind, 2, 3, change=change)
    found, expected = values(kind, layer, jnp.asarray([0.3, 0.8]), draw(4, 6, 2))
    assert found.shape == (2, 4 * LARGER[change], 6 * LARGER[change], 3)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert bool(jnp.any(found[0] == found[1])) == (kind == "ignore")


def test_only_concatcoord_knows_the_place(build):
    t, x = jnp.asarray([0.5]), jnp.ones((6, 6, 1))
    for kind in KINDS:
        inside = values(kind, build(time_convolution, kind, 1, 1), t, x)[0][0, 1:-1, 1:-1]
        assert (float(jnp.ptp(inside)) > 1e-3) == (kind == "concatcoord")
        if kind == "concatcoord":
            assert float(jnp.min(jnp.abs(jnp.diff(inside, axis=0)))) > 1e-3
            assert float(jnp.min(jnp.abs(jnp.diff(inside, axis=1)))) > 1e-3


def test_hyper_starts_with_a_part_of_time_that_is_a_tenth_of_the_kernel():
    layer: Any = time_convolution("hyper", 16, 16, key=KEY)
    kernel, added = layer.inner.kernel, layer.hypernet(jnp.asarray(0.5))[16:]
    assert 0.01 < float(jnp.std(added) / jnp.std(kernel)) < 0.2


@pytest.mark.usefixtures("unchecked")
def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match=r"layer must be one of ignore, .*concatcoord; got 'clock'"):
        time_convolution("clock", 1, 1, key=KEY)  # pyright: ignore[reportArgumentType]


SHAPE = (4, 8, 2)
UNKNOWN: Any = "cube"
NETS = {
    "conv": lambda build, **kwargs: build(ConvNet, 2, (3, 3), **kwargs),
    "encoder-decoder": lambda build, **kwargs: build(EncoderDecoder, SHAPE, (3, 3, 4, 2), **kwargs),
    "unet": lambda build, **kwargs: build(UNet, SHAPE, (3, 4), blocks=1, frequencies=2),
}


@pytest.mark.parametrize("name", NETS)
def test_networks_keep_the_shape_and_every_sample_has_its_own_time(name, build):
    f, t, z = NETS[name](build), jnp.asarray([0.1, 0.7]), draw(2, *SHAPE)

    @eqx.filter_jit
    def run(f, t, z):
        swapped = jax.vmap(f)(t[::-1], z)
        return jax.vmap(f)(t, z), jax.vmap(f, in_axes=(None, 0))(t[0], z), swapped, f(t[1], z[1])

    batch, at_first, swapped, alone = run(f, t, z)
    assert batch.shape == z.shape
    np.testing.assert_allclose(batch[0], at_first[0], rtol=1e-12)
    np.testing.assert_allclose(batch[1], alone, rtol=1e-12)
    assert float(jnp.min(jnp.max(jnp.abs(batch - swapped), axis=(1, 2, 3)))) > 1e-3


def test_conv_net_is_its_layers_with_the_nonlinearity_between(build):
    f, t, z = build(ConvNet, 2, (3,), nonlinearity="tanh"), jnp.asarray(0.4), draw(*SHAPE)
    first, last = f.layers
    np.testing.assert_allclose(f(t, z), last(t, jnp.tanh(first(t, z))), rtol=1e-12)


def test_the_bottleneck_of_an_encoder_decoder_is_its_trace(build):
    f, t, z = NETS["encoder-decoder"](build), jnp.asarray(0.4), draw(*SHAPE)

    @eqx.filter_jit
    def run(f, t, z):
        waist = f.encode(t, z)
        down = jax.jacfwd(lambda z: f.encode(t, z))(z).reshape(waist.size, z.size)
        up = jax.jacfwd(lambda h: f.decode(t, h))(waist).reshape(z.size, waist.size)
        # over all of the waist's basis, scaled so that the mean of ε εᵀ is the identity
        basis = waist.size**0.5 * jnp.eye(waist.size).reshape(-1, *waist.shape)
        return waist, jnp.trace(down @ up), Bottleneck(probes=waist.size)(f, t, z, basis), Exact()(f, t, z), f(t, z)

    waist, trace, (dz, estimate), (_, exact), value = run(f, t, z)
    assert waist.shape == (1, 2, 2)
    np.testing.assert_allclose(dz, value, rtol=1e-10)
    np.testing.assert_allclose(trace, exact, rtol=1e-10)
    np.testing.assert_allclose(estimate, exact, rtol=1e-10)
    assert Bottleneck(probes=3).noise(f, z, key=KEY).shape == (3, *waist.shape)


def test_an_encoder_decoder_halves_at_every_other_layer():
    f = eqx.filter_eval_shape(lambda: EncoderDecoder((28, 28, 1), key=KEY))
    halvings = lambda layers: [layer.inner.change for layer in layers]
    assert halvings(f.encoder) == ["keep", "halve", "keep", "halve"]
    assert halvings(f.decoder) == ["double", "keep", "double", "keep"]
    assert [layer.inner.kernel.shape[-1] for layer in (*f.encoder, *f.decoder)] == [64, 64, 128, 128, 128, 64, 64, 1]


def test_an_untrained_unet_is_zero_and_learns_from_there():
    t, z = jnp.asarray(0.4), draw(4, 4, 1)
    f = eqx.filter_jit(lambda: UNet((4, 4, 1), (4, 4), blocks=1, frequencies=1, key=KEY))()
    loss = lambda f: jnp.sum((f(t, z) - 1) ** 2)
    value, grad = eqx.filter_jit(lambda f: (f(t, z), eqx.filter_grad(loss)(f)))(f)
    np.testing.assert_array_equal(value, jnp.zeros(z.shape))
    assert float(jnp.max(jnp.abs(grad.leave.kernel))) > 1e-3


def test_a_unet_sees_the_whole_image_and_what_was_there_on_the_way_down(build):
    f, t, z = NETS["unet"](build), jnp.asarray(0.4), draw(*SHAPE)
    jacobian = eqx.filter_jit(lambda f: jax.grad(lambda z: f(t, z)[0, 0, 0])(z))
    assert float(jnp.min(jnp.max(jnp.abs(jacobian(f)), axis=-1))) > 0
    cut = eqx.tree_at(lambda f: f.shrink[0].kernel, f, jnp.zeros_like(f.shrink[0].kernel))
    assert float(jnp.max(jnp.abs(jacobian(cut)[0, 0]))) > 0


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EncoderDecoder((6, 4, 1), (2, 2, 2, 2), key=KEY), r"4 layers halve .* 2 times, but 6 × 4 cannot"),
        (lambda: EncoderDecoder((4, 4, 1), (), key=KEY), "hidden must name at least one layer"),
        (lambda: EncoderDecoder((4, 4, 1), (2,), nonlinearity=UNKNOWN, key=KEY), "nonlinearity must be one of"),
        (lambda: ConvNet(1, (2,), nonlinearity=UNKNOWN, key=KEY), "nonlinearity must be one of"),
        (lambda: ConvNet(1, (0,), key=KEY), "channels must be positive"),
        (lambda: UNet((4, 6, 1), (2, 2), key=KEY), r"2 sizes halve the image as often, but 4 × 6 cannot"),
        (lambda: UNet((4, 4, 1), (), key=KEY), r"must be positive; got \(\), 2, 8"),
        (lambda: UNet((4, 4, 1), (2,), blocks=0, key=KEY), r"must be positive; got \(2,\), 0, 8"),
        (lambda: UNet((4, 4, 1), (2,), frequencies=0, key=KEY), r"must be positive; got \(2,\), 2, 0"),
        (lambda: UNet((4, 4, 1), (2,), nonlinearity=UNKNOWN, key=KEY), "nonlinearity must be one of"),
    ],
)
def test_wrong_networks_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.usefixtures("x64")
def test_kept_convolutions_give_the_same_gradient():
    """Of 64 channels most numbers take 1152 operations: convolutions are kept. Differentiated openly, they are not."""
    net = ConvNet(1, (64, 64), nonlinearity="tanh", key=jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (8, 4, 4, 1))

    @eqx.filter_jit
    def gradient(net, kind):
        def loss(net):
            solver = Solver(method="rk4", num_steps=3, gradient=kind)  # equal steps, the same for both
            cnf = CNF(net, training=Numerics(Hutchinson("rademacher"), solver))
            out = cnf.inverse(x, train=True, key=jax.random.key(2))
            return jnp.sum(out.value**2) + jnp.sum(out.log_det)

        return eqx.filter_grad(loss)(net)

    assert are_worth_keeping(lambda z: jax.vmap(lambda z: net(jnp.zeros(()), z))(z), x, calls=56)
    kept, openly = gradient(net, "checkpointed"), gradient(net, "direct")
    for a, b in zip(jax.tree.leaves(kept), jax.tree.leaves(openly), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-11)
