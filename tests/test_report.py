"""Pictures: that they are drawn, written whole, quick in the right places, and true to the flow."""

import os
import stat
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib._pylab_helpers import Gcf
from PIL import Image

from ffjord.bijections import CNF, Chain, Standardize
from ffjord.dynamics import MLP
from ffjord.flow import Flow, StandardNormal
from ffjord.report import Entry, Extent, animate, figure, gallery, picture_of_samples
from ffjord.report.evaluate import at_all, density_at, density_on_grid, for_pictures, samples_at
from ffjord.report.field import moves, velocity
from ffjord.report.grid import brightest, extent_of, grid_points
from ffjord.report.movie import write_mp4

KEY = jax.random.key(0)


class Traced(eqx.Module):
    """A dynamics that knows how often it was traced."""

    inner: MLP
    traces: list = eqx.field(static=True)

    def __call__(self, t, z):
        self.traces.append(1)
        return 2 * self.inner(t, z)


TRACES: list = []


def make(dim: int) -> Flow:
    dynamics = Traced(MLP(dim, (8,), key=jax.random.key(dim)), TRACES)
    return Flow(StandardNormal((dim,)), CNF(dynamics))


FLOWS = {dim: make(dim) for dim in (1, 2)}


def points(dim: int, n: int = 500) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, dim)).astype(np.float32)


def standardizing(dim: int) -> Flow:
    return Flow(StandardNormal((dim,)), Chain([Standardize(jnp.ones(dim), 2 * jnp.ones(dim))]))


@pytest.fixture
def no_ffmpeg(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))


