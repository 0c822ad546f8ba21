"""Images side by side, with crisp pixels and their own grey levels."""

import math

import numpy as np
from jaxtyping import Array, Float, UInt8
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from ffjord.report.style import INK, MODEL, PAGE, add_panel, new_figure

Images = Float[Array | np.ndarray, "n h w c"]
Mosaic = UInt8[np.ndarray, "_ _ 3"]

GAP = 3
"""Pixels between images."""
_DPI = 150
_SIDE = 88.0
_EDGE = 30


def in_levels(x: Images, levels: int) -> UInt8[np.ndarray, "n h w c"]:
    """v = ⌊L x⌋ within 0 … L-1: images in [0, 1) as the bytes that data of L grey levels have."""
    if not 2 <= levels <= 256:
        raise ValueError(f"levels must be from 2 to 256, for bytes; got {levels}.")
    x = np.asarray(x)
    if np.isnan(x).any():
        raise ValueError("images must be numbers; got NaN.")
    return np.clip(np.floor(x * levels), 0, levels - 1).astype(np.uint8)


def mosaic(x: Images, *, levels: int, columns: int, scale: int = 1) -> Mosaic:
    """Images row by row, each pixel a square of `scale` × `scale`; of one channel in grey, of three in colour."""
    if x.shape[-1] not in (1, 3):
        raise ValueError(f"images with 1 channel (grey) or 3 (red, green, blue) can be shown; got {x.shape[-1]}.")
    light = np.round(in_levels(x, levels) * (255 / (levels - 1))).astype(np.uint8)
    tiles = np.broadcast_to(light, (*light.shape[:3], 3)).repeat(scale, axis=1).repeat(scale, axis=2)
    n, height, width, _ = tiles.shape
    rows = -(-n // columns)
    page = np.empty((rows * (height + GAP) - GAP, columns * (width + GAP) - GAP, 3), np.uint8)
    page[:] = np.round(255 * np.array(to_rgb(PAGE)))
    for i, tile in enumerate(tiles):
        top, left = i // columns * (height + GAP), i % columns * (width + GAP)
        page[top : top + height, left : left + width] = tile
    return page


def scale_of(shape: tuple[int, ...], side: float = _SIDE) -> int:
    """How many pixels of a page a pixel of an image takes, so that the image has about the given side."""
    return max(1, round(side / max(shape[:2])))


def columns_for(n: int, ratio: float = 1.0) -> int:
    """How many images a row, for a block about `ratio` times as wide as high, never higher than wide, with few gaps."""
    wanted = math.sqrt(ratio * n)
    return min(range(math.ceil(math.sqrt(n)), n + 1), key=lambda columns: -n % columns + abs(columns - wanted))


def show(page: Figure, tiles: Mosaic, left: int, bottom: int, *, title: str = "", colour: str = INK) -> Axes:
    """Puts images on a page, so many of the page's pixels from its left and from its bottom."""
    height, width = tiles.shape[:2]
    box = (left / page.dpi, bottom / page.dpi, width / page.dpi, height / page.dpi)
    axes = add_panel(page, box, title=title, colour=colour)
    axes.imshow(tiles, interpolation="nearest", aspect="auto")
    return axes


def new_page(width: int, height: int, *, dpi: int = _DPI) -> Figure:
    """A page of so many pixels."""
    return new_figure(width / dpi, height / dpi, dpi=dpi)


def picture_of_images(x: Images, *, levels: int) -> Figure:
    """A block of images; many are shown small."""
    columns = columns_for(len(x))
    tiles = mosaic(x, levels=levels, columns=columns, scale=scale_of(x.shape[1:], min(_SIDE, 1200 / columns)))
    height, width = tiles.shape[:2]
    page = new_page(width + 2 * _EDGE, height + 2 * _EDGE)
    show(page, tiles, _EDGE, _EDGE, colour=MODEL)
    return page
