"""What an estimate of the trace costs a log-density: its spread over the noise, against the products it takes."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from matplotlib.figure import Figure

from ffjord.bijections import CNF, continuous_parts
from ffjord.divergence import AbstractDivergence, Hutchinson, HutchPlusPlus, Orthogonal, automatic
from ffjord.flow import Flow
from ffjord.report.lines import Line, Plot, draw_plots
from ffjord.report.style import DATA, MODEL, MUTED, THIRD
from ffjord.report.subject import with_divergence
from ffjord.scoring import score

ESTIMATORS: dict[str, Callable[[int], AbstractDivergence]] = {
    "Hutchinson, Gaussian": lambda k: Hutchinson("gaussian", k),
    "Hutchinson, Rademacher": lambda k: Hutchinson("rademacher", k),
    "orthogonal": Orthogonal,
    "Hutch++": lambda k: HutchPlusPlus("rademacher", k),
}
"""Estimators that take k products with the Jacobian at each evaluation of the dynamics."""

_COLOURS = {"Hutchinson, Gaussian": MUTED, "Hutchinson, Rademacher": DATA, "orthogonal": MODEL, "Hutch++": THIRD}
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
        draws = log_prob_draws(noisy, x, repeats=repeats, key=key)
        std, bias = draws.std(axis=0, ddof=1).mean(), np.mean(draws - exact)
        rows.append({"estimator": name, "products": products, "std": float(std), "bias": float(bias)})
    return rows


def log_prob_draws(
    flow: Flow, x: Float[Array | np.ndarray, "n *event"], *, repeats: int, key: PRNGKeyArray
) -> Float[np.ndarray, "repeats n"]:
    """log p(x) with noise that is drawn anew `repeats` times, in float64."""
    draws = [score(flow, np.asarray(x), key=draw).log_prob for draw in jax.random.split(key, repeats)]
    return np.stack(draws).astype(np.float64)


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
    return draw_plots([_plot(title, rows) for title, rows in rows_by_title.items()])


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


def _plot(title: str, rows: list[dict[str, Any]]) -> Plot:
    lines = []
    for name, colour in _COLOURS.items():
        points = sorted((row["products"], row["std"]) for row in rows if row["estimator"] == name)
        if points:
            lines.append(Line.through(name, points, colour))
    spreads = np.asarray([row["std"] for row in rows])
    high = max(spreads.max(), np.finfo(float).tiny)
    y_range = (spreads[spreads >= _DEPTH * high].min(initial=high) / 1.5, high * 1.5)
    labels = "products an evaluation", "standard deviation of log p, nats"
    costs = sorted({row["products"] for row in rows})
    return Plot(title, *labels, lines, x_log=True, y_log=True, x_ticks=costs, y_range=y_range)
