"""What the page plays of a flow in one or two dimensions: density, samples and vector field at every time."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, PRNGKeyArray, UInt8

from ffjord.divergence import Exact
from ffjord.flow import Flow
from ffjord.report.evaluate import at_all, density_on_grid, dimension_of, for_pictures, samples_at
from ffjord.report.field import moves, velocity
from ffjord.report.grid import Extent, brightest, extent_of, grid_points
from ffjord.report.page.markup import figure, packed, rounded
from ffjord.report.page.template import asset
from ffjord.report.page.view import View
from ffjord.report.subject import with_divergence

CELLS = {1: 512, 2: 96}
"""Of the density's grid, a side."""
ARROWS = {1: 24, 2: 20}
TIMES, SAMPLES, POINTS = 41, 400, 1500
_BINS = 80

Report = Callable[[int, int], None]
"""Is told how many times are done, of how many."""


class Motion(NamedTuple):
    """A flow at k times, in its own coordinates."""

    times: Float[np.ndarray, " k"]
    extent: Extent
    density: Float[np.ndarray, "k *cells"]
    """At the last time by the testing numerics of the flow itself, before by those of pictures."""
    samples: Float[np.ndarray, "k n d"]
    arrows: Float[np.ndarray, "k m d"] | None
    """dx/dt on a grid; None where nothing moves."""


def motion_of(
    flow: Flow, data: Float[np.ndarray, "n d"] | None, *, progress: Report | None = None, key: PRNGKeyArray
) -> Motion:
    """The flow from the base (t = 0) to the data (t = 1); of a flow that does not move, only the end."""
    dim, quick = dimension_of(flow), for_pictures(flow)
    times = np.linspace(0, 1, TIMES) if moves(flow) else np.ones(1)
    samples = np.stack([*at_all(times, lambda t: samples_at(quick, SAMPLES, time=t, key=key))])
    clouds = [samples[0], samples[-1], *([] if data is None else [data])]
    extent = extent_of(*clouds, margin=0.06)
    exact = with_divergence(flow, lambda cnf: Exact())
    on_grid = lambda t: density_on_grid(exact if t == 1 else quick, extent, size=CELLS[dim], time=t)
    density = []
    for one in at_all(times, on_grid):
        density.append(one)
        if progress is not None:
            progress(len(density), len(times))
    grid = grid_points(extent, ARROWS[dim])
    arrows = [velocity(flow, grid, time) for time in times]
    moving = None if arrows[0] is None else np.stack([*arrows])  # pyright: ignore[reportArgumentType, reportCallIssue]
    return Motion(times, extent, np.stack(density), samples, moving)


def motion_figure(
    flow: Flow,
    data: Float[np.ndarray, "n d"] | None,
    view: View,
    *,
    progress: Report | None = None,
    key: PRNGKeyArray,
) -> str:
    """The player of a flow in one or two dimensions."""
    found = motion_of(flow, data, progress=progress, key=key)
    kind = "line" if dimension_of(flow) == 1 else "plane"
    values = (_line if kind == "line" else _plane)(found, view)
    if data is not None:
        values |= _histogram(data, found.extent, view) if kind == "line" else _data(data, view)
    controls = asset("controls.html") if len(found.times) > 1 else ""
    return figure(kind, values, controls + asset(f"{kind}.html"), _caption(found, kind) + view.legend)


def quantized(density: Float[np.ndarray, "rows columns"]) -> tuple[UInt8[np.ndarray, "rows columns"], float]:
    """q = round(255 √(p / p_max)), and p_max: small densities keep more of their digits than large ones."""
    peak = max(float(density.max()), float(np.finfo(np.float32).tiny))
    return np.round(255 * np.sqrt(density / peak)).astype(np.uint8), peak


def _plane(found: Motion, view: View) -> dict[str, Any]:
    densities = [view.density(p) for p in found.density]
    cells, peaks = zip(*(quantized(p) for p in densities), strict=True)
    return _common(found, view) | {
        "cells": packed(np.stack(cells), "u1"),
        "peak": rounded(peaks, 9),
        "bright": rounded(brightest(p) for p in densities),
    }


def _line(found: Motion, view: View) -> dict[str, Any]:
    order = np.argsort(found.samples[0, :, 0])  # so that every tenth is a path of its own
    sorted_ = found._replace(samples=found.samples[:, order])
    return _common(sorted_, view) | {"cells": packed(view.density(found.density), "f4")}


def _common(found: Motion, view: View) -> dict[str, Any]:
    box = view.extent(found.extent)
    arrows = None if found.arrows is None else packed(view.arrows(found.arrows), "f4")
    return {
        "times": rounded(found.times),
        "low": rounded(box.low, 9),
        "high": rounded(box.high, 9),
        "samples": packed(view.points(found.samples), "f4"),
        "arrows": arrows,
    }


def _data(data: Float[np.ndarray, "n 2"], view: View) -> dict[str, Any]:
    return {"data": packed(view.points(data[:POINTS]), "f4")}


def _histogram(data: Float[np.ndarray, "n 1"], extent: Extent, view: View) -> dict[str, Any]:
    heights, edges = np.histogram(data[:, 0], _BINS, (extent.low[0], extent.high[0]))
    return {"histogram": packed(view.density(heights / (len(data) * np.diff(edges))), "f4")}


def _caption(found: Motion, kind: str) -> str:
    shown = f"{SAMPLES} samples"
    if len(found.times) == 1:
        return f"The density that the run has learnt, and {shown} of it. The model is one map, without a time."
    cells = f"{CELLS[1]} points" if kind == "line" else f"{CELLS[2]} × {CELLS[2]} points"
    return (
        f"From the base (t = 0) to the data (t = 1): the density on {cells}, {shown} on their way, and the field that "
        f"moves them, at {len(found.times)} times. The density at t = 1 is solved as in testing, the others more "
        "loosely, as pictures are."
    )
