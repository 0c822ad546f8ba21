"""One look for every picture: dark panels, light type, blue-green for data and warm colours for the model."""

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PathCollection
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator

from ffjord.report.grid import Extent, brightest

PAGE, PANEL = "#12111c", "#0a0912"
INK, MUTED = "#f1eff7", "#8f8ca6"
DATA, MODEL = "#74dbd0", "#ffb27a"
THIRD = "#c49bff"
"""Where there is something beside data and model."""
GLOW = LinearSegmentedColormap.from_list(
    "glow", [PANEL, "#1d1442", "#50127b", "#8f2a81", "#cd4071", "#f66e5c", "#feaf78", "#fcf3c4"]
)
"""Magma, with the panel's colour for a density of zero."""


def new_figure(width: float, height: float, *, dpi: int = 150) -> Figure:
    """A figure of its own, outside of pyplot's care."""
    figure = Figure(figsize=(width, height), dpi=dpi, facecolor=PAGE)
    FigureCanvasAgg(figure)
    return figure


def add_panel(
    figure: Figure,
    box: tuple[float, float, float, float],
    extent: Extent | None = None,
    *,
    title: str = "",
    colour: str = INK,
) -> Axes:
    """A dark panel without frame or ticks: `box` is (left, bottom, width, height) in inches."""
    width, height = figure.get_size_inches()
    axes = figure.add_axes((box[0] / width, box[1] / height, box[2] / width, box[3] / height), facecolor=PANEL)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    if title:
        axes.set_title(title, loc="left", color=colour, fontsize=10, pad=6)
    if extent is not None:
        axes.set_xlim(extent.low[0], extent.high[0])
    if extent is not None and len(extent.low) == 2:
        axes.set_ylim(extent.low[1], extent.high[1])
    return axes


def add_scale(axes: Axes, *, x: bool = True, y: bool = False) -> None:
    """A few quiet numbers along an axis."""
    axes.tick_params(length=0, labelsize=7, labelcolor=MUTED, pad=4)
    if x:
        axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    if y:
        axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))


def draw_points(
    axes: Axes, x: Float[np.ndarray, "n 2"], colour: str, *, size: float = 1.2, most: int = 10_000
) -> PathCollection:
    """Points, fainter the more there are."""
    x = x[:most]
    alpha = float(np.clip(60 / np.sqrt(len(x)), 0.25, 0.9))
    return axes.scatter(x[:, 0], x[:, 1], s=size, c=colour, alpha=alpha, linewidths=0, rasterized=True)


def draw_density(
    axes: Axes, density: Float[np.ndarray, "rows columns"], extent: Extent, *, dim: float = 1
) -> AxesImage:
    """A density as light, `dim` times darker than could be."""
    box = (extent.low[0], extent.high[0], extent.low[1], extent.high[1])
    norm = PowerNorm(0.75, 0, dim * brightest(density))
    return axes.imshow(density, GLOW, norm, origin="lower", extent=box, aspect="auto", interpolation="bicubic")


def draw_title(figure: Figure, title: str | None, left: float) -> None:
    """The figure's own title, `left` inches from its edge."""
    width, height = figure.get_size_inches()
    figure.text(left / width, 1 - 0.22 / height, title or "", color=INK, fontsize=13, va="top")


def draw_histogram(
    axes: Axes, x: Float[np.ndarray, " n"], extent: Extent, colour: str, *, alpha: float = 0.35, upright: bool = True
) -> Float[np.ndarray, " bins"]:
    """A histogram scaled as a density; if not upright, it grows to the right. Returns its heights."""
    heights, edges = np.histogram(x, 80, (extent.low[0], extent.high[0]))
    heights = heights / (len(x) * np.diff(edges))
    orientation = "vertical" if upright else "horizontal"
    axes.stairs(heights, edges, fill=True, color=colour, alpha=alpha, linewidth=0, orientation=orientation)
    return heights