def put_ffmpeg(directory: Path, monkeypatch, body: str) -> None:
    """A stand-in for ffmpeg: a script that sees the command line and the frames."""
    program = directory / "ffmpeg"
    program.write_text(f"#!{sys.executable}\nimport sys\nraw = sys.stdin.buffer.read()\n{body}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(directory))


# What the pictures show.


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("time", [0.0, 0.4, 1.0])
def test_density_on_a_grid_integrates_to_one(dim, time):
    extent = Extent(np.full(dim, -9.0), np.full(dim, 9.0))
    density = density_on_grid(for_pictures(FLOWS[dim]), extent, size={1: 512, 2: 96}[dim], time=time)
    assert density.shape == (density.shape[0],) * dim
    np.testing.assert_allclose(density.sum() * extent.volume / density.size, 1, atol=5e-3)


def test_density_on_a_grid_has_its_first_coordinate_along_the_columns():
    extent = Extent(np.array([-9.0, 1.0]), np.array([9.0, 2.0]))
    flow = for_pictures(FLOWS[2])
    density = density_on_grid(flow, extent, size=48)
    alone = density_at(flow, np.array([[-9 + 18 * 10.5 / 48, 1 + 40.5 / 48]]))
    np.testing.assert_allclose(density[40, 10], alone[0], rtol=0.02)


def test_samples_keep_their_identity_over_time():
    flow = for_pictures(FLOWS[2])
    early, late = (samples_at(flow, 1500, time=time, key=KEY) for time in (0.5, 0.52))
    assert early.shape == (1500, 2)
    assert np.abs(early - late).max() < 0.5


def test_velocity_is_the_derivative_of_the_samples_paths():
    cnfs = [CNF(MLP(2, (8,), key=jax.random.key(i)), end_time=0.5 + i) for i in range(2)]
    scale = lambda a, b: Standardize(jnp.array([a, b]), jnp.array([b, a]))
    flow = Flow(StandardNormal((2,)), Chain([cnfs[0], scale(0.5, 2.0), cnfs[1], scale(3.0, 1.5)]))
    x = lambda time: np.asarray(flow.at(time).sample(20, key=KEY))
    h = 0.01
    for time in (0.3, 0.8):
        slope = (x(time + h) - x(time - h)) / (2 * h)
        np.testing.assert_allclose(velocity(flow, x(time), time), slope, rtol=0.01, atol=2e-3)


def test_flows_without_continuous_part_have_no_velocity():
    flow = standardizing(2)
    assert velocity(flow, points(2)) is None
    assert not moves(flow)
    assert moves(FLOWS[2])


def test_extent_is_square_and_heeds_no_outlier():
    x = np.concatenate([points(2, 5000) * [1, 2], [[1e6, 1e6]]])
    extent = extent_of(x)
    np.testing.assert_allclose(extent.size[0], extent.size[1])
    assert 8 < extent.size[0] < 30


def test_extent_does_not_force_unlike_units_into_a_square():
    size = extent_of(points(2, 5000) * [1, 1000]).size
    assert size[1] > 500 * size[0]


def test_extent_of_equal_points_is_not_empty():
    assert np.all(extent_of(np.full((10, 2), 7.0)).size > 0)


def test_grid_points_are_cell_centres():
    grid = grid_points(Extent(np.array([0.0, 10.0]), np.array([2.0, 14.0])), 2)
    np.testing.assert_allclose(grid, [[0.5, 11], [1.5, 11], [0.5, 13], [1.5, 13]])


def test_brightest_ignores_a_spike():
    density = np.ones((100, 100))
    density[0, 0] = 50
    assert brightest(density) == 1


def test_all_times_come_in_order_and_with_the_callers_precision():
    with jax.enable_x64(True):
        found = list(at_all(np.arange(5.0), lambda time: jnp.asarray(time, float)))
    assert [float(value) for value in found] == [0, 1, 2, 3, 4]
    assert {value.dtype for value in found} == {np.dtype("float64")}


# Still pictures.


@pytest.mark.parametrize(("dim", "panels"), [(1, 3), (2, 4)])
def test_figure(dim, panels, tmp_path):
    picture = figure(FLOWS[dim], points(dim), title="A flow", key=KEY)
    assert len(picture.axes) == panels
    assert "A flow" in [text.get_text() for text in picture.texts]
    picture.savefig(tmp_path / "figure.png")
    assert Image.open(tmp_path / "figure.png").width > 1200
    assert not Gcf.figs


def test_figure_shows_the_extent_asked_for():
    extent = Extent(np.array([-2.0, -3.0]), np.array([4.0, 3.0]))
    for axes in figure(FLOWS[2], points(2), extent=extent, key=KEY).axes:
        assert (axes.get_xlim(), axes.get_ylim()) == ((-2, 4), (-3, 3))


def test_figure_of_a_flow_without_continuous_part_shows_circles():
    titles = [axes.get_title(loc="left") for axes in figure(standardizing(2), points(2), key=KEY).axes]
    assert titles == ["data", "samples", "density", "circles of the base"]


@pytest.mark.parametrize("dim", [1, 2])
def test_picture_of_samples(dim, tmp_path):
    picture_of_samples(points(dim), title="samples").savefig(tmp_path / "samples.png")
    assert Image.open(tmp_path / "samples.png").width > 500
    assert not Gcf.figs


def test_gallery_names_and_scores_every_entry():
    entries = [Entry(name, FLOWS[2], points(2), nll) for name, nll in (("rings", 1.234), ("moons", None), ("x", 2.0))]
    picture = gallery(entries, key=KEY)
    assert len(picture.axes) == 9
    lefts = [axes.get_title(loc="left") for axes in picture.axes]
    rights = [axes.get_title(loc="right") for axes in picture.axes]
    assert [text for text in lefts if text] == ["rings", "moons", "x"]
    assert [text for text in rights if text] == ["1.23 nats", "2.00 nats"]


# Animations.


@pytest.mark.parametrize("dim", [1, 2])
def test_animation_is_a_gif_that_loops_and_holds_its_end(dim, tmp_path, no_ffmpeg):
    done = []
    progress = lambda i, n: done.append((i, n))
    files = animate(FLOWS[dim], points(dim), tmp_path / "new/v1.0", frames=4, hold=0.9, progress=progress, key=KEY)
    assert files == [tmp_path / "new/v1.0.gif"]
    assert [path.name for path in files[0].parent.iterdir()] == ["v1.0.gif"]
    assert done == [(1, 4), (2, 4), (3, 4), (4, 4)]
    with Image.open(files[0]) as gif:
        assert (gif.n_frames, gif.info["loop"]) == (4, 0)
        durations = [gif.seek(i) or gif.info["duration"] for i in range(4)]
        assert durations == [350, 50, 50, 950]
        assert gif.width > 700
    assert files[0].stat().st_size < 4 * 60_000
    assert not Gcf.figs


def test_all_times_of_all_pictures_share_their_compilations(tmp_path, no_ffmpeg):
    figure(FLOWS[2], points(2), key=KEY)
    before = len(TRACES)
    animate(FLOWS[2], points(2), tmp_path / "a", frames=3, key=KEY)
    animate(FLOWS[2], points(2), tmp_path / "b", frames=7, key=KEY)
    assert len(TRACES) == before


def test_ffmpeg_gets_every_frame_and_the_held_one_again(tmp_path, monkeypatch):
    put_ffmpeg(
        tmp_path, monkeypatch, "open(sys.argv[-1], 'w').write(f\"{sys.argv[sys.argv.index('-s') + 1]} {len(raw)}\")"
    )
    files = animate(FLOWS[1], points(1), tmp_path / "flow", frames=3, fps=10, hold=0.6, key=KEY)
    assert [path.name for path in files] == ["flow.gif", "flow.mp4"]
    size, length = files[1].read_text().split()
    width, height = map(int, size.split("x"))
    assert width % 2 == height % 2 == 0
    assert int(length) == (3 + 1 + 7) * width * height * 3


def test_a_failing_ffmpeg_is_a_warning(tmp_path, monkeypatch):
    put_ffmpeg(tmp_path, monkeypatch, "sys.exit('no such codec')")
    frames = [np.zeros((5, 7, 3), np.uint8)] * 2
    with pytest.warns(UserWarning, match="no such codec"):
        assert write_mp4(tmp_path / "flow.mp4", frames, [0.1, 0.1], 10) is None
    assert os.listdir(tmp_path) == ["ffmpeg"]


# Errors.


def test_other_dimensions_have_no_picture(tmp_path):
    flow, data = standardizing(3), points(3)
    with pytest.raises(ValueError, match=r"\(1,\) or \(2,\).*\(3,\).*plot two"):
        figure(flow, data, key=KEY)
    with pytest.raises(ValueError, match=r"\(1,\) or \(2,\).*\(3,\).*plot two"):
        animate(flow, data, tmp_path / "flow", key=KEY)
    with pytest.raises(ValueError, match="these have 3"):
        picture_of_samples(data)


def test_galleries_are_of_flows_in_the_plane():
    with pytest.raises(ValueError, match=r"\(2,\); line has \(1,\)"):
        gallery([Entry("line", FLOWS[1], points(1))], key=KEY)
    with pytest.raises(ValueError, match="0 entries"):
        gallery([], key=KEY)


def test_data_must_fit_the_flow():
    with pytest.raises(ValueError, match=r"\(n, 2\).*\(500, 1\)"):
        figure(FLOWS[2], points(1), key=KEY)
    with pytest.raises(ValueError, match="finite"):
        figure(FLOWS[2], points(2) * np.float32(np.nan), key=KEY)


def test_what_does_not_move_is_not_filmed(tmp_path):
    with pytest.raises(ValueError, match="nothing moves"):
        animate(standardizing(2), points(2), tmp_path / "flow", key=KEY)


@pytest.mark.parametrize("wrong", [{"frames": 1}, {"fps": 0}, {"fps": 99}, {"hold": -1.0}])
def test_wrong_numbers_of_an_animation(wrong, tmp_path):
    with pytest.raises(ValueError, match="need frames"):
        animate(FLOWS[2], points(2), tmp_path / "flow", key=KEY, **wrong)
