"""What an animation shows: a figure whose parts move with the time."""

import abc

import numpy as np
from jaxtyping import Float
from matplotlib.artist import Artist
from matplotlib.figure import Figure

from ffjord.report.grid import Extent, brightest, grid_points
from ffjord.report.style import (
    DATA,
    INK,
    MODEL,
    MUTED,
    add_panel,
    draw_density,
    draw_histogram,
    draw_points,
    new_figure,
)

_DPI = 100
_EDGE, _GAP, _HEAD, _FOOT = 0.2, 0.15, 0.4, 0.5


class AbstractScene(abc.ABC):
    """A figure, the artists that move in it, and how they get to another time."""

    figure: Figure
    moving: list[Artist]

    @abc.abstractmethod
    def move(self, time: float, density: Float[np.ndarray, "*cells"], x: Float[np.ndarray, "n d"]) -> None:
        """Shows a density and samples of it."""


class PlaneScene(AbstractScene):
    """The density as light on the left, samples on the right."""

    def __init__(self, extent: Extent):
        side = 3.7
        self.figure = new_figure(2 * _EDGE + 2 * side + _GAP, side + _FOOT + _HEAD, dpi=_DPI)
        left = add_panel(self.figure, (_EDGE, _FOOT, side, side), extent, title="density")
        right = add_panel(self.figure, (_EDGE + side + _GAP, _FOOT, side, side), extent, title="samples", colour=MODEL)
        self.image = draw_density(left, np.ones((2, 2)), extent)
        self.points = draw_points(right, np.zeros((2000, 2)), MODEL, size=3.0)
        self.clock = Clock(self.figure)
        self.moving = [self.image, self.points, *self.clock.moving]

    def move(self, time: float, density: Float[np.ndarray, "*cells"], x: Float[np.ndarray, "n d"]) -> None:
        self.image.set_data(density)
        self.image.set_clim(0, brightest(density))
        self.points.set_offsets(x)
        self.clock.move(time)


class LineScene(AbstractScene):
    """The density as a curve over the data's histogram, samples on the floor."""

    def __init__(self, extent: Extent, data: Float[np.ndarray, "n 1"], highest: float):
        width, height, floor = 7.2, 3.0, 0.45
        self.figure = new_figure(width + 2 * _EDGE, _FOOT + floor + height + _HEAD, dpi=_DPI)
        above, below = (_EDGE, _FOOT + floor, width, height), (_EDGE, _FOOT, width, floor)
        axes = add_panel(self.figure, above, extent, title="density and samples", colour=MODEL)
        axes.set_title("data", loc="right", color=DATA, fontsize=10, pad=6)
        heights = draw_histogram(axes, data[:, 0], extent, DATA)
        axes.set_ylim(0, 1.1 * max(heights.max(), highest))
        (self.curve,) = axes.plot([0], [0], color=MODEL, linewidth=1.8)
        (self.area,) = axes.fill([0], [0], color=MODEL, alpha=0.15, linewidth=0)
        ground = add_panel(self.figure, below, extent)
        ground.set_ylim(-1.3, 1.3)
        self.points = draw_points(ground, np.zeros((1000, 2)), MODEL, size=3.0)
        self.extent, self.clock = extent, Clock(self.figure)
        self.moving = [self.area, self.curve, self.points, *self.clock.moving]

    def move(self, time: float, density: Float[np.ndarray, "*cells"], x: Float[np.ndarray, "n d"]) -> None:
        z = grid_points(self.extent, len(density))[:, 0]
        self.curve.set_data(z, density)
        self.area.set_xy(np.stack([[z[0], *z, z[-1]], [0, *density, 0]], axis=-1))
        scatter = np.random.default_rng(0).uniform(-1, 1, len(x))  # so that samples of one place can be told apart
        self.points.set_offsets(np.stack([x[:, 0], scatter], axis=-1))
        self.clock.move(time)


class Clock:
    """The time, as a number and as a thin bar that fills from the base to the data."""

    def __init__(self, figure: Figure):
        width = figure.get_figwidth() - 2 * _EDGE
        axes = add_panel(figure, (_EDGE, 0.15, width, 0.2))
        axes.set(xlim=(0, width), ylim=(-1, 1), facecolor="none")
        self.start, self.end = 0.65, width
        axes.plot([self.start, self.end], [0, 0], color=MUTED, alpha=0.3, linewidth=1.5, solid_capstyle="butt")
        (self.bar,) = axes.plot([], [], color=INK, linewidth=1.5, solid_capstyle="butt")
        self.label = axes.text(0, 0, "", color=INK, fontsize=9, va="center_baseline")
        self.moving = [self.bar, self.label]

    def move(self, time: float) -> None:
        self.bar.set_data([self.start, self.start + time * (self.end - self.start)], [0, 0])
        self.label.set_text(f"t = {time:.2f}")
