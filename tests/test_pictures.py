"""Dequantised images: every pixel in its level, noise that can be had again, and mirrored images in training only."""

import numpy as np
import pytest

from ffjord.data import Source
from ffjord.data.images import IMAGE_SETS
from ffjord.data.pictures import Pictures, image_set, is_image, read_images
from ffjord.data.split import Split
from ffjord.errors import InputError
from ffjord.experiments.build import build_source
from ffjord.experiments.catalog import find

SHAPE = (4, 6, 2)


def split(levels=256, train=20, validation=5, test=30):
    rng = np.random.default_rng(0)
    return Split(*(rng.integers(0, levels, (n, *SHAPE), dtype=np.uint8) for n in (train, validation, test)))


def pictures(images=None, **kwargs):
    images = images or split(kwargs.get("levels", 256))
    settings = {"levels": 256, "num_test": len(images.test), "batch_size": 8, "seed": 3, **kwargs}
    return Pictures(SHAPE, lambda: images, **settings)


def levels_of(x, levels=256):
    return np.floor(x.astype(np.float64) * levels).astype(np.uint8)


@pytest.mark.parametrize("levels", [2, 17, 256])
def test_every_pixel_is_within_its_level(levels):
    images = split(levels)
    source = pictures(images, levels=levels)
    found = [(source.validation(), images.validation), (source.test(), images.test)]
    for x, expected in found:
        assert x.dtype == np.float32
        assert x.shape == expected.shape
        assert 0 <= x.min() <= x.max() < 1
        np.testing.assert_array_equal(levels_of(x, levels), expected)
    for batch in source.batches(0, 3):
        assert 0 <= batch.min() <= batch.max() < 1
        assert len(unflipped(levels_of(batch, levels), images.train)) == 8


def unflipped(batch, train):
    """Numbers of the training images in a batch, in its order; each is there as it is."""
    return [next(i for i, image in enumerate(train) if np.array_equal(image, x)) for x in batch]


def test_white_stays_white_in_single_precision():
    white = np.full((8000, *SHAPE), 255, np.uint8)
    x = pictures(Split(white, white, white)).test()  # 255 + u rounds to 256 for u > 1 - 2⁻¹⁷: here thrice on average
    assert x.max() < 1
    np.testing.assert_array_equal(levels_of(x), white)


def test_noise_is_uniform_within_a_level():
    black = np.zeros((2000, *SHAPE), np.uint8)
    u = 256 * pictures(Split(black, black, black)).test().ravel()
    edges = np.sort(u)
    distance = np.max(np.abs(edges - np.arange(len(u)) / len(u)))
    assert distance < 1.95 / np.sqrt(len(u))  # Kolmogorov and Smirnov, one in a thousand


def test_training_noise_derives_from_seed_and_step():
    source, again, other = pictures(), pictures(), pictures(seed=4)
    batches = source.batches(0, 4)
    np.testing.assert_array_equal(batches, again.batches(0, 4))
    np.testing.assert_array_equal(batches[2:], again.batches(2, 2))
    noise = [np.modf(256 * batch)[0] for batch in (*batches, *other.batches(0, 1), source.validation()[:8])]
    for i, one in enumerate(noise):
        for two in noise[i + 1 :]:
            assert np.mean(one[: len(two)] == two[: len(one)]) < 0.01


def test_every_image_is_met_once_an_epoch():
    images = split(train=16)
    batches = pictures(images).batches(0, 4)
    numbers = unflipped(levels_of(batches).reshape(-1, *SHAPE), images.train)
    assert sorted(numbers[:16]) == sorted(numbers[16:]) == list(range(16))
    assert numbers[:16] != numbers[16:]


def test_a_batch_larger_than_the_set_is_the_set():
    images = split(train=5)
    batches = pictures(images, batch_size=100).batches(0, 2)
    assert batches.shape == (2, 5, *SHAPE)
    for batch in levels_of(batches):
        assert sorted(unflipped(batch, images.train)) == list(range(5))


def test_test_noise_does_not_depend_on_the_limit(monkeypatch):
    monkeypatch.setattr("ffjord.data.pictures._BLOCK", 12)
    source = pictures()
    whole = source.test()
    assert whole.shape == (30, *SHAPE)
    assert [len(block) for block in source.test_blocks()] == [12, 12, 6]
    for limit in (1, 12, 13, 29, 30, 100):
        np.testing.assert_array_equal(source.test(limit), whole[:limit])
    first, second = (np.modf(256 * whole[i : i + 12])[0] for i in (0, 12))
    assert np.mean(first == second) < 0.01


