"""All studies, one after another, and a page with what they found. JAX is imported when one of them runs."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ffjord.errors import Answer, Interrupted
from ffjord.files import atomic_file, write_json
from ffjord.reproduce import STUDIES
from ffjord.reproduce.pages import FOUND, PAPER, beside, machine, sentence, wrapped

Make = Callable[[str, Sequence[str]], int]
"""Makes the named study with words of the command line."""


def everything(out: Path, names: Sequence[str], *, quick: bool, make: Make, tell: Callable[[str], None]) -> int:
    """Makes each study into a folder of its own that is not there yet, and the page after each of them.

    A study that fails does not keep the others from being made. Returns 1 if one did, else 0.
    """
    done, failed = _earlier(out / "done.json"), {}
    for number, name in enumerate(names):
        count = f"{number + 1} of {len(names)}: {name}"
        if name in done and (out / name / "README.md").is_file():
            tell(f"{count} is there")
            continue
        tell(count)
        began = time.monotonic()
        try:
            make(name, _words(out, name, quick=quick))
        except Interrupted:
            raise
        except (Answer, OSError) as error:
            failed[name] = str(error)
            tell(f"{name} failed: {error}")
        else:
            done[name] = {"minutes": round((time.monotonic() - began) / 60, 1)}
        _clear()
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / "done.json", done)
        _write(out, done, failed, quick=quick)
    tell(str(out / "README.md"))
    return 1 if failed else 0


def _words(out: Path, name: str, *, quick: bool) -> list[str]:
    return ["--out", str(out / name), *(["--quick", *STUDIES[name].in_all] if quick else [])]


def _clear() -> None:
    """Forgets compiled programs, of which a process can hold only so many."""
    import jax

    jax.clear_caches()


def _earlier(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.is_file() else {}


def _write(out: Path, done: dict[str, Any], failed: dict[str, str], *, quick: bool) -> None:
    with atomic_file(out / "README.md", "w") as file:
        file.write(as_markdown(out, done, failed, quick=quick))


def as_markdown(out: Path, done: dict[str, Any], failed: dict[str, str], *, quick: bool) -> str:
    """The page: a paragraph, figures and the time for each study that is there, in the order of the paper."""
    minutes = sum(about["minutes"] for about in done.values())
    made = (
        f"Made by `ffjord reproduce all{' --quick' if quick else ''}` on {machine()}, in {minutes:.0f} minutes in all."
    )
    sketch = " Sketches: much less training than the full versions, often on other data than the paper's."
    parts = [["# The paper's analyses, again"], wrapped(made + (sketch if quick else ""))]
    for name in (name for name in STUDIES if name in done or name in failed):
        study = STUDIES[name]
        parts += [[f"## {name}"], wrapped(f"{study.place}: {study.about}.")]
        parts += _part(out, name, done[name]["minutes"]) if name in done else [wrapped(f"Failed: {failed[name]}")]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _part(out: Path, name: str, minutes: float) -> list[list[str]]:
    page = (out / name / "README.md").read_text()
    found = [beside(sentence(page, FOUND), sentence(page, PAPER))] if FOUND in page else []
    figures = [[f"![{name}]({name}/{file.name})"] for file in sorted((out / name).glob("*.png"))]
    return [*found, *figures, [f"[More]({name}/README.md); {minutes:g} minutes."]]
