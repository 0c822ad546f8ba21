"""A flow in motion, from the base to the data."""

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from matplotlib.backends.backend_agg import FigureCanvasAgg

from ffjord.flow import Flow
from ffjord.report.evaluate import at_all, check_data, density_on_grid, dimension_of, for_pictures, samples_at
from ffjord.report.field import moves
from ffjord.report.grid import Extent, extent_of
from ffjord.report.movie import Frame, write_gif, write_mp4
from ffjord.report.scenes import AbstractScene, LineScene, PlaneScene

_CELLS = {1: 512, 2: 96}
_SAMPLES = {1: 1024, 2: 2048}


def animate(
    flow: Flow,
    data: Float[Array | np.ndarray, "n d"],
    path_stem: str | Path,
    *,
    frames: int = 60,
    fps: int = 20,
    hold: float = 1.2,
    extent: Extent | None = None,
    progress: Callable[[int, int], None] | None = None,
    key: PRNGKeyArray,
) -> list[Path]:
    """Films the density and samples on their way from the base (t = 0) to the data (t = 1).

    **Arguments:**

    - `data`: points to compare with.
    - `path_stem`: where to write, without suffix: `PATH.gif`, and `PATH.mp4` where ffmpeg is installed.
    - `frames`, `fps`: number of frames, and how many a second.
    - `hold`: seconds that the last frame stays; the first stays for a third of it.
    - `extent`: the box to show; by default chosen from data and samples.
    - `progress`: called with the number of frames done and the number of all.

    **Returns:** the files written.
    """
    if frames < 2 or not 1 <= fps <= 50 or hold < 0:
        raise ValueError(f"need frames >= 2, fps in 1 ... 50, hold >= 0; got frames={frames}, fps={fps}, hold={hold}.")
    dimension = dimension_of(flow)
    if not moves(flow):
        raise ValueError("this flow has no continuous part, so nothing moves; use ffjord.report.figure instead.")
    flow, data, times = for_pictures(flow), check_data(flow, data), np.linspace(0, 1, frames)
    samples = list(at_all(times, lambda t: samples_at(flow, _SAMPLES[dimension], time=t, key=key)))
    extent = extent or extent_of(data, samples[0], samples[-1], margin=0.06)
    densities = at_all(times, lambda t: density_on_grid(flow, extent, size=_CELLS[dimension], time=t))
    if dimension == 2:
        scene = PlaneScene(extent)
    else:
        densities = list(densities)
        scene = LineScene(extent, data, float(np.max(densities)))
    durations = [hold / 3 + 1 / fps, *[1 / fps] * (frames - 2), hold + 1 / fps]
    return _write(Path(path_stem), _film(scene, times, densities, samples, progress), durations, fps)


def _film(
    scene: AbstractScene,
    times: np.ndarray,
    densities: Iterable[np.ndarray],
    samples: Iterable[np.ndarray],
    progress: Callable[[int, int], None] | None,
) -> list[Frame]:
    """All frames; what stands still is drawn once."""
    canvas = FigureCanvasAgg(scene.figure)
    for artist in scene.moving:
        artist.set_animated(True)
    canvas.draw()
    background = canvas.copy_from_bbox(scene.figure.bbox)
    frames = []
    for time, density, x in zip(times, densities, samples, strict=True):
        canvas.restore_region(background)
        scene.move(time, density, x)
        for artist in scene.moving:
            scene.figure.draw_artist(artist)
        frames.append(np.asarray(canvas.buffer_rgba())[..., :3].copy())
        if progress is not None:
            progress(len(frames), len(times))
    return frames


def _write(stem: Path, frames: list[Frame], durations: list[float], fps: int) -> list[Path]:
    stem.parent.mkdir(parents=True, exist_ok=True)
    gif, mp4 = stem.with_name(stem.name + ".gif"), stem.with_name(stem.name + ".mp4")
    written = [write_gif(gif, frames, durations), write_mp4(mp4, frames, durations, fps)]
    return [path for path in written if path is not None]
