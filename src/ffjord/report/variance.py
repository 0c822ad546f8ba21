"""What an estimate of the trace costs a log-density: its spread over the noise, against the products it takes."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from ffjord.bijections import CNF, continuous_parts
from ffjord.divergence import AbstractDivergence, Hutchinson, HutchPlusPlus, Orthogonal, automatic
from ffjord.flow import Flow
from ffjord.report.style import DATA, MODEL, MUTED, add_panel, new_figure
from ffjord.report.subject import with_divergence

ESTIMATORS: dict[str, Callable[[int], AbstractDivergence]] = {
    "Hutchinson, Gaussian": lambda k: Hutchinson("gaussian", k),
    "Hutchinson, Rademacher": lambda k: Hutchinson("rademacher", k),
    "orthogonal": Orthogonal,
    "Hutch++": lambda k: HutchPlusPlus("rademacher", k),
}
"""Estimators that take k products with the Jacobian at each evaluation of the dynamics."""

_COLOURS = {"Hutchinson, Gaussian": MUTED, "Hutchinson, Rademacher": DATA, "orthogonal": MODEL, "Hutch++": "#c49bff"}
_COLUMNS = 3
_WIDTH, _HEIGHT, _LEFT, _GAP, _EDGE, _FOOT, _HEAD = 3.2, 2.5, 0.75, 0.6, 0.25, 0.6, 0.6
_DEPTH = 1e-4
"""The part of the largest spread below which an estimate counts as exact: its line leaves the panel."""


def variance_study(
    flow: Flow,
    x: Float[Array | np.ndarray, "n *event"],
    *,
    costs: Sequence[int],
    repeats: int,
    key: PRNGKeyArray,
) -> list[dict[str, Any]]:
    """The spread of log p(x) over the noise of each estimator, at each cost.

    With `testing` numerics but for the trace, and noise that is drawn `repeats` times for every point and solve.

    **Arguments:**

    - `x`: points at which the flow is to be evaluated, such as test data.
    - `costs`: numbers of products with the Jacobian that an evaluation of the dynamics may take.

    **Returns:** rows with the `estimator`, the `products` that it takes, `std`: the standard deviation of a point's
    log p over the noise, averaged over the points, and `bias`: the mean of log p less its mean by the exact trace; both
    in nats. There is no row where an estimator cannot have that cost: Hutch++ takes 3 products at least, and more than
    D are too many for all but Hutchinson's.
    """
    _check(flow, costs, repeats)
    exact = np.asarray(with_divergence(flow, _exact(flow)).log_prob(x), np.float64)
    rows = []
    for name, products in possible(costs, int(np.prod(flow.event_shape))):
        noisy = with_divergence(flow, lambda cnf, name=name, k=products: ESTIMATORS[name](k))
        draws = np.stack([noisy.log_prob(x, key=draw) for draw in jax.random.split(key, repeats)]).astype(np.float64)
        std, bias = draws.std(axis=0, ddof=1).mean(), np.mean(draws - exact)
        rows.append({"estimator": name, "products": products, "std": float(std), "bias": float(bias)})
    return rows


def possible(costs: Sequence[int], dim: int) -> list[tuple[str, int]]:
    """Estimators with the costs that they can have in D dimensions."""
    least = {"Hutch++": 3}
    most = {"orthogonal": dim, "Hutch++": dim}
    return [(name, k) for name in ESTIMATORS for k in costs if least.get(name, 1) <= k <= most.get(name, k)]


def variance_table(rows: Sequence[dict[str, Any]]) -> str:
    """A Markdown table of the spread: a line a cost, a column an estimator, and the cost's largest bias."""
    names = [name for name in ESTIMATORS if any(row["estimator"] == name for row in rows)]
    lines = [["products", *names, "largest bias"], ["---:"] * (len(names) + 2)]
    for products in sorted({row["products"] for row in rows}):
        found = {row["estimator"]: row for row in rows if row["products"] == products}
        spread = [f"{found[name]['std']:.2g}" if name in found else "–" for name in names]
        bias = max((row["bias"] for row in found.values()), key=abs)
        lines.append([str(products), *spread, f"{bias:+.1g}"])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def draw_variance(rows_by_title: dict[str, list[dict[str, Any]]]) -> Figure:
    """Spread against cost, both in logarithms: a panel for each set of rows, a line for each estimator."""
    if not rows_by_title or not all(rows_by_title.values()):
        raise ValueError("draw_variance needs a title with at least one row; got none.")
    columns = min(_COLUMNS, len(rows_by_title))
    lines = -(-len(rows_by_title) // columns)
    used = {row["estimator"] for rows in rows_by_title.values() for row in rows}
    page = _page(lines, columns, [name for name in ESTIMATORS if name in used])
    for i, (title, rows) in enumerate(rows_by_title.items()):
        corner = (_left(i % columns), _bottom(lines - 1 - i // columns))
        _draw_rows(add_panel(page, (*corner, _WIDTH, _HEIGHT), title=title), rows)
    return page


def _check(flow: Flow, costs: Sequence[int], repeats: int) -> None:
    if repeats < 2 or not costs or min(costs) < 1:
        raise ValueError(
            f"a spread needs repeats of at least 2 and costs of at least 1; got repeats={repeats}, costs={list(costs)}."
        )
    if not continuous_parts(flow):
        raise ValueError("the flow has no continuous part (CNF), and so no trace to estimate.")


def _exact(flow: Flow) -> Callable[[CNF], AbstractDivergence]:
    size = int(np.prod(flow.event_shape))
    return lambda cnf: automatic(cnf.dynamics, flow.event_shape, max_products=size)


def _left(column: int) -> float:
    return _LEFT + column * (_WIDTH + _GAP)


def _bottom(line: int) -> float:
    return _FOOT + line * (_HEIGHT + _HEAD)


def _page(lines: int, columns: int, shown: list[str]) -> Figure:
    """An empty page, with what its axes mean and whose the lines are."""
    names_a_line = min(len(shown), 2 * columns)
    legend = 0.22 * -(-len(shown) // names_a_line)
    width, height = _left(columns) - _GAP + _EDGE, _bottom(lines) - 0.1 + legend
    page = new_figure(width, height)
    middle = (_left(0) + _left(columns) - _GAP) / 2
    page.text(middle / width, 0.12 / height, "products an evaluation", color=MUTED, fontsize=9, ha="center")
    middle = (_bottom(0) + _bottom(lines) - _HEAD) / 2
    text = "standard deviation of log p, nats"
    page.text(0.12 / width, middle / height, text, color=MUTED, fontsize=9, rotation=90, va="center")
    for i, name in enumerate(shown):
        left, top = _LEFT + 1.75 * (i % names_a_line), height - 0.15 - 0.22 * (i // names_a_line)
        page.text(left / width, top / height, name, color=_COLOURS[name], fontsize=9, va="top")
    return page


def _draw_rows(axes: Axes, rows: list[dict[str, Any]]) -> None:
    axes.set(xscale="log", yscale="log")
    for name, colour in _COLOURS.items():
        points = sorted((row["products"], row["std"]) for row in rows if row["estimator"] == name)
        if points:
            axes.plot(*zip(*points, strict=True), color=colour, linewidth=1.3, marker="o", markersize=3.5)
    costs = sorted({row["products"] for row in rows})
    spreads = np.asarray([row["std"] for row in rows])
    high = max(spreads.max(), np.finfo(float).tiny)
    axes.set_xlim(costs[0] / 1.2, costs[-1] * 1.2)
    axes.set_ylim(spreads[spreads >= _DEPTH * high].min(initial=high) / 1.5, high * 1.5)
    _add_log_scale(axes, costs)


def _add_log_scale(axes: Axes, costs: list[int]) -> None:
    """The costs along one axis, and the numbers 1, 2 and 5 of each power of ten along the other, with quiet lines."""
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(costs, [str(cost) for cost in costs])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.tick_params(length=0, labelsize=7, labelcolor=MUTED, pad=4)
    axes.grid(color=MUTED, alpha=0.2, linewidth=0.5)
    axes.set_axisbelow(True)
