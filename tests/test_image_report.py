"""Pictures of flows over images: real grey levels, crisp pixels, and what they show is what the flow says."""

import dataclasses
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from scipy.stats import norm

from ffjord.arrays import save_arrays
from ffjord.bijections import CNF, ActNorm, Chain, EachPlace, Logit, Numerics
from ffjord.cli import main
from ffjord.divergence import Exact
from ffjord.dynamics import ConvNet
from ffjord.errors import InputError
from ffjord.experiments.build import build_flow
from ffjord.experiments.catalog import find
from ffjord.flow import Flow, StandardNormal, Tempered
from ffjord.report.image_path import animate_images
from ffjord.report.images import figure_of_interpolation, figure_of_samples, images_at, interpolate, spherical
from ffjord.report.mosaic import GAP, columns_for, in_levels, mosaic, picture_of_images
from ffjord.runs import Run
from ffjord.scoring import sample_blocks
from ffjord.solve import Solver

KEY = jax.random.key(0)
SHAPE = (4, 4, 1)
LEVELS = 17
LOGIT = Flow(StandardNormal(SHAPE), Chain([EachPlace(ActNorm((1,))), Logit(0.05)]))
PAGE = (0x12, 0x11, 0x1C)


@pytest.fixture(scope="module")
def flow() -> Flow:
    """Two continuous parts, and the logit."""
    how = Numerics(Exact(), Solver("rk4"))
    parts = [CNF(ConvNet(1, (3,), key=jax.random.key(i)), testing=how) for i in range(2)]
    return Flow(StandardNormal(SHAPE), Chain([*parts, Logit(0.05)]))


@pytest.fixture
def no_ffmpeg(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))


def images(n: int, *shape: int) -> np.ndarray:
    """Dequantised images of random grey levels."""
    rng = np.random.default_rng(0)
    shape = (n, *(shape or SHAPE))
    return ((rng.integers(LEVELS, size=shape) + rng.uniform(0.05, 0.95, shape)) / LEVELS).astype(np.float32)


def logit(x: np.ndarray) -> np.ndarray:
    y = 0.05 + 0.9 * x.astype(np.float64)
    return np.log(y) - np.log1p(-y)


# Images as bytes, and side by side.


@pytest.mark.parametrize("levels", [2, 17, 256])
def test_levels_of_dequantised_images_are_the_levels_they_had(levels):
    v = np.arange(levels).reshape(1, levels, 1, 1)
    for u in (0.0, 0.5, 0.99):
        np.testing.assert_array_equal(in_levels(((v + u) / levels).astype(np.float32), levels), v)


def test_what_lies_outside_has_the_outermost_levels():
    x = np.array([-np.inf, -0.1, 1.0, 1.7, np.inf]).reshape(1, 5, 1, 1)
    found = in_levels(x, LEVELS)
    assert found.dtype == np.uint8
    assert found.ravel().tolist() == [0, 0, 16, 16, 16]


def test_levels_must_fit_into_bytes_and_images_must_be_numbers():
    with pytest.raises(ValueError, match=r"2 to 256.*got 1000"):
        in_levels(images(1), 1000)
    with pytest.raises(ValueError, match="NaN"):
        in_levels(np.full((1, 2, 2, 1), np.nan), LEVELS)


def test_a_mosaic_holds_every_image_in_its_place_with_crisp_pixels():
    x = images(5, 4, 3, 3)
    tiles = mosaic(x, levels=LEVELS, columns=3, scale=2)
    assert tiles.shape == (2 * 8 + GAP, 3 * 6 + 2 * GAP, 3)
    light = np.round(255 * np.floor(x * LEVELS) / 16)
    for i in range(5):
        top, left = i // 3 * (8 + GAP), i % 3 * (6 + GAP)
        for dy, dx in ((0, 0), (0, 1), (1, 0), (1, 1)):
            np.testing.assert_array_equal(tiles[top + dy : top + 8 : 2, left + dx : left + 6 : 2], light[i])
    for empty in (tiles[8 + GAP :, 12 + 2 * GAP :], tiles[8 : 8 + GAP], tiles[:, 6 : 6 + GAP]):
        assert np.all(empty == PAGE)


