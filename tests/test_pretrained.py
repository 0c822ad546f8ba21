"""The weights that ship with the package: quality on fresh points, and densities that integrate to one."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ffjord
from ffjord.data import TOYS
from ffjord.scoring import score
from ffjord.solve import Solver

FRESH = 987654321


def true_density_of_eight_gaussians(x: np.ndarray) -> np.ndarray:
    angles = np.arange(8) * np.pi / 4
    centers = 4 / 1.414 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    variance = (0.5 / 1.414) ** 2
    squares = ((x[:, None] - centers) ** 2).sum(-1)
    return np.exp(-0.5 * squares / variance).mean(1) / (2 * np.pi * variance)


@pytest.mark.parametrize("name", [name for name in TOYS if name != "1d"])
def test_every_toy_ships_and_prefers_its_data(name):
    flow = ffjord.load_pretrained(f"toy-{name}")
    data = TOYS[name](256, np.random.default_rng(FRESH))
    elsewhere = np.random.default_rng(FRESH).uniform(-4, 4, (256, 2))
    assert np.mean(flow.log_prob(data)) > np.mean(flow.log_prob(elsewhere)) + 0.5


def test_eight_gaussians_are_learned_to_a_hundredth_of_a_nat():
    x = TOYS["8gaussians"](10_000, np.random.default_rng(FRESH))
    gap = np.log(true_density_of_eight_gaussians(x)) - score(ffjord.load_pretrained("toy-8gaussians"), x).log_prob
    assert 0 <= gap.mean() + 3 * gap.std() / 100
    assert gap.mean() < 0.01


def test_checkerboard_is_learned_to_a_tenth_of_a_nat():
    x = TOYS["checkerboard"](10_000, np.random.default_rng(FRESH))
    nll = -score(ffjord.load_pretrained("toy-checkerboard"), x).log_prob
    assert np.log(32) - 3 * nll.std() / 100 <= nll.mean() < np.log(32) + 0.10


def test_a_trained_density_in_the_plane_integrates_to_one():
    side = np.linspace(-6, 6, 161)[:-1] + 6 / 160
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    total = np.exp(score(ffjord.load_pretrained("toy-8gaussians"), grid, chunk=3200).log_prob, dtype=np.float64).sum()
    assert abs(total * (12 / 160) ** 2 - 1) < 1e-3


def test_the_trained_density_on_the_line_integrates_to_one_in_64_bits():
    flow = ffjord.load_pretrained("toy-1d")
    with jax.enable_x64(True):
        flow = jax.tree.map(lambda a: jnp.asarray(a, jnp.float64) if eqx.is_inexact_array(a) else a, flow)
        tight = Solver(rtol=1e-9, atol=1e-9, steps="worst")
        flow = eqx.tree_at(lambda f: f.bijection.testing.solver, flow, tight)
        points = np.linspace(-15, 15, 16_384, endpoint=False)[:, None]
        total = np.exp(np.asarray(flow.log_prob(points))).sum() * 30 / 16_384
    assert abs(total - 1) < 1e-5


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(ffjord.InputError, match="toy-8gaussians"):
        ffjord.load_pretrained("toy-9gaussians")


@pytest.mark.slow
def test_mnist_ships_and_prefers_its_digits_to_noise():
    flow = ffjord.load_pretrained("mnist")
    digits = np.asarray(flow.sample(4, key=jax.random.key(0)))
    assert digits.shape == (4, 28, 28, 1)
    assert np.mean(digits < 1 / 256) > 0.6  # paper is white: level 0
    shuffled = np.random.default_rng(0).permuted(digits.reshape(4, -1), axis=1).reshape(digits.shape)
    scored = [np.asarray(flow.log_prob(x, key=jax.random.key(1))) for x in (digits, shuffled)]
    assert np.all(scored[0] > scored[1] + 100)


@pytest.mark.slow
def test_digits_ship_and_are_preferred_to_shuffled_ones():
    flow = ffjord.load_pretrained("digits")
    digits = np.asarray(flow.sample(8, key=jax.random.key(0)))
    shuffled = np.random.default_rng(0).permuted(digits.reshape(8, -1), axis=1).reshape(digits.shape)
    scored = [np.asarray(flow.log_prob(x, key=jax.random.key(1))) for x in (digits, shuffled)]
    assert np.all(scored[0] > scored[1] + 20)
