"""A density from any picture: dark pixels are likely."""

from pathlib import Path

import numpy as np

from ffjord.errors import InputError


class Picture:
    """The darkness of a picture's pixels as an unnormalised density over [-4, 4] × [-4, 4].

    The longer side spans the square; a sample is a pixel drawn by its darkness plus a uniform offset inside of it, so
    that the density is piecewise constant. Transparent pixels count as white.
    """

    def __init__(self, path: str | Path, *, max_side: int = 512):
        darkness = _darkness(Path(path), max_side)
        if not darkness.any():
            raise InputError(f"--image {path}: the picture is all white; it has no dark pixels to draw points from.")
        self.shape = darkness.shape
        self.cumulative = np.cumsum(darkness.ravel(), dtype=np.float64)
        self.cumulative /= self.cumulative[-1]

    def __call__(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """n points, shape (n, 2)."""
        rows, columns = np.divmod(np.searchsorted(self.cumulative, rng.random(n), side="right"), self.shape[1])
        across = columns + rng.random(n) - self.shape[1] / 2
        up = self.shape[0] / 2 - rows - rng.random(n)
        return np.stack([across, up], axis=1) * (8 / max(self.shape))


def _darkness(path: Path, max_side: int) -> np.ndarray:
    """1 - grey level, as a (rows, columns) array."""
    from PIL import Image, UnidentifiedImageError

    if not path.is_file():
        raise InputError(f"--image {path}: there is no such file.")
    try:
        with Image.open(path) as image:
            image.thumbnail((max_side, max_side))
            rgba = image.convert("RGBA")
    except (UnidentifiedImageError, OSError, Image.DecompressionBombError) as error:
        raise InputError(f"--image {path}: cannot be read as a picture ({error}); use PNG, JPEG or GIF.") from error
    white = Image.new("RGBA", rgba.size, "white")
    grey = np.asarray(Image.alpha_composite(white, rgba).convert("L"), np.float64)
    return 1 - grey / 255
