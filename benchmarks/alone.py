"""What is measured of this library alone: against the machine's limit, how cost grows, how soon there is a result.

    python -m benchmarks.alone
    python -m benchmarks.alone --parts limit first
    python -m benchmarks.alone --quick

Writes ALONE.md, alone.json and growth.png in benchmarks/. A part that is not named keeps its figures in alone.json,
from which the text and the picture are made anew; `--parts` without a name makes only these. A quick run has small
sizes and few repetitions, shows no more than that everything works, and writes to another folder.
"""

import argparse
import json
import os
import platform
import tempfile
from importlib import metadata
from pathlib import Path
from types import ModuleType

from benchmarks import alone_first, alone_growth, alone_limit, alone_picture

FOLDER = Path(__file__).parent
QUICK_FOLDER = Path(tempfile.gettempdir()) / "ffjord-alone-quick"
PARTS: dict[str, ModuleType] = {"limit": alone_limit, "growth": alone_growth, "first": alone_first}
"""Modules with `measure(quick)`, whose answer json can keep, and `as_markdown(answer)`."""
PACKAGES = ("ffjord", "jax", "jaxlib", "equinox", "diffrax", "numpy")


def made(part: str, *, quick: bool) -> dict:
    """Where a part's figures come from."""
    return {
        "command": f"python -m benchmarks.alone --parts {part}" + " --quick" * quick,
        "quick": quick,
        "machine": f"{os.cpu_count()} shared {platform.machine()} cores",
        "versions": {name: metadata.version(name) for name in PACKAGES},
    }


def as_markdown(results: dict[str, dict]) -> str:
    """ALONE.md."""
    lines = ["# This library alone", ""]
    missing = [name for name in PARTS if name not in results]
    if missing:
        lines += [f"Not measured yet: {', '.join(missing)}.", ""]
    for name in (name for name in PARTS if name in results):
        title, *text = PARTS[name].as_markdown(results[name]["found"])
        lines += [f"## {title}", "", _source(results[name]["made"]), "", *text, ""]
    return "\n".join(lines)


def _source(made: dict) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in made["versions"].items())
    warning = " **A quick run, with small sizes and fewer repetitions: not the figures.**" if made["quick"] else ""
    return f"Made by `{made['command']}` on {made['machine']}; {versions}.{warning}"


def write(results: dict[str, dict], folder: Path) -> None:
    """The figures, the text and the picture."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "alone.json").write_text(json.dumps(results, indent=1) + "\n")
    (folder / "ALONE.md").write_text(as_markdown(results))
    if "growth" in results:
        alone_picture.growth(results["growth"]["found"]["curves"]).savefig(folder / "growth.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="*", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--quick", action="store_true", help="small sizes, few repetitions")
    parser.add_argument("--out", type=Path, help=f"folder to write to: {FOLDER}, or {QUICK_FOLDER} if quick")
    given = parser.parse_args()
    folder = given.out or (QUICK_FOLDER if given.quick else FOLDER)
    kept = folder / "alone.json"
    results = json.loads(kept.read_text()) if kept.exists() else {}
    for name in given.parts:
        print(f"{name}:", flush=True)
        results[name] = {"made": made(name, quick=given.quick), "found": PARTS[name].measure(given.quick)}
        write(results, folder)
    write(results, folder)
    print(f"written to {folder}")


if __name__ == "__main__":
    main()
