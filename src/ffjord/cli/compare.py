"""`ffjord compare`."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import tyro

from ffjord.cli.common import check_seed, new_file, parse
from ffjord.errors import InputError
from ffjord.runs import Run

if TYPE_CHECKING:
    from ffjord.data.source import Held
    from ffjord.flow import Flow
    from ffjord.report.compare import Comparison

_EXAMPLES = """\
  ffjord compare runs/a runs/b
  ffjord compare pretrained/toy-moons runs/toy/moons --out comparison
  ffjord compare runs/power-* --to pretrained/power --data-dir DIR --limit 2000"""

_FILES = {".md": "compare.md", ".csv": "compare.csv", ".png": "compare.png"}


@dataclass(frozen=True)
class Arguments:
    """Runs on the same data side by side: test likelihoods, the difference of each to the first on the same points, and
    what they cost: parameters, training, evaluations, time to score and to sample. The exit code is 1 if one of them
    cannot be scored or sampled."""

    runs: Annotated[
        tuple[Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="RUN [RUN …]", help="Run directories, or pretrained/NAME for packaged models."),
    ]
    to: Path | None = None
    """Run to take differences to, in place of the first; it comes first if it is not among the others."""
    limit: int = 10_000
    """Score the first so many test points. They are those of the first run, for all."""
    samples: int = 10_000
    """Draw so many samples, for the time that it takes."""
    data_dir: Path | None = None
    """Directory of the data's files, in place of the one that the first run was trained with."""
    out: Path | None = None
    """Where to write: a table (.md, or .csv with all digits), a picture (.png), or a directory for compare.md,
    compare.csv and compare.png. Nothing is written if not given."""
    overwrite: bool = False
    """Replace existing files."""
    seed: int = 0
    """Seed of the samples."""


class Entry(NamedTuple):
    """A run, as it was named."""

    path: Path
    run: Run


def main(argv: Sequence[str]) -> int:
    given = parse(Arguments, argv, "compare", _EXAMPLES)
    _check(given)
    entries, to = _opened(given)
    _check_same_data(entries)
    files = {} if given.out is None else _files(given.out, overwrite=given.overwrite)
    from ffjord import compilation
    from ffjord.report.compare_table import failures

    compilation.enable_cache()
    found = _compared(entries, to, given)
    _show(found)
    for path in _written(files, found):
        print(path)
    return 1 if failures(found) else 0


def _check(given: Arguments) -> None:
    if not given.runs:
        raise InputError("name the runs to compare: `ffjord compare RUN RUN`.")
    for name, value, least in (("--limit", given.limit, 2), ("--samples", given.samples, 1)):
        if value < least:
            raise InputError(f"{name} must be at least {least}; got {value}.")
    check_seed(given.seed)


def _opened(given: Arguments) -> tuple[list[Entry], int]:
    """The runs, and the number of the one to take differences to."""
    entry = lambda path: Entry(path, Run.open(path).with_data_dir(given.data_dir))
    entries = [entry(path) for path in given.runs]
    if given.to is None:
        return entries, 0
    to, places = entry(given.to), [entry.run.path.resolve() for entry in entries]
    if to.run.path.resolve() in places:
        return entries, places.index(to.run.path.resolve())
    return [to, *entries], 0


def _check_same_data(entries: list[Entry]) -> None:
    """Refuses runs whose likelihoods are not of the same thing, or whose test rows another one has learnt."""
    first = data_of(entries[0].run)
    for path, run in entries[1:]:
        for what, (identity, words) in data_of(run).items():
            if identity != first[what][0]:
                raise InputError(
                    f"{entries[0].path} and {path} cannot be compared, because their {what} differ: {first[what][1]} "
                    f"and {words}."
                )


def data_of(run: Run) -> dict[str, tuple[Any, str]]:
    """What must be the same, and what to call it; first the data, which decide what else there is."""
    from ffjord.table.rows import digest

    data, file = run.experiment.data, run.experiment.file
    if not file.path:
        image = None if data.image is None else digest(run.path / data.image)
        return {"data": ((data.name, image), data.name if image is None else f"{data.name} {image[:12]}")}
    weights = () if file.weights is None else (file.weights,)
    columns = {"columns": file.columns, "given columns": file.condition_on, "columns of weights": weights}
    columns |= {"dequantised columns": file.dequantize}
    return {
        "data": (file.sha256, f"{Path(file.path).name} {file.sha256[:12]}"),
        **{what: (names, ", ".join(names) or "none") for what, names in columns.items()},
        "seeds, which choose the test rows,": (run.experiment.seed, str(run.experiment.seed)),
    }


