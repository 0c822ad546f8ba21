"""The toy densities, against what is known of them."""

import numpy as np
import pytest
from PIL import Image

from ffjord.data import TOYS, FreshSamples, Picture, Rows
from ffjord.errors import InputError


@pytest.mark.parametrize("name", TOYS)
def test_every_toy_draws_finite_points_that_depend_on_the_generator_alone(name):
    first, again, other = (TOYS[name](64, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert first.shape == (64, 1 if name == "1d" else 2)
    assert np.isfinite(first).all()
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_eight_gaussians_have_their_entropy():
    x = TOYS["8gaussians"](200_000, np.random.default_rng(0))
    angles = np.arange(8) * np.pi / 4
    centers = 4 / 1.414 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    variance = (0.5 / 1.414) ** 2
    squares = ((x[:, None] - centers) ** 2).sum(-1)
    density = np.exp(-0.5 * squares / variance).mean(1) / (2 * np.pi * variance)
    assert abs(-np.log(density).mean() - 2.831) < 0.01


def test_checkerboard_fills_eight_squares_evenly():
    x = TOYS["checkerboard"](80_000, np.random.default_rng(0))
    counts, *_ = np.histogram2d(*x.T, bins=4, range=[[-4, 4], [-4, 4]])
    assert counts.sum() == len(x)
    assert (counts > 0).sum() == 8
    assert np.allclose(counts[counts > 0], 10_000, rtol=0.05)


def test_one_dimensional_mixture_has_its_mean_and_variance():
    x = TOYS["1d"](200_000, np.random.default_rng(0))
    means = np.array([-2.8, -0.9, 2.0])
    assert abs(x.mean() - means.mean()) < 0.02
    assert abs(x.var() - (0.4 + means.var())) < 0.03


def test_rings_and_circles_have_their_radii():
    radii = np.linalg.norm(TOYS["rings"](20_000, np.random.default_rng(0)), axis=1)
    nearest = np.abs(radii[:, None] - 3 * np.array([0.25, 0.5, 0.75, 1.0])).min(1)
    assert np.quantile(nearest, 0.99) < 0.3
    radii = np.linalg.norm(TOYS["circles"](20_000, np.random.default_rng(0)), axis=1)
    assert np.quantile(np.minimum(abs(radii - 3), abs(radii - 1.5)), 0.99) < 0.8


def test_fresh_batches_follow_from_seed_and_step():
    source = FreshSamples(TOYS["moons"], batch_size=8, seed=3)
    assert np.array_equal(source.batches(0, 4)[2:], source.batches(2, 2))
    assert source.batches(0, 4).dtype == np.float32
    assert not np.array_equal(source.validation()[:8], source.batches(0, 1)[0])
    assert len(source.test(5)) == 5
    assert np.array_equal(source.test(5), source.test()[:5])


def test_test_points_come_in_blocks(monkeypatch):
    source = FreshSamples(TOYS["moons"], batch_size=8, seed=3, num_test=25)
    whole = source.test()
    monkeypatch.setattr("ffjord.data.source._BLOCK", 10)
    assert [len(block) for block in source.test_blocks()] == [10, 10, 5]
    assert [len(block) for block in source.test_blocks(12)] == [10, 2]
    assert len(np.unique(source.test(), axis=0)) == len(whole) == source.num_test == 25
    assert np.array_equal(source.test(12), source.test()[:12])


def test_rows_visit_every_row_once_an_epoch_and_can_start_anywhere():
    table = np.arange(10, dtype=np.float32)[:, None]
    source = Rows(table, table, table, batch_size=4, seed=0)
    seen = source.batches(0, 5).reshape(-1)
    assert np.array_equal(np.sort(seen[:10]), np.arange(10))
    assert np.array_equal(np.sort(seen[10:]), np.arange(10))
    assert not np.array_equal(seen[:10], seen[10:])
    assert np.array_equal(source.batches(3, 2), source.batches(0, 5)[3:])


def test_a_picture_is_sampled_where_it_is_dark(tmp_path):
    pixels = np.full((20, 40), 255, np.uint8)
    pixels[:10, :20] = 0
    Image.fromarray(pixels).save(tmp_path / "corner.png")
    x = Picture(tmp_path / "corner.png")(2000, np.random.default_rng(0))
    assert x.shape == (2000, 2)
    assert (x[:, 0] < 0).all()
    assert (x[:, 1] > 0).all()
    assert x[:, 0].min() > -4.001
    assert x[:, 1].max() < 2.001


@pytest.mark.parametrize("content", [None, b"", b"not a picture", "white"])
def test_an_unusable_picture_is_refused(tmp_path, content):
    path = tmp_path / "picture.png"
    if content == "white":
        Image.new("RGB", (4, 4), "white").save(path)
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match="--image"):
        Picture(path)