def test_one_channel_is_grey_and_two_are_refused():
    tiles = mosaic(images(2), levels=LEVELS, columns=2)
    assert np.all(tiles[:, :4] == tiles[:, :4, :1])
    with pytest.raises(ValueError, match=r"1 channel.*got 2"):
        mosaic(images(1, 4, 4, 2), levels=LEVELS, columns=1)


@pytest.mark.parametrize(
    ("n", "ratio", "columns"), [(1, 1.0, 1), (64, 1.0, 8), (24, 1.5, 6), (12, 1.5, 4), (10, 1.0, 5)]
)
def test_a_block_of_images_has_few_empty_places(n, ratio, columns):
    assert columns_for(n, ratio) == columns


def test_a_written_picture_has_exactly_the_pixels_of_its_images(tmp_path):
    x = images(6)
    picture_of_images(x, levels=LEVELS).savefig(tmp_path / "x.png")
    shown = np.asarray(Image.open(tmp_path / "x.png").convert("RGB"))
    tiles = mosaic(x, levels=LEVELS, columns=columns_for(6), scale=22)
    edge = (shown.shape[0] - tiles.shape[0]) // 2
    np.testing.assert_array_equal(shown[edge:-edge, edge:-edge], tiles)


# Temperatures.


def test_a_tempered_base_is_normal_with_that_standard_deviation():
    base = Tempered(StandardNormal(SHAPE), jnp.asarray(0.7))
    z = base.sample(3, dtype=jnp.float32, key=KEY)
    np.testing.assert_allclose(z, 0.7 * StandardNormal(SHAPE).sample(3, dtype=jnp.float32, key=KEY), rtol=1e-6)
    np.testing.assert_allclose(base.log_prob(z), norm.logpdf(z, scale=0.7).sum(axis=(1, 2, 3)), rtol=1e-5)


def test_samples_of_a_temperature_are_the_same_points_of_the_base_times_it():
    cold, warm = (logit(images_at(LOGIT, 20, temperature=t, key=KEY)) for t in (0.5, 1.0))
    np.testing.assert_allclose(cold, 0.5 * warm, atol=2e-5)


def test_a_temperature_of_one_changes_nothing(flow):
    samples = [np.asarray(f.sample(4, key=KEY)) for f in (flow, flow.tempered(1.0))]
    np.testing.assert_array_equal(*samples)


@pytest.mark.parametrize("wrong", [0.0, -1.0, np.inf, np.nan])
def test_a_temperature_must_be_positive(wrong):
    with pytest.raises(ValueError, match="temperature must be positive and finite"):
        LOGIT.tempered(wrong)


# Samples on their way.


def test_the_path_starts_with_the_noise_in_pixels_and_ends_with_the_samples(flow):
    shown = lambda time: images_at(flow, 8, time=time, key=KEY)
    z = StandardNormal(SHAPE).sample(8, dtype=jnp.float32, key=jax.random.split(KEY)[0])
    np.testing.assert_allclose(shown(0.0), Logit(0.05).forward(z).value, atol=1e-6)
    np.testing.assert_allclose(shown(1.0), flow.sample(8, key=KEY), atol=1e-5)
    half = flow.bijection.parts[0].forward(z).value
    np.testing.assert_allclose(shown(0.5), Logit(0.05).forward(half).value, atol=1e-5)


