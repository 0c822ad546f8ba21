"""A flow in the plane: data, samples, density and vector field."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from ffjord.flow import Flow
from ffjord.report.field import velocity
from ffjord.report.grid import Extent, density_on_grid, extent_of, grid_points
from ffjord.report.style import DATA, INK, MODEL, add_panel, add_scale, draw_density, draw_points, new_figure

_GRID = 192
_ARROWS = 40


def figure_of_plane(
    flow: Flow, data: np.ndarray, title: str | None, extent: Extent | None, key: PRNGKeyArray
) -> Figure:
    samples = np.asarray(flow.sample(min(max(len(data), 1000), 10_000), key=key))
    extent = extent or extent_of(data, samples)
    density = density_on_grid(flow, extent, size=_GRID)
    page, panels = _row_of_panels(("data", "samples", "density", "vector field"), extent, title)
    draw_points(panels[0], data, DATA)
    draw_points(panels[1], samples, MODEL)
    draw_density(panels[2], density, extent)
    draw_density(panels[3], density, extent, alpha=0.45)
    _draw_field(panels[3], flow, extent)
    return page


def _row_of_panels(titles: tuple[str, ...], extent: Extent, title: str | None) -> tuple[Figure, list[Axes]]:
    side, gap, edge = 2.9, 0.18, 0.42
    top = 0.85 if title else 0.45
    page = new_figure(2 * edge + len(titles) * side + (len(titles) - 1) * gap, side + edge + top)
    boxes = [(edge + i * (side + gap), edge, side, side) for i in range(len(titles))]
    panels = [add_panel(page, box, extent, title=name) for box, name in zip(boxes, titles, strict=True)]
    for panel in panels:
        add_scale(panel, y=panel is panels[0])
    if title:
        width, height = page.get_size_inches()
        page.text(edge / width, 1 - 0.2 / height, title, color=INK, fontsize=13, va="top")
    return page, panels


def _draw_field(axes: Axes, flow: Flow, extent: Extent) -> None:
    """Streamlines of the field that acts at t = 1; for maps without time, where they put the base's circles."""
    points = grid_points(extent, _ARROWS)
    arrows = velocity(flow, points)
    if arrows is None:
        axes.set_title("circles of the base", loc="left", color=INK, fontsize=10, pad=6)
        _draw_circles(axes, flow)
        return
    x, y, u, v = (part.reshape(_ARROWS, _ARROWS) for part in (*points.T, *arrows.T))
    speed = np.hypot(u, v)
    width = 0.3 + 1.0 * speed / speed.max()
    lines = axes.streamplot(x, y, u, v, color=INK, linewidth=width, arrowsize=0.6, density=1.3)
    lines.lines.set_alpha(0.75)


def _draw_circles(axes: Axes, flow: Flow) -> None:
    angle = np.linspace(0, 2 * np.pi, 400)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    rings = np.concatenate([radius * circle for radius in np.arange(0.25, 3.01, 0.25)])
    moved = np.asarray(flow.bijection.forward(jnp.asarray(rings, flow.dtype)).value)
    axes.add_collection(LineCollection(list(moved.reshape(-1, 400, 2)), colors=INK, linewidths=0.5, alpha=0.7))
