"""What a study has found so far, on the disk: results.json, and README.md made from it. Free of JAX."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ffjord.files import write_json

Page = Callable[[list[dict[str, Any]]], str]


def earlier(out: Path) -> dict[str, Any]:
    """The results in a folder; none, if there is none yet."""
    path = out / "results.json"
    return json.loads(path.read_text()) if path.is_file() else {}


def keep(out: Path, results: dict[str, Any], page: Page) -> list[Path]:
    """Writes results and their page; gives the files of the folder."""
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "results.json", results)
    (out / "README.md").write_text(page(list(results.values())))
    return sorted(path for path in out.iterdir() if path.suffix in (".md", ".json"))