def _files(out: Path, *, overwrite: bool) -> dict[str, Path]:
    """The files to write, by their endings; refuses before any work what cannot be written."""
    if out.suffix and not out.is_dir():
        return {out.suffix.lower(): new_file(out, [*_FILES], overwrite=overwrite)}
    from ffjord.report.check_page import check_writable

    check_writable(out)
    files = {suffix: out / name for suffix, name in _FILES.items()}
    if out.is_dir():
        for path in files.values():
            new_file(path, [*_FILES], overwrite=overwrite)
    return files


def _compared(entries: list[Entry], to: int, given: Arguments) -> "Comparison":
    """The comparison, once all models and the test points have been read."""
    import jax

    from ffjord.data.source import Held
    from ffjord.report.compare import Comparison, measure, side_by_side
    from ffjord.report.compare_table import labels

    flows, source = [_flow(entry) for entry in entries], entries[0].run.source()
    points = Held.of(source.test(given.limit))
    _check_shapes(entries, flows, points)
    names, measured = labels([str(entry.path) for entry in entries]), []
    for entry, flow, name in zip(entries, flows, names, strict=True):
        keys = {"score_key": jax.random.key(entry.run.experiment.seed), "sample_key": jax.random.key(given.seed)}
        layout = entry.run.layout()
        log_scale = 0.0 if layout is None else layout.log_scale
        measured.append(measure(flow, points, given.samples, log_scale=log_scale, label=name, **keys))
    about = [_about(entry, flow) for entry, flow in zip(entries, flows, strict=True)]
    rows = side_by_side(about, measured, points, given.samples, to=to)
    data, part = data_of(entries[0].run)["data"][1], f"{len(points.x):,} of {source.num_test:,}"
    return Comparison(rows, names, to, f"{part} test points of {data}")


def _flow(entry: Entry) -> "Flow":
    try:
        return entry.run.flow()
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{entry.path}: the model cannot be built: {error}") from error


def _check_shapes(entries: list[Entry], flows: list["Flow"], points: "Held") -> None:
    shapes = [None if part is None else part.shape[1:] for part in points[:2]]
    for entry, flow in zip(entries, flows, strict=True):
        if [flow.event_shape, flow.condition_shape] != shapes:
            raise InputError(
                f"{entry.path} is a density over shape {flow.event_shape}, given {flow.condition_shape}; the test "
                f"points of {entries[0].path} have {shapes[0]}, given {shapes[1]}."
            )


def _about(entry: Entry, flow: "Flow") -> dict[str, Any]:
    """What is known of a run without measuring."""
    from ffjord.parameters import count_parameters
    from ffjord.report.compare import trained

    steps, seconds = trained(entry.run.metrics) or (None, None)
    about = {"run": entry.run.experiment.name, "path": str(entry.path), "parameters": count_parameters(flow)}
    return about | {"steps": steps, "train_seconds": seconds}


def _show(found: "Comparison") -> None:
    """A table in a terminal, if it is wide enough, and plain lines elsewhere; failures go to the standard error."""
    from rich.console import Console

    from ffjord.report.compare_table import caption, failures, rich_table, table

    console, shown = Console(), rich_table(found)
    wide = console.options.update(width=10 * console.width)
    if console.is_terminal and console.measure(shown, options=wide).minimum <= console.width:
        console.print(shown)
    else:
        print(f"{caption(found)}\n\n{table(found)}")
    for line in failures(found):
        print(f"ffjord: {line}", file=sys.stderr)


def _written(files: dict[str, Path], found: "Comparison") -> Iterator[Path]:
    """Writes the files; yields each when it is there."""
    from ffjord.files import atomic_file
    from ffjord.report.compare_picture import draw_comparison
    from ffjord.report.compare_table import page, write_csv

    for suffix, path in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        match suffix:
            case ".md":
                with atomic_file(path, "w") as file:
                    file.write(page(found, files.get(".png")))
            case ".csv":
                with atomic_file(path, "w") as file:
                    write_csv(found.rows, file)
            case _:
                with atomic_file(path) as file:
                    draw_comparison(found).savefig(file, format="png", dpi=150)
        yield path
