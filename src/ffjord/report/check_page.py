"""The page that `ffjord check` writes: verdicts as Markdown and JSON, with two pictures."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ffjord.errors import InputError
from ffjord.files import atomic_file, write_json

PAGE, VALUES, MARGINALS, PAIRS = FILES = ("check.md", "check.json", "check-marginals.png", "check-pairs.png")
_MAKER = "ffjord check"


def claim(folder: Path, *, overwrite: bool) -> None:
    """Refuses, before any work, a place where the page would replace what is not its own."""
    try:
        found = [name for name in FILES if (folder / name).exists()]
    except OSError as error:
        raise InputError(f"--out {folder} cannot be used ({error.strerror}); choose another place.") from error
    foreign = [name for name in found if name not in _own(folder)]
    if foreign and not overwrite:
        raise InputError(
            f"{folder / foreign[0]} exists, and no earlier check wrote it; choose another place with --out DIR, or add "
            "--overwrite."
        )


def check_writable(folder: Path) -> None:
    """Refuses, before any work, a directory that cannot be made or written."""
    try:
        nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    except OSError as error:
        raise InputError(f"--out {folder} cannot be used ({error.strerror}); choose another place.") from error
    if not nearest.is_dir():
        raise InputError(f"--out {folder}: {nearest} is a file; name a directory.")
    if not os.access(nearest, os.W_OK):
        raise InputError(f"--out {folder}: {nearest} cannot be written; choose another place.")


def write_page(folder: Path, results: dict[str, Any], pictures: dict[str, Callable[[], Any]]) -> list[Path]:
    """Writes all files, each whole or not at all; removes those of an earlier check that are none of these.

    **Arguments:**

    - `results`: plain values; `verdicts` among them, as `Verdict.to_dict` makes them.
    - `pictures`: by file name, functions that draw a figure.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = [PAGE, VALUES, *pictures]
    for name in _own(folder) & set(FILES) - set(files):
        (folder / name).unlink(missing_ok=True)
    write_json(folder / VALUES, {"made_by": _MAKER, **results, "files": files})
    for name, draw in pictures.items():
        with atomic_file(folder / name) as file:
            draw().savefig(file, format="png", dpi=150)
    with atomic_file(folder / PAGE, "w") as file:
        file.write(markdown(results, list(pictures)))
    return [folder / name for name in files]


def markdown(results: dict[str, Any], pictures: list[str]) -> str:
    """The page: what was checked, a table of verdicts, the pictures."""
    lines = [
        f"# Check of {results['experiment']}: {results['summary']}",
        "",
        f"`{results['run']}`, {results['points']:,} test points, seed {results['seed']}, ffjord {results['version']}. "
        "Limits and their reasons: `ffjord.report.checks`.",
        "",
    ]
    rows = [["", "check", "found", "limit", "which means"], ["---"] * 5]
    for verdict in results["verdicts"]:
        cells = [_bold(verdict["grade"]), *(verdict[key] for key in ("name", "found", "limit", "meaning"))]
        rows.append([cell.replace("|", "\\|").replace("\n", " ") for cell in cells])
    lines += [f"| {' | '.join(row)} |" for row in rows]
    for name in pictures:
        lines += ["", f"![{name.removesuffix('.png')}]({name})"]
    return "\n".join(lines) + "\n"


def _bold(grade: str) -> str:
    return f"**{grade}**" if grade in ("FAIL", "warn") else grade


def _own(folder: Path) -> set[str]:
    """The files that an earlier check says it wrote there."""
    try:
        values = json.loads((folder / VALUES).read_text())
        return set(values["files"]) if values["made_by"] == _MAKER else set()
    except (OSError, ValueError, KeyError, TypeError):
        return set()
