"""What every study leaves: a page with its finding beside the paper's, and its data. Free of JAX."""

import csv
import os
import platform
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ffjord.errors import InputError
from ffjord.files import atomic_file

FOUND, PAPER = "**Found:**", "**The paper:**"
"""How the two sentences begin, by which another page finds them."""
_WIDTH = 120


@dataclass(frozen=True)
class Page:
    """README.md of a study."""

    study: str
    title: str
    finding: str
    """A sentence, or two."""
    paper: str
    """What the paper says of the same."""
    figures: Mapping[str, str]
    """Files, each with what it shows."""
    tables: Sequence[str]
    """Files with the numbers."""
    text: str = ""
    """A paragraph below the figures."""
    below: Sequence[str] = ()
    """Lines below that, such as a table's."""
    quick: bool = False
    words: str = ""
    """What else was said to the command."""
    seed: int | None = None

    def __str__(self) -> str:
        command = " ".join(["ffjord reproduce", self.study, *(["--quick"] if self.quick else []), *self.words.split()])
        seed = "" if self.seed is None else f", seed {self.seed}"
        parts = [
            [f"# {self.title}"],
            wrapped(f"Made by `{command}` on {machine()}{seed}."),
            beside(self.finding, self.paper),
            *([f"![{shows}]({file})"] for file, shows in self.figures.items()),
            wrapped(self.text),
            self.below,
            [f"Data: {', '.join(f'[{name}]({name})' for name in self.tables)}."],
        ]
        return "\n\n".join("\n".join(part) for part in parts if part) + "\n"

    def write(self, folder: Path) -> None:
        """README.md of the folder."""
        with atomic_file(folder / "README.md", "w") as file:
            file.write(str(self))


def beside(finding: str, paper: str) -> list[str]:
    """A finding and the paper's, as lines of a page."""
    return [*wrapped(f"{FOUND} {finding}"), "", *wrapped(f"{PAPER} {paper}")]


def wrapped(text: str) -> list[str]:
    """A paragraph as lines of a page."""
    return textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)


def sentence(page: str, begins: str) -> str:
    """The paragraph of a page that begins so, without its beginning; empty if there is none."""
    paragraphs = (paragraph.replace("\n", " ") for paragraph in page.split("\n\n"))
    return next((p.removeprefix(begins).strip() for p in paragraphs if p.startswith(begins)), "")


def machine() -> str:
    """The machine, as pages tell it."""
    return f"{os.cpu_count()} shared {platform.machine()} cores"


def table(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Rows as lines of a Markdown table, with their names as its head."""
    rows = list(rows)
    names = list(rows[0])
    lines = [names, ["---"] * len(names), *([str(row[name]) for name in names] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows with the same names as a file; numbers have as many digits as tell them apart in single precision."""
    with atomic_file(path, "w") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(rows[0])
        writer.writerows([_digits(value) for value in row.values()] for row in rows)


def write_scalars(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """What is a number or a word in rows that need not have the same names, as a file; blank where a row has none."""
    plain = [{name: value for name, value in row.items() if isinstance(value, str | int | float)} for row in rows]
    names = dict.fromkeys(name for row in plain for name in row)
    write_csv(path, [{name: row.get(name, "") for name in names} for row in plain])


def _digits(value: Any) -> Any:
    return f"{value:.9g}" if isinstance(value, float) else value


def check_place(folder: Path, study: str, *, quick: bool) -> None:
    """Refuses a folder whose README.md is not this study's, or is that of its full version where this is a sketch."""
    page = folder / "README.md"
    text = page.read_text(errors="replace") if page.is_file() else ""
    if not text:
        return
    if f"`ffjord reproduce {study}" not in text:
        raise InputError(f"--out {folder} holds a README.md that is not of `{study}`; choose another place: --out DIR.")
    if quick and f"`ffjord reproduce {study} --quick" not in text:
        raise InputError(f"--out {folder} holds the full version of `{study}`; choose another place for a sketch.")
