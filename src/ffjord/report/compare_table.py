"""What a comparison of runs says, in words: its table for a terminal, in Markdown and as .csv."""

import csv
import math
import os
import platform
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import jax
from rich import box
from rich.markup import escape
from rich.table import Table

from ffjord.report.compare import COLUMNS, Comparison, Row
from ffjord.scoring import CHUNK

_BAR, _LEAST_NAME = "\\|", 8


def labels(paths: Sequence[str]) -> list[str]:
    """Names as short as tell runs apart: the ends of their paths. A run that comes again has a number."""
    parts = [Path(path).parts for path in paths]
    while len(set(parts)) > 1 and len({part[-1] for part in parts}) == 1 and min(map(len, parts)) > 1:
        parts = [part[:-1] for part in parts]
    names, seen = ["/".join(_unique_end(part, set(parts) - {part})) for part in parts], Counter()
    for i, name in enumerate(names):
        seen[name] += 1
        names[i] = f"{name} ({seen[name]})" if seen[name] > 1 else name
    return names


def caption(found: Comparison) -> str:
    """What the numbers are of."""
    machine = f"{os.cpu_count()} {platform.machine()} cores ({jax.default_backend()})"
    return (
        f"Test NLL in nats with its standard error, on {found.points} (those of {found.rows[0]['path']}). Better by: "
        f"the mean of log p less that of {found.names[found.to]} on the same points, with the standard error of this "
        f"difference. Times after compilation, on {machine}, up to {CHUNK:,} rows at once."
    )


def head(found: Comparison) -> list[str]:
    """Names of the columns of `cells`, some in two lines."""
    costs = ["NFE", "points\na second", f"{found.rows[0]['samples']:,}\nsamples"]
    return ["run", "parameters", "steps /\ntime", "test NLL", "better\nby", *costs]


def cells(found: Comparison, number: int) -> list[str]:
    """A row in words, some in two lines."""
    row, is_reference = found.rows[number], number == found.to
    failed = lambda what: "failed" if row[f"{what}_error"] else "–"
    nll = _with_error(row["test_nll"], row["test_nll_stderr"], "") or failed("score")
    gain = "–" if is_reference else _with_error(row["better_by"], row["better_by_stderr"], "+") or failed("score")
    training = "–" if row["steps"] is None else f"{row['steps']:,} /\n{duration(row['train_seconds'])}"
    nfe, rate, seconds = row["nfe"], row["points_per_second"], row["sample_seconds"]
    costs = [
        "–" if nfe is None else f"{nfe:.0f}",
        failed("score") if rate is None else f"{_rounded(rate):,.10g}",
        failed("sample") if seconds is None else duration(seconds),
    ]
    return [f"{row['run']}\n({row['path']})", f"{row['parameters']:,}", training, nll, gain, *costs]


def table(found: Comparison) -> str:
    """A Markdown table."""
    names, rows = head(found), [cells(found, number) for number in range(len(found.rows))]
    lines = [names, ["---", *["---:"] * (len(names) - 1)], *rows]
    plain = lambda cell: cell.replace("|", _BAR).replace("\n", " ")
    return "".join(f"| {' | '.join(map(plain, line))} |\n" for line in lines)


def rich_table(found: Comparison) -> Table:
    """A table for a terminal: columns of numbers as wide as they must be, names of runs in what is left."""
    look: dict[str, Any] = {"box": box.SIMPLE_HEAD, "show_lines": True, "padding": (0, 1, 0, 0), "pad_edge": False}
    shown = Table(**look, caption=caption(found), caption_justify="left")
    rows = [cells(found, number) for number in range(len(found.rows))]
    shown.add_column("run", overflow="fold", min_width=_LEAST_NAME)
    for name, *column in [*zip(head(found), *rows, strict=True)][1:]:
        width = max(len(line) for cell in (name, *column) for line in cell.splitlines())
        shown.add_column(name, justify="right", min_width=width)
    for row in rows:
        shown.add_row(*map(escape, row))
    return shown


def page(found: Comparison, picture: Path | None = None) -> str:
    """A Markdown page: the table, the picture if there is one, and what failed."""
    shown = [] if picture is None else [f"![likelihoods and costs of the runs]({picture.name})\n"]
    failed = "".join(f"- {line}\n" for line in failures(found))
    return "\n".join([f"# Runs compared\n\n{caption(found)}\n", *shown, table(found), *([failed] if failed else [])])


def failures(found: Comparison) -> list[str]:
    """A line for everything that failed."""
    said = {"score": "its points could not be scored", "sample": "no samples could be drawn"}
    told = [(row["path"], words, row[f"{what}_error"]) for row in found.rows for what, words in said.items()]
    return [f"{path}: {words}: {message}" for path, words, message in told if message]


def write_csv(rows: Sequence[Row], file: IO[str]) -> None:
    """All numbers with all their digits; empty where there is none."""
    writer = csv.DictWriter(file, list[str](COLUMNS), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def duration(seconds: float | int) -> str:
    """Seconds, minutes or hours, to three digits."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def _with_error(value: float | None, error: float | None, sign: str) -> str:
    return "" if value is None else f"{value:{sign}.4f}\n± {error:.4f}"


def _rounded(value: float) -> float:
    """To three digits."""
    return round(value, 2 - math.floor(math.log10(value)))


def _unique_end(parts: tuple[str, ...], others: set[tuple[str, ...]]) -> tuple[str, ...]:
    ends = (parts[-length:] for length in range(1, len(parts)))
    return next((end for end in ends if all(other[-len(end) :] != end for other in others)), parts)