def test_the_film_shows_the_samples_and_holds_its_end(flow, tmp_path, no_ffmpeg):
    done = []
    progress = lambda i, n: done.append((i, n))
    what = {"levels": LEVELS, "n": 6, "frames": 4, "hold": 0.9, "key": KEY}
    files = animate_images(flow, tmp_path / "new/path", progress=progress, **what)
    assert files == [tmp_path / "new/path.gif"]
    assert done == [(1, 4), (2, 4), (3, 4), (4, 4)]
    with Image.open(files[0]) as gif:
        assert (gif.n_frames, gif.info["loop"]) == (4, 0)
        assert [gif.seek(i) or gif.info["duration"] for i in range(4)] == [350, 50, 50, 950]
        last = np.asarray(gif.convert("RGB")).astype(int)
    tiles = mosaic(images_at(flow, 6, key=KEY), levels=LEVELS, columns=3, scale=19).astype(int)
    differences = np.abs(last[40 : 40 + tiles.shape[0], 20 : 20 + tiles.shape[1]] - tiles)
    assert differences.max() <= 4  # a GIF's colours are few


def test_ffmpeg_gets_the_film_too(flow, tmp_path, monkeypatch):
    program = tmp_path / "ffmpeg"
    program.write_text(f"#!{sys.executable}\nimport sys\nopen(sys.argv[-1], 'wb').write(sys.stdin.buffer.read()[:9])")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    files = animate_images(flow, tmp_path / "path", levels=LEVELS, n=6, frames=2, key=KEY)
    assert [path.name for path in files] == ["path.gif", "path.mp4"]
    assert files[1].read_bytes() == bytes([*PAGE] * 3)


@pytest.mark.parametrize("wrong", [{"n": 0}, {"frames": 1}, {"fps": 0}, {"hold": -1.0}])
def test_wrong_numbers_of_a_film(flow, wrong, tmp_path):
    with pytest.raises(ValueError, match="need n >= 1"):
        animate_images(flow, tmp_path / "path", levels=LEVELS, key=KEY, **({"n": 6} | wrong))


def test_what_does_not_move_is_not_filmed(tmp_path):
    with pytest.raises(ValueError, match="nothing moves"):
        animate_images(LOGIT, tmp_path / "path", levels=LEVELS, n=6, key=KEY)


# From one image to another.


def test_spherical_turns_and_stretches_evenly():
    z = spherical(np.array([[1.0, 0.0]]), np.array([[0.0, 3.0]]), 5)[0]
    angle, length = np.pi / 2 * np.linspace(0, 1, 5), 1 + 2 * np.linspace(0, 1, 5)
    np.testing.assert_allclose(z, length[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1), atol=1e-12)


def test_spherical_begins_and_ends_at_its_ends_also_if_these_are_one():
    a, b = np.random.default_rng(0).normal(size=(2, 3, *SHAPE))
    z = spherical(a, b, 4)
    assert z.shape == (3, 4, *SHAPE)
    np.testing.assert_allclose(z[:, 0], a, atol=1e-12)
    np.testing.assert_allclose(z[:, -1], b, atol=1e-12)
    np.testing.assert_allclose(spherical(a, a, 3), np.repeat(a[:, None], 3, axis=1), atol=1e-12)


def test_interpolation_ends_at_the_images_and_tells_how_nearly(flow):
    x = images(4)
    found = interpolate(flow, x[:2], x[2:], levels=LEVELS, steps=3)
    assert found.x.shape == (2, 3, *SHAPE)
    ends = np.concatenate([found.x[:, 0], found.x[:, -1]])
    np.testing.assert_allclose(ends, x, atol=5e-6)
    error = LEVELS * np.abs(ends.astype(np.float64) - x)
    np.testing.assert_allclose([found.mean_error, found.max_error], [error.mean(), error.max()], rtol=1e-6)
    z = np.asarray(flow.bijection.inverse(jnp.asarray(x)).value)
    middle = spherical(z[:2], z[2:], 3)[:, 1]
    np.testing.assert_allclose(found.x[:, 1], flow.bijection.forward(jnp.asarray(middle)).value, atol=1e-4)


