"""Still pictures of flows and samples."""

import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from matplotlib.figure import Figure

from ffjord.flow import Flow
from ffjord.report.evaluate import check_data, dimension_of, for_pictures
from ffjord.report.grid import Extent, extent_of
from ffjord.report.line import figure_of_line
from ffjord.report.plane import figure_of_plane
from ffjord.report.style import MODEL, add_panel, add_scale, draw_histogram, draw_points, new_figure


def figure(
    flow: Flow,
    data: Float[Array | np.ndarray, "n d"],
    *,
    title: str | None = None,
    extent: Extent | None = None,
    key: PRNGKeyArray,
) -> Figure:
    """A flow at a glance.

    In two dimensions: the data, samples, the learned density and the vector field that ends in it. In one: the
    density on its way from the base to the data, with the paths of some samples (Figure 1 of the paper).

    **Arguments:**

    - `data`: points to compare with.
    - `title`: a line above the panels.
    - `extent`: the box to show; by default chosen from data and samples.
    """
    draw = figure_of_line if dimension_of(flow) == 1 else figure_of_plane
    return draw(for_pictures(flow), check_data(flow, data), title, extent, key)


def picture_of_samples(x: Float[Array | np.ndarray, "n d"], *, title: str | None = None) -> Figure:
    """Points in the plane, or a histogram of numbers."""
    x = np.asarray(x)
    if x.shape[1] not in (1, 2):
        raise ValueError(
            f"samples with 1 or 2 coordinates have a picture; these have {x.shape[1]}. Save them as numbers instead, "
            "or pass two of their columns."
        )
    extent = extent_of(x)
    page = new_figure(5.6, 3.6 if x.shape[1] == 1 else 5.6)
    top = 0.45 if title else 0.2
    width, height = page.get_size_inches()
    axes = add_panel(page, (0.4, 0.4, width - 0.6, height - 0.4 - top), extent, title=title or "")
    if x.shape[1] == 1:
        draw_histogram(axes, x[:, 0], extent, MODEL, alpha=0.85)
    else:
        draw_points(axes, x, MODEL, size=2.0, most=100_000)
    add_scale(axes, y=x.shape[1] == 2)
    return page
