"""What the noise of the trace's estimate does to a log-likelihood (section 4). JAX is imported when it runs."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_args

from ffjord.choices import NoiseKind
from ffjord.reproduce.kept import Kept, fingerprint
from ffjord.reproduce.pages import Page, table, write_csv
from ffjord.runs import Run

NOISES: tuple[NoiseKind, ...] = get_args(NoiseKind)
PROBES = (1, 2, 4, 8)
PAPER = 1e-4
"""The paper's bound."""


class Amount(NamedTuple):
    """How much is measured."""

    points: int
    repeats: int


WHOLE, SKETCH = Amount(5000, 16), Amount(179, 8)


def study(
    out: Path,
    runs: Path,
    given: Mapping[str, Run],
    *,
    amount: Amount,
    quick: bool,
    words: str,
    tell: Callable[[str], None],
) -> list[Path]:
    """For every run, noise and number of probes: the variance of log p of validation points over the noise."""
    from ffjord.data.source import Held

    rows = []
    for name, run in given.items():
        settings = {"run": str(run.path), "weights": fingerprint(run), "amount": amount}
        kept = Kept(runs / name.replace("/", "-"), **settings)
        flow, x = run.flow(), Held.of(run.source().validation()).x[: amount.points]
        for noise in NOISES:
            for probes in PROBES:
                tell(f"{name}, {noise} noise, {probes} probe{'s' if probes > 1 else ''}")
                found = kept(f"{noise}, {probes}", partial(measure, flow, x, noise, probes, amount.repeats))
                rows.append({"run": name, "noise": noise, "probes": probes, **found})
    by_points = [point for row in rows for point in against_points(row)]
    out.mkdir(parents=True, exist_ok=True)
    draw(rows, by_points).savefig(out / "noise-variance.png", dpi=110)
    write_csv(out / "noise-variance.csv", rows)
    write_csv(out / "by-points.csv", by_points)
    _page(rows, given, amount, quick=quick, words=words).write(out)
    return [out / name for name in ("README.md", "noise-variance.png", "noise-variance.csv", "by-points.csv")]


def measure(flow: Any, x: Any, noise: NoiseKind, probes: int, repeats: int) -> dict[str, Any]:
    """Variances over the noise, of which each point has its own, from repeated scores of the same n points.

    `of_one` is that of one point's log p, v = mean_i v_i; `of_mean` that of the mean over all n points, v/n; and
    `of_mean_directly` what the repeats' means show, a check with `repeats` - 1 degrees of freedom. All in nats².
    """
    import jax
    import numpy as np

    from ffjord.divergence import Hutchinson
    from ffjord.report.subject import with_divergence
    from ffjord.report.variance import log_prob_draws

    flow = with_divergence(flow, lambda cnf: Hutchinson(noise, probes))
    draws = log_prob_draws(flow, x, repeats=repeats, key=jax.random.key(0))
    of_one = float(draws.var(axis=0, ddof=1).mean())
    directly = float(draws.mean(axis=1).var(ddof=1))
    size = {"points": len(x), "dimensions": int(np.prod(x.shape[1:]))}
    return size | {"of_one": of_one, "of_mean": of_one / len(x), "of_mean_directly": directly}