def test_the_picture_of_an_interpolation_shows_its_images_and_its_error():
    x = images(4)
    picture = figure_of_interpolation(LOGIT, x, levels=LEVELS, pairs=2, steps=4, title="digits")
    titles = [axes.get_title(loc="left") for axes in picture.axes]
    assert (titles[0], titles[-1]) == ("from", "to")
    shown = np.asarray(picture.axes[0].images[0].get_array())
    np.testing.assert_array_equal(shown, mosaic(x[::2], levels=LEVELS, columns=1, scale=22))
    words = [text.get_text() for text in picture.texts]
    assert words[0] == "digits"
    assert "of 17 grey levels on average" in words[1]
    with pytest.raises(ValueError, match="half of the 4 images; got 3"):
        figure_of_interpolation(LOGIT, x, levels=LEVELS, pairs=3)
    with pytest.raises(ValueError, match="at least 2"):
        interpolate(LOGIT, x, x, levels=LEVELS, steps=1)


def test_the_picture_of_samples_shows_data_and_each_temperature():
    x = images(20)
    picture = figure_of_samples(LOGIT, x, levels=LEVELS, n=14, temperatures=(0.5, 1.0), key=KEY)
    titles = [axes.get_title(loc="left") for axes in picture.axes]
    assert titles == ["test images", "samples, T = 0.5", "samples, T = 1"]
    wanted = [x[:14], *(images_at(LOGIT, 14, temperature=t, key=KEY) for t in (0.5, 1.0))]
    for axes, part in zip(picture.axes, wanted, strict=True):
        shown = np.asarray(axes.images[0].get_array())
        np.testing.assert_array_equal(shown, mosaic(part, levels=LEVELS, columns=7, scale=22))
    alone = figure_of_samples(LOGIT, None, levels=LEVELS, n=1, temperatures=(1.0,), key=KEY)
    assert [axes.get_title(loc="left") for axes in alone.axes] == ["samples, T = 1"]
    with pytest.raises(ValueError, match="one temperature"):
        figure_of_samples(LOGIT, None, levels=LEVELS, n=1, temperatures=(), key=KEY)
    with pytest.raises(ValueError, match=r"\(n, 4, 4, 1\)"):
        figure_of_samples(LOGIT, images(2, 8, 8, 1), levels=LEVELS, n=1, temperatures=(1.0,), key=KEY)


# The command line.


def make_run(path: Path, **model) -> Path:
    """A run on the small digits whose model is as it was made."""
    experiment = find("image/digits")
    experiment = dataclasses.replace(
        experiment,
        model=dataclasses.replace(experiment.model, **({"hidden": (3,), "scales": 1} | model)),
        solve=dataclasses.replace(experiment.solve, method="midpoint", num_steps=2),
    )
    run = Run.create(path, experiment)
    save_arrays(run.weights, build_flow(experiment, run.source()))
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "digits")


@pytest.fixture
def no_data(monkeypatch):
    """A machine on which the images are not."""

    def load(*_):
        raise InputError("digits: none of its files was found.")

    monkeypatch.setattr("ffjord.experiments.build.load_images", load)


def fails(capsys, *words: str) -> str:
    try:
        code = main(list(words))
    except SystemExit as stopped:
        code = stopped.code
    out, err = capsys.readouterr()
    assert code == 2
    assert out == ""
    assert "Traceback" not in err
    return err


def test_samples_are_bytes_of_the_datas_levels(run, tmp_path, no_data):
    for name, words in (("warm.npy", []), ("cold.npy", ["--temperature", "0.5"])):
        assert main(["sample", str(run), "-n", "5", "--seed", "1", "--out", str(tmp_path / name), *words]) == 0
    warm, cold = (np.load(tmp_path / name) for name in ("warm.npy", "cold.npy"))
    assert (warm.shape, warm.dtype) == ((5, 8, 8, 1), np.uint8)
    assert warm.max() <= 16
    flow = Run.open(run).flow()
    for found, t in ((warm, 1.0), (cold, 0.5)):
        (x,) = sample_blocks(flow.tempered(t), 5, key=jax.random.key(1))
        np.testing.assert_array_equal(found, np.clip(np.floor(17 * x), 0, 16))


