"""What a study has found so far, in a file: stopped and started again, it goes on where it was. Free of JAX."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ffjord.errors import InputError
from ffjord.files import write_json
from ffjord.reproduce.pages import write_scalars
from ffjord.runs import Run


class Kept:
    """Findings by name, in found.json of a folder, with the settings that they were had with.

    Other settings are refused: they would make a study of two halves.
    """

    def __init__(self, folder: Path, **settings: Any):
        self.path, self.settings = folder / "found.json", json.loads(json.dumps(settings))
        self.found = self._read()

    def __call__(self, name: str, find: Callable[[], Any]) -> Any:
        """What was found under a name before, or is found now."""
        if name not in self.found:
            self.found[name] = json.loads(json.dumps(find()))
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self.path, {"settings": self.settings, "found": self.found})
        return self.found[name]

    def _read(self) -> dict[str, Any]:
        if not self.path.is_file():
            return {}
        try:
            kept = json.loads(self.path.read_text())
            settings, found = kept["settings"], kept["found"]
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(f"{self.path} cannot be read ({error}); remove it.") from error
        if settings != self.settings:
            raise InputError(
                f"{self.path} was found with other settings; remove it, or choose another place: --runs DIR."
            )
        return found


def fingerprint(run: Run) -> str:
    """Of a run's weights: it changes when they do."""
    return hashlib.sha256(run.weights.read_bytes()).hexdigest()[:16]


def earlier(out: Path) -> dict[str, Any]:
    """The results in a table's folder; none, if there are none yet."""
    path = out / "results.json"
    return json.loads(path.read_text()) if path.is_file() else {}


def keep(out: Path, results: dict[str, Any], page: Callable[[list[dict[str, Any]]], str]) -> list[Path]:
    """Writes the results of a table and their page; gives the files of the folder."""
    out.mkdir(parents=True, exist_ok=True)
    rows = list(results.values())
    write_json(out / "results.json", results)
    write_scalars(out / "results.csv", rows)
    (out / "README.md").write_text(page(rows))
    return sorted(path for path in out.iterdir() if path.suffix in (".md", ".json", ".csv", ".png"))
