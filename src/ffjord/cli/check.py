"""`ffjord check`."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ffjord._version import __version__
from ffjord.cli.common import RunPath, check_seed, parse
from ffjord.errors import InputError
from ffjord.progress import rows_bar
from ffjord.runs import Run

_EXAMPLES = """\
  ffjord check runs/toy/pinwheel
  ffjord check pretrained/toy-8gaussians --out check-8gaussians
  ffjord check runs/table/digits --points 64"""

_FEWEST, _MOST, _NUMBERS = 16, 2048, 16384
_COLOURS = {"pass": "green", "warn": "yellow", "FAIL": "bold red", "not conclusive": "cyan", "skipped": "dim"}


@dataclass(frozen=True)
class Arguments:
    """Can a model's numbers be trusted? Verdicts with numbers: whether the density integrates to one, whether sampling
    undoes scoring, what the tolerance and the trace's noise do, and samples against data. Writes check.md, check.json
    and two pictures into the run. The exit code is 1 if a verdict is FAIL."""

    run: RunPath
    points: int | None = None
    """Test points, training points and samples to check by, each; 2048 if not given, fewer from 16 columns on."""
    out: Path | None = None
    """Directory to write to; the run's own if not given."""
    overwrite: bool = False
    """Replace files of the same names that no earlier check wrote."""
    data_dir: Path | None = None
    """Directory of the data's files, in place of the one that the run knows."""
    seed: int = 0
    """Seed of samples and noise."""


def main(argv: Sequence[str]) -> int:
    given = parse(Arguments, argv, "check", _EXAMPLES)
    if given.points is not None and given.points < _FEWEST:
        raise InputError(f"--points must be at least {_FEWEST}; got {given.points}.")
    check_seed(given.seed)
    from ffjord import compilation
    from ffjord.report import check_page

    compilation.enable_cache()
    run = Run.open(given.run).with_data_dir(given.data_dir)
    if given.out is not None:
        check_page.check_writable(given.out)
    check_page.claim(given.out or run.path, overwrite=given.overwrite)
    results, subject = check(run, given.points, given.seed)
    _show(results, f"{run.experiment.name} ({given.run})")
    _write(given.out, run, results, subject)
    return 1 if results["summary"] == "FAIL" else 0


def check(run: Run, points: int | None, seed: int) -> tuple[dict[str, Any], Any]:
    """All verdicts on a run's best model as plain values, and what they were found by."""
    from ffjord.report.checks import run_checks
    from ffjord.report.verdict import worst

    began, subject = time.perf_counter(), _subject(run, points, seed)
    with rows_bar("checking") as progress:
        verdicts = run_checks(subject, progress)
    results = {
        "experiment": run.experiment.name,
        "run": str(run.path),
        "version": __version__,
        "points": len(subject.test.x),
        "seed": seed,
        "seconds": round(time.perf_counter() - began, 2),
        "summary": worst(verdicts),
        "verdicts": [verdict.to_dict() for verdict in verdicts],
    }
    return results, subject


def _subject(run: Run, points: int | None, seed: int) -> Any:
    """The run's flow, with test and training points."""
    import jax

    from ffjord.report.check_points import test_points, training_points
    from ffjord.report.subject import Subject

    flow, source = run.flow(), run.source()
    if len(flow.event_shape) != 1:
        raise InputError(f"{run.path}: only densities of rows of numbers can be checked, and this is one of images.")
    n = min(points or _default_points(flow.event_shape[0]), source.num_test)
    if n < _FEWEST:
        raise InputError(f"{run.path}: a check needs at least {_FEWEST} test points; this run has {n}.")
    test = test_points(source, n, seed=seed)
    if (test.condition is None) != (flow.condition_shape is None):
        raise InputError(
            f"{run.path} is a density given conditions, and its test points have none; only runs that keep them can be "
            "checked."
        )
    return Subject(flow, test, training_points(source, n), key=jax.random.key(seed))


def _default_points(dim: int) -> int:
    """A power of two, the less the more columns there are."""
    return max(64, min(_MOST, 1 << (max(_NUMBERS // dim, 1).bit_length() - 1)))


def _write(out: Path | None, run: Run, results: dict[str, Any], subject: Any) -> None:
    """Writes the page. A run that cannot be written (installed, or on a read-only disk) has shown its verdicts."""
    from ffjord.report.check_page import write_page

    layout = run.layout()
    pictures = _pictures(subject, None if layout is None else layout.data.names)
    try:
        written = write_page(out or run.path, results, pictures)
    except OSError as error:
        message = f"{out or run.path} cannot be written ({error.strerror}); choose another place: --out DIR."
        if out is not None:
            raise InputError(message) from error
        print(f"not written: {message}")
        return
    for path in written:
        print(path)


def _pictures(subject: Any, names: Sequence[str] | None) -> dict[str, Any]:
    """Functions that draw, by file name; none where there are no samples to draw."""
    from ffjord.errors import SolveError
    from ffjord.report.check_page import MARGINALS, PAIRS
    from ffjord.report.check_pictures import draw_marginals, draw_pairs

    try:
        x, samples = subject.test.x, subject.samples
    except SolveError:
        return {}
    pictures = {MARGINALS: lambda: draw_marginals(x, samples, names)}
    return pictures | ({PAIRS: lambda: draw_pairs(x, samples, names)} if subject.dim > 1 else {})


def _show(results: dict[str, Any], title: str) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    columns = ("", "check", "found, and its limit", "which means")
    table = Table(*columns, title=title, title_justify="left", show_lines=True)
    for verdict in results["verdicts"]:
        name, found, limit, meaning = (escape(verdict[key]) for key in ("name", "found", "limit", "meaning"))
        grade = verdict["grade"]
        table.add_row(f"[{_COLOURS[grade]}]{grade}[/]", name, f"{found}\n[dim]{limit}[/]", meaning)
    Console().print(table)
