"""Maps of images: the logit, the squeezed, those of a part, and the one that gives grey levels room."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr

from ffjord.bijections import (
    CNF,
    ActNorm,
    Chain,
    Levels,
    Logit,
    MaskedCoupling,
    MovingNorm,
    Numerics,
    OnHalf,
    Squeezed,
    continuous_parts,
)
from ffjord.bijections.masked import real_nvp_step
from ffjord.divergence import Exact
from ffjord.solve import Solver
from ffjord.squeezing import squeezed

pytestmark = pytest.mark.usefixtures("x64")

KEY = jax.random.key(0)


def draw(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def uniform(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).uniform(size=shape))


@pytest.mark.parametrize("alpha", [1e-6, 0.05])
def test_logit_by_hand(alpha):
    x, logit = uniform(3, 2, 4, 1), Logit(alpha)
    y = alpha + (1 - 2 * alpha) * np.asarray(x)
    out, back = logit.inverse(x), logit.forward(logit.inverse(x).value)
    np.testing.assert_allclose(out.value, np.log(y / (1 - y)), rtol=1e-10)
    np.testing.assert_allclose(out.log_det, np.log((1 - 2 * alpha) / (y * (1 - y))).sum((1, 2, 3)), rtol=1e-10)
    np.testing.assert_allclose(back.value, x, atol=1e-12)
    np.testing.assert_allclose(back.log_det, -out.log_det, rtol=1e-9)


@pytest.mark.usefixtures("x32")
def test_logit_of_black_and_white_is_finite():
    out = Logit().inverse(jnp.asarray([[0.0, 1.0]], jnp.float32))
    np.testing.assert_allclose(out.value[0], [-np.log(1e6), np.log(1e6)], rtol=0.01)
    np.testing.assert_allclose(out.log_det, 2 * np.log(1e6), rtol=0.01)


@pytest.mark.parametrize("alpha", [0.0, 0.5, -1.0, float("nan")])
def test_alpha_must_leave_something(alpha):
    with pytest.raises(ValueError, match=f"alpha must be between 0 and 0.5; got {alpha}"):
        Logit(alpha)


def test_a_squeezed_map_sees_blocks_of_two_by_two_as_channels(build):
    x, norm = draw(3, 2, 4, 1), build(lambda key: ActNorm((1, 2, 4)))
    for direction in ("forward", "inverse"):
        out, inner = (getattr(map_, direction)(y) for map_, y in ((Squeezed(norm), x), (norm, squeezed(x))))
        for place in range(2):
            block = np.asarray(inner.value[:, 0, place]).reshape(3, 2, 2)
            np.testing.assert_array_equal(out.value[:, :, 2 * place : 2 * place + 2, 0], block)
        np.testing.assert_array_equal(out.log_det, inner.log_det)


@pytest.mark.parametrize("channels", [2, 3, 4])
def test_a_map_of_half_leaves_the_other_channels_alone(channels, build):
    x, half = draw(3, 2, 2, channels), (channels + 1) // 2
    norm = build(lambda key: ActNorm((2, 2, half)))
    out, inner = OnHalf(norm).inverse(x), norm.inverse(x[..., :half])
    np.testing.assert_array_equal(out.value[..., half:], x[..., half:])
    np.testing.assert_array_equal(out.value[..., :half], inner.value)
    np.testing.assert_array_equal(out.log_det, inner.log_det)
    np.testing.assert_allclose(OnHalf(norm).forward(out.value).value, x, atol=1e-12)


def _inner(map_: Any) -> Any:
    return map_.inner.inner


def test_maps_of_parts_calibrate_and_absorb_what_their_inner_map_sees():
    x = 3 + 2 * draw(50, 2, 2, 1)
    seen = squeezed(x)[..., :2]
    both = Squeezed(OnHalf(Chain([ActNorm((1, 1, 2)), MovingNorm((1, 1, 2))])))
    assert both.rows_to_calibrate() == 1
    assert Squeezed(OnHalf(Logit())).rows_to_calibrate() == 0
    _, moving = _inner(both.calibrate(x, key=KEY)).parts
    np.testing.assert_allclose(moving.mean.value, seen.mean(0), rtol=1e-12)
    np.testing.assert_allclose(moving.variance.value, seen.var(0), rtol=1e-12)
    _, moved = _inner(both.absorb(both.inverse(x, train=True).report.observed)).parts
    np.testing.assert_allclose(moved.mean.value, 0.1 * seen.mean(0), rtol=1e-12)


class Growing(eqx.Module):
    """f(t, z) = z rate: of which the flow is known."""

    rate: jax.Array

    def __call__(self, t, z):
        return self.rate * z


def growing(rate):
    numerics = Numerics(Exact(), Solver("rk4", num_steps=20))
    return CNF(Growing(jnp.asarray(rate)), training=numerics, testing=numerics)


def nested():
    """Four continuous parts, at three depths: 1, 2, 3, 4 from the base to the data."""
    inner = Chain([OnHalf(Chain([growing(1.0), ActNorm((1, 1, 2))])), growing(2.0), growing(3.0)])
    return Chain([Squeezed(inner), Logit(0.05), growing(4.0)])


@pytest.mark.parametrize(
    ("fraction", "times"),
    [
        (0.0, (0, 0, 0, 0)),
        (0.125, (0.5, 0, 0, 0)),
        (0.25, (1, 0, 0, 0)),
        (0.4, (1, 0.6, 0, 0)),
        (0.75, (1, 1, 1, 0)),
        (0.9, (1, 1, 1, 0.6)),
        (1.0, (1, 1, 1, 1)),
    ],
)
def test_nested_continuous_parts_are_stopped_from_the_base_to_the_data(fraction, times):
    parts: list[Any] = continuous_parts(nested().until(jnp.asarray(fraction)))
    assert [float(part.dynamics.rate) for part in parts] == [1, 2, 3, 4]
    np.testing.assert_allclose([float(part.end_time) for part in parts], times, atol=1e-12)


def test_nothing_flows_before_the_start_and_everything_until_the_end():
    z = draw(2, 2, 2, 1)
    run = eqx.filter_jit(lambda map_, fraction: map_.until(fraction).forward(z))
    start, end = run(nested(), jnp.asarray(0.0)), run(nested(), jnp.asarray(1.0))
    still = Logit(0.05).forward(z)
    np.testing.assert_allclose(start.value, still.value, atol=1e-12)
    np.testing.assert_allclose(start.log_det, still.log_det, atol=1e-12)
    whole = eqx.filter_jit(lambda map_: map_.forward(z))(nested())
    np.testing.assert_allclose(end.value, whole.value, rtol=1e-12)
    np.testing.assert_allclose(end.log_det, whole.log_det, rtol=1e-12)
    before = squeezed(z) * jnp.exp(jnp.asarray([6.0, 6.0, 5.0, 5.0]))  # 1 + 2 + 3 on half of the channels, else 2 + 3
    np.testing.assert_allclose(squeezed(whole.value), np.exp(4) * Logit(0.05).forward(before).value, rtol=1e-3)


# Grey levels


def dequantised(rng, levels, shares, n=2000):
    """Images 4 × 4 × 1 whose levels have those shares."""
    return (rng.choice(levels, (n, 4, 4, 1), p=shares) + rng.random((n, 4, 4, 1))) / levels


def fitted(images, levels):
    return Levels(levels).calibrate(jnp.asarray(images, jnp.result_type(float)), key=KEY)


SKEWED = 0.75 ** np.arange(16) / np.sum(0.75 ** np.arange(16))
DRAWING = np.array([0.6, *[0.02] * 10, *[0.0] * 4, 0.2])


@pytest.fixture(params=["skewed", "drawing", "even"])
def images(request):
    shares = {"skewed": SKEWED, "drawing": DRAWING, "even": np.full(16, 1 / 16)}[request.param]
    return dequantised(np.random.default_rng(0), 16, shares, n=4000)


def test_levels_are_standardised_and_in_order(images):
    levels = fitted(images, 16)
    z = np.asarray(levels.inverse(jnp.asarray(images)).value)
    assert abs(z.mean()) < 0.02
    assert abs(z.var() - 1) < 0.04
    rising = levels.inverse(jnp.linspace(0, 1, 5001)[:, None]).value[:, 0]
    assert float(jnp.min(jnp.diff(rising))) > 0


def test_log_slopes_are_those_of_the_map(images):
    levels = fitted(images, 16)
    x = np.random.default_rng(1).uniform(0.001, 0.999, (500, 1))
    step = 1e-9
    slope = (levels.inverse(jnp.asarray(x + step)).value - levels.inverse(jnp.asarray(x - step)).value) / (2 * step)
    np.testing.assert_allclose(levels.inverse(jnp.asarray(x)).log_det, np.log(slope[:, 0]), atol=1e-4)
    out = levels.inverse(jnp.asarray(images[:5]))
    alone = levels.inverse(jnp.asarray(images[:5].reshape(-1, 1)))
    np.testing.assert_allclose(out.log_det, alone.log_det.reshape(5, 16).sum(1), rtol=1e-12)


def test_the_density_of_a_pixel_integrates_to_the_mass_between_black_and_white(images):
    levels = fitted(images, 16)
    places, weights = np.polynomial.legendre.leggauss(5)
    knots = np.asarray(levels.knots.x.array)
    half = np.diff(knots, axis=0) / 2
    out = levels.inverse(jnp.asarray((knots[:-1] + half * (1 + places)).reshape(-1, 1)))
    density = np.exp(-0.5 * out.value[:, 0] ** 2 + out.log_det) / np.sqrt(2 * np.pi)
    black, white = np.asarray(levels.inverse(jnp.asarray([[0.0], [1.0]])).value[:, 0])
    np.testing.assert_allclose(density @ (half * weights).ravel(), ndtr(white) - ndtr(black), atol=1e-9)
    assert 0.9 < ndtr(white) - ndtr(black) < 1


def density_of_z(levels, shares, z):
    """What dequantised pixels with those shares become: p(z) = p(x) dx/dz."""
    out = levels.forward(jnp.asarray(z[:, None]))
    level = np.clip((np.asarray(out.value[:, 0]) * len(shares)).astype(int), 0, len(shares) - 1)
    return shares[level] * len(shares) * np.exp(out.log_det)


def test_frequent_levels_become_bumps_with_room_between_and_rare_ones_do_not():
    shares = np.array([0.3, 0.3, 0.2, *[0.2 / 13] * 13])
    levels = fitted(dequantised(np.random.default_rng(0), 16, shares, n=20_000), 16)
    edges, middles = np.arange(17) / 16, (np.arange(16) + 0.5) / 16
    at = lambda x: density_of_z(levels, shares, np.asarray(levels.inverse(jnp.asarray(x[:, None])).value[:, 0]))
    tops = at(middles)
    for frequent in range(2):
        across = at(edges[frequent + 1] + np.linspace(-1e-3, 1e-3, 21))
        assert across.min() < 0.05 * min(tops[frequent], tops[frequent + 1])
    across = at(np.linspace(edges[4], edges[15], 2001))
    assert across.max() < 1.3 * across.min()


def test_pixels_are_distributed_as_the_equation_says():
    counts = np.array([500, 300, 195, 0, 0, 0, 2, 3])
    level = np.repeat(np.arange(8), counts)
    levels = fitted(((level + 0.5) / 8).reshape(-1, 1, 1, 1), 8)
    w = np.maximum(counts / 1000, 0.002 / 8)
    w, limit = w / w.sum(), 1.5 / 8
    frequent = w > limit
    room = np.where(frequent, np.sqrt(w), w / np.sqrt(limit))
    middle = np.concatenate([[0], np.cumsum((room[:-1] + room[1:]) / 2)])
    spread = np.where(frequent, room / 6, room)
    mean = w @ middle
    scale = np.sqrt(w @ (spread**2 + (middle - mean) ** 2))
    x = np.linspace(0, 1, 1001)
    z = np.asarray(levels.inverse(jnp.asarray(x[:, None])).value)
    mixture = ndtr((mean + scale * z - middle) / spread) @ w
    of_pixels = np.interp(x, np.arange(9) / 8, np.append(0, np.cumsum(w)))
    np.testing.assert_allclose(mixture, of_pixels, atol=1e-3)  # the outermost bumps lose their tails


FEW = {
    "two of 256": ([0, 255], [0.5, 0.5]),
    "three of 256": ([0, 7, 255], [0.8, 0.1, 0.1]),
    "black": ([0], [1.0]),
    "white": ([255], [1.0]),
    "all of 256": (range(256), None),
}


@pytest.mark.usefixtures("x32")
@pytest.mark.parametrize("name", FEW)
def test_round_trip_over_all_levels_in_single_precision(name):
    rng = np.random.default_rng(0)
    seen, shares = FEW[name]
    images = ((rng.choice(seen, (20_000, 8, 8, 1), p=shares) + rng.random((20_000, 8, 8, 1))) / 256).astype(np.float32)
    levels = fitted(images, 256)
    for knots in (levels.knots.x, levels.knots.z):
        assert knots.array.dtype == jnp.float32
        assert float(jnp.min(jnp.diff(knots.array[:, 0]))) > 0
    x = ((np.arange(256)[:, None] + np.linspace(0, 1, 33)).reshape(-1, 1) / 256).astype(np.float32)
    out = levels.inverse(jnp.asarray(x))
    back = levels.forward(out.value)
    assert bool(jnp.all(jnp.isfinite(out.value)) & jnp.all(jnp.isfinite(out.log_det)))
    np.testing.assert_allclose(back.value, x, atol=3e-6)


def test_unfitted_levels_are_the_identity_and_there_are_two_at_least():
    x = uniform(3, 2, 2, 1)
    out = Levels(16).inverse(x)
    np.testing.assert_allclose(out.value, x, atol=1e-12)
    np.testing.assert_allclose(out.log_det, 0, atol=1e-9)
    with pytest.raises(ValueError, match="count must be at least 2 grey levels; got 1"):
        Levels(1)


# Real NVP's couplings


@pytest.mark.parametrize("pattern", ["checkerboard", "channels"])
def test_kept_places_stay_and_flipped_ones_are_the_others(pattern, build):
    x = draw(2, 2, 3, 3)
    usual, flipped = (
        build(MaskedCoupling, (2, 3, 3), 4, pattern=pattern, flipped=flipped) for flipped in (False, True)
    )
    np.testing.assert_array_equal(usual.kept(), ~flipped.kept())
    for coupling in (usual, flipped):
        kept, out = coupling.kept(), coupling.inverse(x)
        changed = np.asarray(out.value != x)
        np.testing.assert_array_equal(changed, np.broadcast_to(~kept, x.shape))
        log_scale, shift = coupling._log_scale_and_shift(x)
        np.testing.assert_allclose(out.value, np.where(kept, x, x * np.exp(log_scale) + shift), rtol=1e-12)
        np.testing.assert_allclose(out.log_det, log_scale.sum((1, 2, 3)), rtol=1e-12)
        np.testing.assert_allclose(coupling.forward(out.value).value, x, atol=1e-10)


def test_patterns(build):
    checkerboard = build(MaskedCoupling, (2, 3, 2), 1).kept()
    np.testing.assert_array_equal(checkerboard[..., 0], [[1, 0, 1], [0, 1, 0]])
    np.testing.assert_array_equal(checkerboard[..., 1], checkerboard[..., 0])
    np.testing.assert_array_equal(build(MaskedCoupling, (1, 1, 5), 1, pattern="channels").kept(), [[[1, 1, 0, 0, 0]]])


@pytest.mark.parametrize("pattern", ["checkerboard", "channels"])
def test_the_log_det_of_a_masked_coupling_is_that_of_its_jacobian(pattern, build):
    coupling, x = build(MaskedCoupling, (2, 1, 2), 4, pattern=pattern, flipped=True), draw(2, 1, 2)

    @eqx.filter_jit
    def run(coupling, x):
        out = coupling.inverse(x[None])
        jacobian = jax.jacfwd(lambda x: coupling.inverse(x[None]).value[0])(x)
        return out.log_det[0], jnp.linalg.slogdet(jacobian.reshape(x.size, -1))[1]

    log_det, brute = run(coupling, x)
    assert abs(float(log_det)) > 1e-2
    np.testing.assert_allclose(log_det, brute, atol=1e-10)


def test_a_step_of_real_nvp_starts_as_the_identity():
    x = draw(2, 2, 2, 2)
    out = Chain(real_nvp_step((2, 2, 2), 4, pattern="checkerboard", flipped=False, key=KEY)).inverse(x)
    np.testing.assert_array_equal(out.value, x)
    np.testing.assert_array_equal(out.log_det, [0, 0])


@pytest.mark.usefixtures("unchecked")
def test_wrong_couplings_are_named():
    with pytest.raises(ValueError, match="pattern must be checkerboard or channels; got 'stripes'"):
        MaskedCoupling((2, 2, 2), 4, pattern="stripes", key=KEY)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"at least two channels, of which half are kept; got \(2, 2, 1\)"):
        MaskedCoupling((2, 2, 1), 4, pattern="channels", key=KEY)
