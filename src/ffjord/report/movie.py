"""Frames into files: GIF always, MP4 where ffmpeg is installed."""

import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from matplotlib.colors import LinearSegmentedColormap
from PIL import Image

from ffjord.arrays import atomic_file
from ffjord.report.style import DATA, GLOW, INK, MODEL, PAGE, PANEL

Frame = UInt8[np.ndarray, "_ _ 3"]


def write_gif(
    path: Path, frames: Sequence[Frame], durations: Sequence[float], palette: Image.Image | None = None
) -> Path:
    """A GIF that loops for ever; frame i stays for `durations[i]` seconds. The style has a palette of its own."""
    palette = palette or _palette()
    images = [Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    milliseconds = [round(100 * seconds) * 10 for seconds in durations]  # GIF counts hundredths of a second
    with atomic_file(path) as file:
        images[0].save(
            file, "GIF", save_all=True, append_images=images[1:], duration=milliseconds, loop=0, optimize=False
        )
    return path


def write_mp4(path: Path, frames: Sequence[Frame], durations: Sequence[float], fps: int) -> Path | None:
    """An MP4 by ffmpeg, or None (with a warning, if ffmpeg is there but fails)."""
    program = shutil.which("ffmpeg")
    if program is None:
        return None
    repeats = [max(1, round(seconds * fps)) for seconds in durations]
    raw = b"".join(_even(frame).tobytes() * n for frame, n in zip(frames, repeats, strict=True))
    height, width, _ = _even(frames[0]).shape
    source = f"-f rawvideo -pix_fmt rgb24 -s {width}x{height} -r {fps} -i -".split()
    target = ["-an", "-pix_fmt", "yuv420p", "-b:v", "3M", "-movflags", "+faststart", "-f", "mp4"]
    with tempfile.TemporaryDirectory() as directory:
        film = Path(directory) / "film.mp4"
        done = subprocess.run([program, "-loglevel", "error", *source, *target, film], input=raw, capture_output=True)
        if done.returncode != 0:
            reason = done.stderr.decode(errors="replace").strip()
            warnings.warn(f"ffmpeg could not write {path.name}, so there is only the GIF: {reason}", stacklevel=2)
            return None
        with atomic_file(path) as file:
            file.write(film.read_bytes())
    return path


def _even(frame: Frame) -> Frame:
    """Cut to even sides, which common video codecs want."""
    return frame[: frame.shape[0] // 2 * 2, : frame.shape[1] // 2 * 2]


def _palette() -> Image.Image:
    """The style's own colours, the same for all frames: nothing flickers, and flat areas compress to nothing."""
    ramps = [(GLOW, 128)]
    # What is drawn on what; the last is the model's curve on the data's histogram.
    pairs = ((PANEL, MODEL, 32), (PANEL, DATA, 24), (PANEL, INK, 16), (PAGE, INK, 24), ("#2f524f", MODEL, 24))
    for start, end, count in pairs:
        ramps.append((LinearSegmentedColormap.from_list("ramp", [start, end]), count))
    colours = np.concatenate([ramp(np.linspace(0, 1, count))[:, :3] for ramp, count in ramps])
    image = Image.new("P", (1, 1))
    image.putpalette(np.round(255 * colours).astype(np.uint8).tobytes())
    return image
