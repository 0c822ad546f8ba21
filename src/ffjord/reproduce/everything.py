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

_TITLE = "The paper's analyses, again"
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
    tell(str(out / "index.html"))
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
    from ffjord.report.page.build import write_page
    from ffjord.report.page.studies import studies_page

    studies = _told(out, done, failed)
    with atomic_file(out / "README.md", "w") as file:
        file.write(as_markdown(studies, quick=quick))
    write_page(out / "index.html", studies_page(_TITLE, _made(studies, quick=quick), studies))


def _told(out: Path, done: dict[str, Any], failed: dict[str, str]) -> list[Any]:
    """What there is to tell of each study that is there or failed, in the order of the paper."""
    from ffjord.report.page.studies import Told

    told = []
    for name in (name for name in STUDIES if name in done or name in failed):
        about = f"{STUDIES[name].place}: {STUDIES[name].about}."
        if name in failed:
            told.append(Told(name, about, failed=f"Failed: {failed[name]}"))
            continue
        page, figures = (out / name / "README.md").read_text(), sorted((out / name).glob("*.png"))
        told.append(Told(name, about, sentence(page, FOUND), sentence(page, PAPER), figures, done[name]["minutes"]))
    return told


def _made(studies: list[Any], *, quick: bool) -> str:
    minutes = sum(one.minutes for one in studies)
    made = (
        f"Made by `ffjord reproduce all{' --quick' if quick else ''}` on {machine()}, in {minutes:.0f} minutes in all."
    )
    sketch = " Sketches: much less training than the full versions, often on other data than the paper's."
    return made + (sketch if quick else "")


def as_markdown(studies: list[Any], *, quick: bool) -> str:
    """The page: a paragraph, figures and the time for each study."""
    parts = [[f"# {_TITLE}"], wrapped(_made(studies, quick=quick))]
    for one in studies:
        parts += [[f"## {one.name}"], wrapped(one.about)]
        parts += [wrapped(one.failed)] if one.failed else _part(one)
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _part(one: Any) -> list[list[str]]:
    found = [beside(one.found, one.paper)] if one.found else []
    figures = [[f"![{one.name}]({one.name}/{file.name})"] for file in one.figures]
    return [*found, *figures, [f"[More]({one.name}/README.md); {one.minutes:g} minutes."]]