def test_another_draw_changes_the_noise_of_held_out_images_and_nothing_else():
    source = pictures(flips=True)
    other = source.with_draw(1)
    np.testing.assert_array_equal(source.batches(0, 2), other.batches(0, 2))
    np.testing.assert_array_equal(other.with_draw(0).test(), source.test())
    for name in ("event_shape", "levels", "num_test", "batch_size", "seed", "flips"):
        assert getattr(source, name) == getattr(other, name)
    for one, two in ((source.test(), other.test()), (source.validation(), other.validation())):
        assert np.mean(one == two) < 0.01
        np.testing.assert_array_equal(levels_of(one), levels_of(two))


def test_half_of_the_training_images_are_mirrored_and_none_of_the_others():
    images = split(train=20)
    usual, mirrored = (pictures(images, flips=flips) for flips in (False, True))
    one, two = (levels_of(source.batches(0, 50)).reshape(-1, *SHAPE) for source in (usual, mirrored))
    same = np.array([np.array_equal(a, b) for a, b in zip(one, two, strict=True)])
    np.testing.assert_array_equal(two[~same], one[~same][:, :, ::-1])
    assert 0.4 < same.mean() < 0.6
    np.testing.assert_array_equal(two, levels_of(mirrored.batches(0, 50)).reshape(-1, *SHAPE))
    np.testing.assert_array_equal(usual.validation(), mirrored.validation())
    np.testing.assert_array_equal(usual.test(), mirrored.test())


def test_images_are_read_when_they_are_needed_and_once():
    reads = []
    source = Pictures(SHAPE, lambda: reads.append(1) or split(), levels=256, num_test=30, batch_size=8, seed=0)
    assert isinstance(source, Source)
    assert (source.event_shape, source.num_test, reads) == (SHAPE, 30, [])
    assert len(source.validation()) == 5
    assert len(source.batches(0, 1)[0]) == 8
    assert len(source.with_draw(1).test(2)) == 2
    assert reads == [1]


def test_names_of_sets():
    assert [is_image(name) for name in ("image/mnist", "mnist", "toy/picture")] == [True, False, False]
    for name, about in IMAGE_SETS.items():
        assert image_set(f"image/{name}") is about


def test_the_digits_of_an_experiment_are_its_pictures():
    source = build_source(find("image/digits"))
    assert isinstance(source, Pictures)
    about = IMAGE_SETS["digits"]
    assert (source.event_shape, source.levels, source.num_test) == (about.shape, about.levels, about.rows[2])
    assert source.test().shape == (about.rows[2], *about.shape)
    assert source.validation().shape == (about.rows[1], *about.shape)
    assert levels_of(source.test(), 17).max() == 16
    assert not source.flips


@pytest.mark.parametrize(("name", "flips"), [("image/mnist", False), ("image/cifar10", True)])
def test_only_photographs_are_mirrored(name, flips):
    source = build_source(find(name))
    assert isinstance(source, Pictures)
    assert source.flips == flips


@pytest.mark.parametrize("dtype", [np.uint8, np.int64])
def test_images_of_a_file_are_dequantised(tmp_path, dtype):
    images = np.random.default_rng(0).integers(0, 17, (5, 8, 8, 1)).astype(dtype)
    np.save(tmp_path / "images.npy", images)
    x = read_images(tmp_path / "images.npy", (8, 8, 1), 17, seed=0)
    assert x.dtype == np.float32
    np.testing.assert_array_equal(np.floor(x * 17), images)
    np.testing.assert_array_equal(x, read_images(tmp_path / "images.npy", (8, 8, 1), 17, seed=0))


def test_pixels_of_a_file_stay_as_they_are(tmp_path):
    np.save(tmp_path / "images.npy", np.full((2, 8, 8, 1), 0.25))
    assert np.all(read_images(tmp_path / "images.npy", (8, 8, 1), 17, seed=0) == 0.25)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((2, 8, 8)), r"\(n, 8, 8, 1\); got \(2, 8, 8\)"),
        (np.full((2, 8, 8, 1), 17), "0 to 16.*got 17 to 17"),
        (np.full((2, 8, 8, 1), 1.5), "got 1.5 to 1.5"),
        (np.full((2, 8, 8, 1), np.nan), "got nan to nan"),
        (np.full((2, 8, 8, 1), "a"), "got type <U1"),
    ],
)
def test_files_of_other_images_are_refused(tmp_path, images, message):
    np.save(tmp_path / "images.npy", images)
    with pytest.raises(InputError, match=message):
        read_images(tmp_path / "images.npy", (8, 8, 1), 17, seed=0)


def test_a_file_that_holds_no_images_is_refused(tmp_path):
    (tmp_path / "images.npy").write_bytes(b"no")
    with pytest.raises(InputError, match="cannot be read"):
        read_images(tmp_path / "images.npy", (8, 8, 1), 17, seed=0)
