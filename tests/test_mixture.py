"""Pixels that are mixtures: the velocity in closed form."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from ffjord import CNF, Exact, Flow, Numerics, Solver, StandardNormal
from ffjord.dynamics import PixelMixture
from ffjord.experiments import ModelConfig
from ffjord.matching import FlowMatching
from ffjord.models import build_image_model
from ffjord.parameters import trainable

SHARES, MEANS, DEVIATIONS = np.array([0.7, 0.2, 0.1]), np.array([-0.6, 1.2, 1.6]), np.array([0.2, 0.3, 0.03])


class Tells(eqx.Module):
    """A network that tells of every pixel the same."""

    logits: jax.Array

    def __call__(self, t, seen):
        return jnp.broadcast_to(self.logits, (*seen.shape[:2], self.logits.size))


def mixture(logits=(0.0, 0.0, 0.0)) -> PixelMixture:
    rng = np.random.default_rng(0)
    kind = rng.choice(3, size=(2000, 4, 4, 1), p=SHARES)
    pixels = MEANS[kind] + DEVIATIONS[kind] * rng.standard_normal(kind.shape)
    return PixelMixture(Tells(jnp.asarray(logits, jnp.float32)), 3).calibrate(jnp.asarray(pixels, jnp.float32))


def test_the_mixture_is_found():
    found = mixture()
    order = np.argsort(found.means.array)
    np.testing.assert_allclose(np.exp(found.log_shares.array)[order], SHARES, atol=0.01)
    np.testing.assert_allclose(found.means.array[order], MEANS, atol=0.02)
    np.testing.assert_allclose(found.deviations.array[order], DEVIATIONS, atol=0.02)
    assert not any(jax.tree.leaves(trainable((found.log_shares, found.means, found.deviations))))


@pytest.mark.parametrize("logits", [(0.0, 0.0, 0.0), (0.5, -1.0, 2.0)])
def test_the_flow_takes_the_base_to_the_mixture_that_the_network_tells(logits):
    dynamics = mixture(logits)
    cnf = CNF(dynamics, testing=Numerics(Exact(), Solver(rtol=1e-6, atol=1e-6, steps="worst")))
    x = np.linspace(-1.5, 2.5, 81, dtype=np.float32).reshape(-1, 1, 1, 1)
    shares = np.exp(dynamics.log_shares.array + np.asarray(logits))
    density = norm.pdf(x[:, 0, 0], dynamics.means.array, dynamics.deviations.array) @ (shares / shares.sum())
    flow = Flow(StandardNormal((1, 1, 1)), cnf)
    likely = density > 1e-6  # elsewhere paths are too close together for float32
    np.testing.assert_allclose(flow.log_prob(x)[likely], np.log(density[likely]), atol=2e-3)


def test_no_velocity_fits_independent_pixels_better():
    """The loss of flow matching has its least value at the shares that the pixels have."""
    rng = np.random.default_rng(1)
    kind = rng.choice(3, size=(40_000, 2, 2, 1), p=SHARES)
    x = jnp.asarray(MEANS[kind] + DEVIATIONS[kind] * rng.standard_normal(kind.shape), jnp.float32)

    def loss(logits):
        flow = Flow(StandardNormal((2, 2, 1)), CNF(eqx.tree_at(lambda m: m.network.logits, mixture(), logits)))
        return FlowMatching()(flow, x, jax.random.key(0))[0]

    slope = jax.grad(loss)(jnp.zeros(3))
    moved = jax.grad(loss)(jnp.array([0.0, 1.0, 0.0]))
    assert np.abs(slope).max() < 0.1 * np.abs(moved).max()


def test_it_is_a_dynamics_of_images():
    model = ModelConfig(dynamics="mixture", hidden=(8,), blocks=1, components=3, nonlinearity="swish", end_time=1.0)
    flow = build_image_model((4, 4, 2), model, key=jax.random.key(0))
    x = jax.random.uniform(jax.random.key(1), (8, 4, 4, 2), minval=0.1, maxval=0.9)
    assert flow.rows_to_calibrate() > 1
    flow = flow.calibrate(x, key=jax.random.key(2))
    assert flow.log_prob(x, key=jax.random.key(3)).shape == (8,)


@pytest.mark.parametrize(("settings", "said"), [({"end_time": 0.5}, "from 0 to 1"), ({"components": 0}, "components")])
def test_bad_settings(settings, said):
    model = ModelConfig(
        **({"dynamics": "mixture", "hidden": (8,), "nonlinearity": "swish", "end_time": 1.0} | settings)
    )
    with pytest.raises(ValueError, match=said):
        build_image_model((4, 4, 1), model, key=jax.random.key(0))
