"""Does the density integrate to one? |1 - ∫p| against the solver's tolerance. JAX is imported when it runs."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ffjord.reproduce.kept import Kept, fingerprint
from ffjord.reproduce.pages import Page, table, write_csv
from ffjord.runs import Run

TOLERANCES = tuple(10.0**-k for k in range(1, 9))
POINTS, FEW_POINTS = 500_000, 20_000
_SPAN, _SMALL = 15.0, 1e-3
_OWN_AT_ONCE = 4096
"""Points a solve where each has its own steps: they wait for the slowest of so many."""

WAYS = {
    "float64, shared steps": (True, "batch"),
    "float64, own steps": (True, "sample"),
    "float32, shared steps": (False, "batch"),
}
"""Name → whether in float64, and who shares a step size."""


def study(out: Path, runs: Path, run: Run, *, points: int, quick: bool, tell: Callable[[str], None]) -> list[Path]:
    """The sum at every tolerance in every way, and the error against the tolerance."""
    kept = Kept(runs, run=str(run.path), weights=fingerprint(run), points=points)
    rows, flow = [], run.flow()
    for name, (double, steps) in WAYS.items():
        for tolerance in TOLERANCES:
            found = kept(f"{name}, {tolerance:g}", partial(mass, flow, tolerance, points, double, steps))
            rows.append({"way": name, "tolerance": tolerance, **found})
            tell(f"{name}, tolerance {tolerance:g}: |1 - ∫p| = {found['error']:.2g}, NFE {found['nfe']:.0f}")
    out.mkdir(parents=True, exist_ok=True)
    draw(rows).savefig(out / "tolerance.png", dpi=110)
    write_csv(out / "tolerance.csv", rows)
    _page(rows, run, points, quick=quick).write(out)
    return [out / name for name in ("README.md", "tolerance.png", "tolerance.csv")]


def mass(flow: Any, tolerance: float, points: int, double: bool, steps: str) -> dict[str, Any]:
    """∫ p over [-15, 15] by a Riemann sum (in float64), its distance from 1, and the evaluations that p took.

    With rtol = atol = `tolerance`. In float64 if `double`: the weights are cast, and 64-bit numbers are switched on for
    this computation alone. `steps`: who shares a step size; "batch" means all points at once.
    """
    import jax
    import numpy as np

    from ffjord.report.subject import in_double
    from ffjord.scoring import score

    width = 2 * _SPAN / points
    x = (-_SPAN + width * (np.arange(points) + 0.5))[:, None]
    with jax.enable_x64(double):
        flow = _solved_to(in_double(flow) if double else flow, tolerance, steps)
        scores = score(flow, x, chunk=points if steps == "batch" else _OWN_AT_ONCE)
    total = float(np.sum(np.exp(scores.log_prob.astype(np.float64))) * width)
    return {"mass": total, "error": abs(1 - total), "nfe": scores.nfe}


def _solved_to(flow: Any, tolerance: float, steps: str) -> Any:
    """The flow with other tolerances, as arrays, so that all of them share one program."""
    import dataclasses

    import jax.numpy as jnp

    from ffjord.report.subject import with_testing

    value = jnp.asarray(tolerance, flow.dtype)
    solver = lambda cnf: dataclasses.replace(cnf.testing.solver, rtol=value, atol=value, steps=steps)
    return with_testing(flow, lambda cnf: dataclasses.replace(cnf.testing, solver=solver(cnf)))


def slope(rows: list[dict[str, Any]]) -> float:
    """p of error ∝ tolerance^p, by least squares of the logarithms, where the tolerance takes more than a step."""
    import numpy as np

    small = [row for row in rows if row["tolerance"] <= _SMALL]
    return float(np.polyfit(np.log([r["tolerance"] for r in small]), np.log([r["error"] for r in small]), 1)[0])


def draw(rows: list[dict[str, Any]]) -> Any:
    """Error and evaluations against the tolerance."""
    from ffjord.report.lines import Line, Plot, draw_plots
    from ffjord.report.style import DATA, INK, MODEL, MUTED

    colours = dict(zip(WAYS, (DATA, MODEL, MUTED), strict=True))
    of = {name: [row for row in rows if row["way"] == name] for name in WAYS}
    styles = {name: "-" if double else "--" for name, (double, _) in WAYS.items()}

    def line(name: str, what: str) -> Line:
        x, y = ([row[column] for row in of[name]] for column in ("tolerance", what))
        return Line(name, x, y, colours[name], styles[name])

    known = [name for name in WAYS if of[name]]
    equal = Line("error = tolerance", TOLERANCES, TOLERANCES, INK, ":", plain=True)
    label = "tolerance (atol = rtol)"
    error = Plot("|1 - ∫p|", label, "", [*(line(name, "error") for name in known), equal], True, True)
    nfe = Plot("function evaluations", label, "", [line(name, "nfe") for name in known], True, True)
    return draw_plots([error, nfe])


def _page(rows: list[dict[str, Any]], run: Run, points: int, *, quick: bool) -> Page:
    shared, own, single = ([row for row in rows if row["way"] == name] for name in WAYS)
    at = lambda rows, tolerance: next(row["error"] for row in rows if row["tolerance"] == tolerance)
    return Page(
        "tolerance",
        "Numerical error against the solver's tolerance",
        finding=f"the error follows the tolerance. In float64 with steps shared by all points, |1 - ∫p| is "
        f"{at(shared, 0.1):.1g} at 1e-1, {at(shared, 1e-5):.1g} at 1e-5 and {at(shared, 1e-8):.1g} at 1e-8, and falls "
        f"as tolerance^{slope(shared):.2f} from 1e-3 on; with each point's own steps it is {at(own, 1e-5):.1g} at 1e-5 "
        f"and {at(own, 1e-8):.1g} at 1e-8, and falls as tolerance^{slope(own):.2f}. In float32 it is "
        f"{at(single, 1e-8):.1g} at 1e-8.",
        paper="appendix C, Figure 8: the numerical error follows the same order as the tolerance, and the density does "
        "integrate to one given a sufficiently low one; one that is too low runs into machine precision. In training "
        "the error becomes non-negligible above 1e-5.",
        figures={"tolerance.png": "error and evaluations against the tolerance"},
        tables=("tolerance.csv",),
        text=f"Sum over {points:,} points, evenly spread over [-15, 15], of the density of the model of Figure 1 "
        f"(`{run.path}`), with the exact trace and atol = rtol. *Shared steps*: one solve for all points, whose step "
        "size follows the root mean square of their errors, as in the paper. *Own steps*: each point has its own; NFE "
        "is then the mean.",
        below=table(_line(rows, tolerance) for tolerance in TOLERANCES),
        quick=quick,
        seed=run.experiment.seed,
    )


def _line(rows: list[dict[str, Any]], tolerance: float) -> dict[str, str]:
    of = {row["way"]: row for row in rows if row["tolerance"] == tolerance}
    cells = {name: f"{row['error']:.1e} (NFE {row['nfe']:.0f})" for name, row in of.items()}
    return {"tolerance": f"{tolerance:g}"} | cells
