"""Samples against data: histograms of the columns, and two columns at a time."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ffjord.report.grid import Extent, extent_of
from ffjord.report.marginals import compare
from ffjord.report.style import DATA, INK, MODEL, MUTED, add_panel, add_scale, draw_points, new_figure

MOST_PAIRED, MOST_SHOWN = 6, 30
"""Columns in a pair plot, and among the histograms: of more, those that differ most."""
_ACROSS = 6
_WIDTH, _HEIGHT, _SIDE = 1.75, 1.0, 1.45
_EDGE, _GAP, _HEAD, _FOOT = 0.42, 0.16, 0.55, 0.35
_LINE = 0.5
"""Room between rows of histograms for their titles and numbers."""


def draw_marginals(
    data: Float[np.ndarray, "n d"], samples: Float[np.ndarray, "m d"], names: Sequence[str] | None = None
) -> Figure:
    """Histograms of every column, the data's filled and the samples' as a line, with Kolmogorov-Smirnov distances."""
    columns, distance = _most_different(data, samples, MOST_SHOWN)
    across = min(_ACROSS, len(columns))
    rows = -(-len(columns) // across)
    scale = 2.4 if len(columns) <= 2 else 1.0
    width, height = scale * _WIDTH, scale * _HEIGHT
    page = _page(across * (width + _GAP), rows * (height + _LINE) - 0.15, _shown(columns, data))
    for i, j in enumerate(columns):
        row, column = divmod(i, across)
        box = (_EDGE + column * (width + _GAP), _FOOT + (rows - 1 - row) * (height + _LINE), width, height)
        axes = add_panel(page, box)
        axes.set_title(_name(names, j), loc="left", color=INK, fontsize=7, pad=3)
        axes.set_title(f"{distance[j]:.3f}", loc="right", color=MUTED, fontsize=7, pad=3)
        _draw_both(axes, data[:, j], samples[:, j])
        add_scale(axes)
    return page


def draw_pairs(
    data: Float[np.ndarray, "n d"], samples: Float[np.ndarray, "m d"], names: Sequence[str] | None = None
) -> Figure:
    """Two columns at a time: the data above the diagonal, the samples below it, both along it."""
    columns, _ = _most_different(data, samples, MOST_PAIRED)
    side = _SIDE * (1.8 if len(columns) <= 2 else 1.0)
    page = _page(len(columns) * (side + _GAP), len(columns) * (side + _GAP), _shown(columns, data))
    extents = [extent_of(data[:, [j]], samples[:, [j]], outside=0.002) for j in columns]
    for row, j in enumerate(columns):
        for column, k in enumerate(columns):
            box = (_EDGE + column * (side + _GAP), _FOOT + (len(columns) - 1 - row) * (side + _GAP), side, side)
            if row == column:
                axes = add_panel(page, box, extents[row])
                _draw_both(axes, data[:, j], samples[:, j], extents[row])
                axes.text(0.04, 0.95, _name(names, j), color=INK, fontsize=7, va="top", transform=axes.transAxes)
            else:
                low, high = zip(extents[column], extents[row], strict=True)
                axes = add_panel(page, box, Extent(np.concatenate(low), np.concatenate(high)))
                cloud, colour = (data, DATA) if column > row else (samples, MODEL)
                draw_points(axes, cloud[:, [k, j]], colour, size=1.5 if len(cloud) > 1000 else 4.0)
            add_scale(axes, x=row == len(columns) - 1, y=column == 0 and row > 0)
    return page


def _most_different(data: np.ndarray, samples: np.ndarray, most: int) -> tuple[list[int], np.ndarray]:
    """All columns in their order, or the most different first; and the distances."""
    distance = compare(data, samples).distance
    if len(distance) <= most:
        return list(range(len(distance))), distance
    return np.argsort(-distance, kind="stable")[:most].tolist(), distance


def _page(width: float, height: float, note: str) -> Figure:
    page = new_figure(2 * _EDGE + max(width, 4.2) - _GAP, _FOOT + height + _HEAD - _GAP)
    across, up = page.get_size_inches()
    top = 1 - 0.2 / up
    page.text(_EDGE / across, top, "data", color=DATA, fontsize=10, va="top")
    page.text((_EDGE + 0.5) / across, top, "samples", color=MODEL, fontsize=10, va="top")
    page.text(1 - _EDGE / across, top, note, color=MUTED, fontsize=8, va="top", ha="right")
    return page


def _shown(columns: list[int], data: np.ndarray) -> str:
    many = data.shape[1] > len(columns)
    return f"the {len(columns)} most different of {data.shape[1]} columns" if many else ""


def _draw_both(axes: Axes, data: np.ndarray, samples: np.ndarray, extent: Extent | None = None) -> None:
    """Two histograms, scaled as densities."""
    extent = extent or extent_of(data[:, None], samples[:, None], outside=0.002)
    bins = int(np.clip(2 * len(data) ** (1 / 3), 8, 60))
    edges = np.linspace(extent.low[0], extent.high[0], bins + 1)
    heights = [np.histogram(x, edges)[0] / (len(x) * np.diff(edges)) for x in (data, samples)]
    axes.stairs(heights[0], edges, fill=True, color=DATA, alpha=0.4, linewidth=0)
    axes.stairs(heights[1], edges, color=MODEL, linewidth=1.1)
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(0, 1.25 * max(np.max(heights), np.finfo(float).tiny))


def _name(names: Sequence[str] | None, column: int) -> str:
    return f"x{column + 1}" if names is None else names[column]