def test_a_picture_of_samples_is_a_block_of_images(run, tmp_path):
    assert main(["sample", str(run), "-n", "6", "--out", str(tmp_path / "x.png")]) == 0
    (x,) = sample_blocks(Run.open(run).flow(), 6, key=jax.random.key(0))
    with Image.open(tmp_path / "x.png") as picture:
        shown = np.asarray(picture.convert("RGB"))
    tiles = mosaic(x, levels=17, columns=columns_for(6), scale=11)
    np.testing.assert_array_equal(shown[30:-30, 30:-30], tiles)


def test_samples_of_images_that_are_refused(run, tmp_path, capsys):
    out = lambda name: ("sample", str(run), "--out", str(tmp_path / name))
    assert "not as .csv" in fails(capsys, *out("x.csv"))
    assert "--temperature must be positive" in fails(capsys, *out("x.npy"), "--temperature", "0")
    assert "--temperature must be positive" in fails(capsys, *out("x.npy"), "--temperature", "nan")
    assert "at most 10000" in fails(capsys, *out("x.png"), "-n", "10001")
    assert "no conditions" in fails(capsys, *out("x.npy"), "--given", "a=1")
    assert not list(tmp_path.iterdir())
    (tmp_path / "x.npy").write_text("mine")
    assert "--overwrite" in fails(capsys, *out("x.npy"))
    assert (tmp_path / "x.npy").read_text() == "mine"


def test_points_have_a_temperature_too(tmp_path):
    words = ["sample", "pretrained/toy-8gaussians", "-n", "20", "--out"]
    assert main([*words, str(tmp_path / "x.npy"), "--temperature", "0.5"]) == 0
    flow = Run.open(Path("pretrained/toy-8gaussians")).flow()
    (x,) = sample_blocks(flow.tempered(0.5), 20, key=jax.random.key(0))
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), x)


def test_plot_draws_samples_interpolation_and_path(run, capsys, no_ffmpeg):
    assert main(["plot", str(run), "--frames", "2", "--samples", "6", "--temperatures", "0.5", "1"]) == 0
    out, err = capsys.readouterr()
    assert out.split() == [str(run / name) for name in ("samples.png", "interpolation.png", "path.gif")]
    assert err == ""
    flow, test = Run.open(run).flow(), Run.open(run).source().test(6)
    with Image.open(run / "samples.png") as picture:
        shown = np.asarray(picture.convert("RGB"))
    side = 88
    for row, x in enumerate([test, *(images_at(flow, 6, temperature=t, key=KEY) for t in (0.5, 1.0))]):
        top = 100 + row * (side + 42)
        np.testing.assert_array_equal(shown[top : top + side, 42:-42], mosaic(x, levels=17, columns=6, scale=11))


def test_plot_without_the_data_draws_what_needs_none(tmp_path, capsys, no_data, no_ffmpeg):
    run = make_run(tmp_path / "run")
    assert main(["plot", str(run), "--frames", "2", "--samples", "6", "--temperatures", "1"]) == 0
    out, err = capsys.readouterr()
    assert out.split() == [str(run / name) for name in ("samples.png", "path.gif")]
    assert "only samples are drawn" in err
    assert "none of its files was found" in err
    assert not (run / "interpolation.png").exists()


def test_plot_of_a_flow_that_does_not_move_has_no_film(tmp_path, capsys, no_data):
    run = make_run(tmp_path / "run", kind="real-nvp", flows=1)
    assert main(["plot", str(run), "--samples", "2", "--temperatures", "1"]) == 0
    out, err = capsys.readouterr()
    assert out.split() == [str(run / "samples.png")]
    assert "no film" in err


def test_plots_that_are_refused(run, capsys):
    assert "--temperatures must be positive" in fails(capsys, "plot", str(run), "--temperatures", "0.7", "-1")
    assert "--samples" in fails(capsys, "plot", str(run), "--samples", "0")
    toy = "pretrained/toy-8gaussians"
    assert "no run on images" in fails(capsys, "plot", toy, "--temperatures", "0.5")
    assert "no run on images" in fails(capsys, "plot", toy, "--samples", "5")
