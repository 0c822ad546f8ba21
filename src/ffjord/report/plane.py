"""A flow in the plane: data, samples, density and vector field."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from ffjord.flow import Flow
from ffjord.report.evaluate import density_on_grid, samples_at
from ffjord.report.field import velocity
from ffjord.report.grid import Extent, extent_of, grid_points
from ffjord.report.style import (
    DATA,
    INK,
    MODEL,
    add_panel,
    add_scale,
    draw_density,
    draw_points,
    draw_title,
    new_figure,
)

_GRID = 192
_ARROWS = 40
_MOST_POINTS = 10_000
_TITLES = {"data": DATA, "samples": MODEL, "density": INK, "vector field": INK}
_BREATH = LinearSegmentedColormap.from_list("breath", ["#4a4763", INK])
"""From slow to fast."""


def figure_of_plane(
    flow: Flow, data: np.ndarray, title: str | None, extent: Extent | None, key: PRNGKeyArray
) -> Figure:
    """Four panels in a row: data, samples, density, vector field."""
    samples = samples_at(flow, min(max(len(data), 1000), _MOST_POINTS), key=key)
    extent = extent or extent_of(data, samples)
    density = density_on_grid(flow, extent, size=_GRID)
    page, panels = _panels(extent, title)
    draw_points(panels[0], data, DATA, most=_MOST_POINTS)
    draw_points(panels[1], samples, MODEL)
    draw_density(panels[2], density, extent)
    draw_density(panels[3], density, extent, dim=2.5)
    _draw_field(panels[3], flow, extent)
    return page


def _panels(extent: Extent, title: str | None) -> tuple[Figure, list[Axes]]:
    side, gap, edge = 2.9, 0.18, 0.42
    page = new_figure(2 * edge + 4 * side + 3 * gap, side + edge + (0.85 if title else 0.45))
    panels = [
        add_panel(page, (edge + i * (side + gap), edge, side, side), extent, title=name, colour=colour)
        for i, (name, colour) in enumerate(_TITLES.items())
    ]
    for panel in panels:
        add_scale(panel, y=panel is panels[0])
    draw_title(page, title, edge)
    return page, panels


def _draw_field(axes: Axes, flow: Flow, extent: Extent) -> None:
    """Streamlines of the field that acts at t = 1; for maps without time, where they put the base's circles."""
    points = grid_points(extent, _ARROWS)
    arrows = velocity(flow, points)
    if arrows is None:
        axes.set_title("circles of the base", loc="left", color=INK, fontsize=10, pad=6)
        _draw_circles(axes, flow)
    else:
        _draw_streams(axes, points, arrows)


def _draw_streams(axes: Axes, points: Float[np.ndarray, "n 2"], arrows: Float[np.ndarray, "n 2"]) -> None:
    """Streamlines, the brighter and the broader the faster."""
    x, y, u, v = (part.reshape(_ARROWS, _ARROWS) for part in (*points.T, *arrows.T))
    speed = np.hypot(u, v)
    if not speed.max() > 0:
        return
    speed /= speed.max()
    axes.streamplot(x, y, u, v, color=speed, cmap=_BREATH, linewidth=0.3 + 0.7 * speed, arrowsize=0.5, density=1.5)


def _draw_circles(axes: Axes, flow: Flow) -> None:
    """Circles of growing radius around the base's middle, mapped to the data."""
    angle = np.linspace(0, 2 * np.pi, 400)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    rings = np.concatenate([radius * circle for radius in np.arange(0.25, 3.01, 0.25)])
    moved = np.asarray(flow.bijection.forward(jnp.asarray(rings, flow.dtype)).value)
    lines = LineCollection(list(moved.reshape(-1, 400, 2)), colors=INK, linewidths=0.5, alpha=0.7)
    axes.add_collection(lines, autolim=False)
