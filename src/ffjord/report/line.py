"""A flow on the line: its density over the time, as in Figure 1 of the paper."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from ffjord.flow import Flow
from ffjord.report.evaluate import at_all, density_on_grid, samples_at
from ffjord.report.grid import Extent, extent_of, grid_points
from ffjord.report.style import (
    DATA,
    INK,
    MODEL,
    MUTED,
    add_panel,
    add_scale,
    draw_density,
    draw_histogram,
    draw_title,
    new_figure,
)

CELLS = 512
_TIMES = 61
_PATHS = 40
_TITLES = {"base": INK, "density over time": INK, "data": DATA}


class OverTime(NamedTuple):
    """The density of a flow on a line, and the paths of some samples, at times from the base (0) to the data (1)."""

    times: Float[np.ndarray, " k"]
    x: Float[np.ndarray, " cells"]
    density: Float[np.ndarray, "k cells"]
    paths: Float[np.ndarray, "k n"]
    extent: Extent


def figure_of_line(flow: Flow, data: np.ndarray, title: str | None, extent: Extent | None, key: PRNGKeyArray) -> Figure:
    """The base's density on the left, its way through time in the middle, the learned density on the right."""
    return draw_line(over_time(flow, data, extent, key=key), data, title)


def over_time(flow: Flow, data: np.ndarray, extent: Extent | None = None, *, key: PRNGKeyArray) -> OverTime:
    """What there is to draw: on an extent that holds data and samples, if none is given."""
    times = np.linspace(0, 1, _TIMES)
    paths = _spread(np.stack(list(at_all(times, lambda t: samples_at(flow, 16 * _PATHS, time=t, key=key)))))
    extent = extent or extent_of(data, paths[0, :, None], paths[-1, :, None])
    density = np.stack(list(at_all(times, lambda t: density_on_grid(flow, extent, size=CELLS, time=t))))
    return OverTime(times, grid_points(extent, CELLS)[:, 0], density, paths, extent)


def draw_line(
    found: OverTime, data: np.ndarray, title: str | None = None, *, truth: Float[np.ndarray, " cells"] | None = None
) -> Figure:
    """The figure; with `truth`, the data's own density at `found.x`, that is drawn too."""
    extent = found.extent
    page, (left, middle, right) = _panels(extent, title)
    _draw_profile(left, found.x, found.density[0], INK)
    box = Extent(np.array([0, extent.low[0]]), np.array([1, extent.high[0]]))
    draw_density(middle, found.density.T, box, dim=1.15)
    _draw_paths(middle, found.times, found.paths)
    draw_histogram(right, data[:, 0], extent, DATA, upright=False)
    _draw_profile(right, found.x, found.density[-1], MODEL)
    if truth is not None:
        right.plot(truth, found.x, color=DATA, linewidth=1.0, linestyle=(0, (4, 2)))
    left.invert_xaxis()
    return page


def _panels(extent: Extent, title: str | None) -> tuple[Figure, list[Axes]]:
    height, edge, side, middle, gap = 3.6, 0.42, 1.5, 6.0, 0.08
    top = 0.85 if title else 0.45
    page = new_figure(2 * edge + 2 * (side + gap) + middle, height + edge + top)
    starts = np.cumsum([edge, side + gap, middle + gap])
    panels = [
        add_panel(page, (start, edge, width, height), title=name, colour=colour)
        for start, width, (name, colour) in zip(starts, (side, middle, side), _TITLES.items(), strict=True)
    ]
    panels[2].set_title("model", loc="right", color=MODEL, fontsize=10, pad=6)
    for panel in panels:
        panel.set_ylim(extent.low[0], extent.high[0])
    add_scale(panels[0], x=False, y=True)
    panels[1].set_xlim(0, 1)
    panels[1].set_xticks([0, 0.5, 1], ["t = 0", "0.5", "t = 1"])
    panels[1].tick_params(length=0, labelsize=7, labelcolor=MUTED, pad=4)
    draw_title(page, title, edge)
    return page, panels


def _draw_profile(
    axes: Axes, z: Float[np.ndarray, " cells"], density: Float[np.ndarray, " cells"], colour: str
) -> None:
    """A density as a curve that grows to the right."""
    axes.fill_betweenx(z, 0, density, color=colour, alpha=0.12, linewidth=0)
    axes.plot(density, z, color=colour, linewidth=1.3)
    axes.set_xlim(0, 1.12 * max(axes.get_xlim()[1] / 1.12, density.max()))


def _spread(paths: Float[np.ndarray, "k many 1"]) -> Float[np.ndarray, "k n"]:
    """One path in 16, evenly spread over the base, as a few drawn by chance seldom are."""
    return paths[:, np.argsort(paths[0, :, 0])[8::16], 0]


def _draw_paths(axes: Axes, times: Float[np.ndarray, " k"], paths: Float[np.ndarray, "k n"]) -> None:
    lines = [np.stack([times, path], axis=-1) for path in paths.T]
    axes.add_collection(LineCollection(lines, colors=INK, linewidths=0.6, alpha=0.5))
