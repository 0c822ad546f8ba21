"""Samples on their way from noise to images, as a film."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from jaxtyping import PRNGKeyArray
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from PIL import Image

from ffjord.flow import Flow
from ffjord.report.evaluate import at_all, for_pictures
from ffjord.report.field import moves
from ffjord.report.images import images_at
from ffjord.report.mosaic import Images, columns_for, mosaic, new_page, scale_of, show
from ffjord.report.movie import Frame, write_gif, write_mp4
from ffjord.report.scenes import Clock
from ffjord.report.style import INK, MODEL, PAGE

_DPI, _SIDE = 100, 76.0
_EDGE, _HEAD, _FOOT = 20, 40, 50


def animate_images(
    flow: Flow,
    path_stem: str | Path,
    *,
    levels: int,
    n: int,
    temperature: float = 1.0,
    frames: int = 60,
    fps: int = 20,
    hold: float = 1.2,
    progress: Callable[[int, int], None] | None = None,
    key: PRNGKeyArray,
) -> list[Path]:
    """Films n samples on their way from the base (t = 0) to the data (t = 1), as pixels at every time.

    **Arguments:**

    - `path_stem`: where to write, without suffix: `PATH.gif`, and `PATH.mp4` where ffmpeg is installed.
    - `levels`: how many grey levels the data have. `temperature`: T, of z ~ N(0, T²).
    - `frames`, `fps`: number of frames, and how many a second.
    - `hold`: seconds that the last frame stays; the first stays for a third of it.
    - `progress`: called with the number of frames done and the number of all.

    **Returns:** the files written.
    """
    if n < 1 or frames < 2 or not 1 <= fps <= 50 or hold < 0:
        raise ValueError(
            f"need n >= 1, frames >= 2, fps in 1 ... 50, hold >= 0; got n={n}, frames={frames}, fps={fps}, hold={hold}."
        )
    if not moves(flow):
        raise ValueError("this flow has no continuous part, so nothing moves; use a picture of its samples instead.")
    flow, times, film = for_pictures(flow), np.linspace(0, 1, frames), []
    scene = _Scene(flow.event_shape, n, levels, f"samples, T = {temperature:g}")
    images = at_all(times, lambda t: images_at(flow, n, time=t, temperature=temperature, key=key))
    for time, x in zip(times, images, strict=True):
        film.append(scene.at(time, x))
        if progress is not None:
            progress(len(film), frames)
    durations = [hold / 3 + 1 / fps, *[1 / fps] * (frames - 2), hold + 1 / fps]
    return _write(Path(path_stem), film, durations, fps)


class _Scene:
    """A page with images and the time."""

    def __init__(self, shape: tuple[int, ...], n: int, levels: int, title: str):
        self.columns, self.levels, self.scale = columns_for(n, 1.5), levels, scale_of(shape, _SIDE)
        tiles = self._tiles(np.zeros((n, *shape)))
        height, width = tiles.shape[:2]
        self.figure = new_page(width + 2 * _EDGE, height + _FOOT + _HEAD, dpi=_DPI)
        (self.image,) = show(self.figure, tiles, _EDGE, _FOOT, title=title, colour=MODEL).images
        self.clock, self.canvas = Clock(self.figure), FigureCanvasAgg(self.figure)

    def at(self, time: float, x: Images) -> Frame:
        self.image.set_data(self._tiles(x))
        self.clock.move(time)
        self.canvas.draw()
        return np.asarray(self.canvas.buffer_rgba())[..., :3].copy()

    def _tiles(self, x: Images) -> Frame:
        return mosaic(x, levels=self.levels, columns=self.columns, scale=self.scale)


def _write(stem: Path, frames: list[Frame], durations: list[float], fps: int) -> list[Path]:
    stem.parent.mkdir(parents=True, exist_ok=True)
    gif, mp4 = stem.with_name(stem.name + ".gif"), stem.with_name(stem.name + ".mp4")
    shown = np.concatenate([frame[_HEAD:-_FOOT] for frame in (frames[0], frames[-1])])
    write_gif(gif, frames, durations, _palette(shown))
    film = write_mp4(mp4, frames, durations, fps)
    return [gif] if film is None else [gif, film]


def _palette(images: Frame) -> Image.Image:
    """Colours of the images' own, and some for the words on the page."""
    ramps = [LinearSegmentedColormap.from_list("ramp", [PAGE, end]) for end in (INK, MODEL)]
    words = np.round(255 * np.concatenate([ramp(np.linspace(0, 1, 16))[:, :3] for ramp in ramps])).astype(np.uint8)
    count = 256 - len(words)
    own = Image.fromarray(images).quantize(count).getpalette() or []
    palette = Image.new("P", (1, 1))
    palette.putpalette(bytes(own[: 3 * count]) + words.tobytes())
    return palette