def against_points(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The variance of a mean over n points, v/n, for numbers up to the paper's 10,000; in nats² and (bits/dim)²."""
    import math

    unit = (row["dimensions"] * math.log(2)) ** 2
    counts = sorted({10**k for k in range(5)} | {row["points"]})
    own = {name: row[name] for name in ("run", "noise", "probes")}
    return [
        own | {"points": n, "variance_nats": row["of_one"] / n, "variance_bits_per_dim": row["of_one"] / n / unit}
        for n in counts
    ]


def draw(rows: list[dict[str, Any]], by_points: list[dict[str, Any]]) -> Any:
    """For every run, the variance of a mean against its points, and that of one point against the probes."""
    from ffjord.report.lines import Line, Plot, draw_plots
    from ffjord.report.style import DATA, INK, MODEL

    colours, plots = {"gaussian": DATA, "rademacher": MODEL}, []
    for name in dict.fromkeys(row["run"] for row in rows):
        lines = []
        for noise in NOISES:
            mine = [p for p in by_points if (p["run"], p["noise"], p["probes"]) == (name, noise, 1)]
            for unit, style in (("nats", "-"), ("bits_per_dim", ":")):
                y = [point[f"variance_{unit}"] for point in mine]
                label = f"{noise}, {'nats²' if unit == 'nats' else '(bits/dim)²'}"
                lines.append(Line(label, [point["points"] for point in mine], y, colours[noise], style))
        counts = [point["points"] for point in by_points if point["run"] == name]
        lines.append(Line("the paper's bound", (min(counts), max(counts)), (PAPER, PAPER), INK, "--", plain=True))
        title = f"{name}: variance of the mean log-likelihood"
        plots.append(Plot(title, "points (one probe each)", "variance", lines, x_log=True, y_log=True))
        spread = [
            Line("", PROBES, [r["of_one"] for r in rows if (r["run"], r["noise"]) == (name, noise)], colours[noise])
            for noise in NOISES
        ]
        last = Plot(f"{name}: variance of one point's log p", "probes", "nats²", spread, x_log=True, y_log=True)
        plots.append(last._replace(x_ticks=PROBES))
    return draw_plots(plots, columns=2)


def _page(rows: list[dict[str, Any]], runs: Mapping[str, Run], amount: Amount, *, quick: bool, words: str) -> Page:
    first = {row["noise"]: row for row in rows if row["probes"] == 1 and row["run"] == rows[0]["run"]}
    bits = {noise: next(p for p in against_points(row) if p["points"] == row["points"]) for noise, row in first.items()}

    def told(noise: str) -> str:
        row, needed = first[noise], first[noise]["of_one"] / PAPER
        return (
            f"with one {noise} probe {row['of_mean']:.2g} nats², which is {bits[noise]['variance_bits_per_dim']:.1g} "
            f"(bits/dim)²; {_round(needed)} points would bring the former below 1e-4"
        )

    ratio = first["rademacher"]["of_one"] / first["gaussian"]["of_one"]
    return Page(
        "noise-variance",
        "The trace's noise in a log-likelihood",
        finding=f"the variance of the mean log-likelihood of {first['gaussian']['points']} validation points of "
        f"{rows[0]['run']} due to the trace's noise is {'; '.join(told(noise) for noise in NOISES)}. Rademacher noise "
        f"has {ratio:.2f} times the variance of Gaussian noise.",
        paper="section 4 (MNIST and CIFAR10): the variance of the log-likelihood over the validation set induced by "
        "the trace estimator is less than 1e-4. The unit is not told.",
        figures={"noise-variance.png": "variance against the number of points and of probes"},
        tables=("noise-variance.csv", "by-points.csv"),
        text=f"Each point's log p is computed {amount.repeats} times with fresh noise and the same dequantisation, by "
        "the run's testing solver. Points have noise of their own, so that the variance of their mean is that of one "
        "divided by their number; *directly* is what the repeated means show. Runs: "
        + ", ".join(f"{name} (`{run.path}`)" for name, run in runs.items())
        + ".",
        below=table(
            {
                "run": row["run"],
                "noise": row["noise"],
                "probes": str(row["probes"]),
                "one point (nats²)": f"{row['of_one']:.3g}",
                "points": str(row["points"]),
                "their mean (nats²)": f"{row['of_mean']:.2g}",
                "directly": f"{row['of_mean_directly']:.2g}",
            }
            for row in rows
        ),
        quick=quick,
        words=words,
        seed=0,
    )


def _round(number: float) -> str:
    """A number of points, to two digits."""
    from math import floor, log10

    return f"{round(number, 1 - floor(log10(number))):,.0f}" if number >= 1 else "1"
