"""What the files of a run say of it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ffjord.report.check_page import VALUES
from ffjord.report.page.history import History
from ffjord.runs import Run
from ffjord.units import Units, matching_steps, units_of

_VERSIONS = "versions.json"
_LATER = 60.0
"""Seconds by which weights are newer than a file that tells of them, if it tells of others."""


@dataclass(frozen=True)
class Facts:
    """A run and what its files say; None, or empty, where there is no such file."""

    run: Run
    label: str
    """What the page calls it."""
    units: Units
    history: History
    results: dict[str, Any]
    checks: dict[str, Any]
    versions: dict[str, Any]
    warnings: tuple[str, ...]
    """What a reader of these numbers must know."""
    training: bool
    """Whether a training is at work."""

    @property
    def status(self) -> tuple[str, str]:
        """How the training stands: a word for its colour, and words."""
        steps, history = self.run.experiment.train.steps, self.history
        if self.training:
            return "running", f"in training: step {history.step:,} of {steps:,}"
        if history.events and history.events[-1]["event"] == "gave up":
            return "bad", f"gave up at step {history.step:,} of {steps:,}"
        if history.step >= steps:
            return "good", f"finished: {steps:,} steps"
        if history:
            return "good" if self._ended() else "open", f"stopped at step {history.step:,} of {steps:,}"
        return ("good", "trained") if self.run.weights.is_file() else ("open", "not trained yet")

    def _ended(self) -> bool:
        """Whether training stopped because it was to: out of time, or validations that no longer improve."""
        config = self.run.experiment.train
        out_of_time = config.max_minutes is not None and self.history.seconds >= 60 * config.max_minutes
        return out_of_time or config.patience is not None


def read_facts(run: Run, label: str, history: History | None = None, checks: dict[str, Any] | None = None) -> Facts:
    """Reads a run's files; `history`, if given, is read on, and `checks` stand in for those in the run."""
    if history is None:
        history = History(run.metrics, matching=matching_steps(run.experiment.train))
    warnings: list[str] = []
    commands = {run.results.name: "evaluate"} | ({VALUES: "check"} if checks is None else {})
    found = {name: _read(run.path / name, warnings) for name in (*commands, _VERSIONS)}
    for name, command in commands.items():
        if found[name] and _newer(run.weights, run.path / name):
            warnings.append(f"{name} is older than the weights: `ffjord {command} {run.path}` brings it up to date.")
    results, checks, versions = found[run.results.name], found.get(VALUES, checks or {}), found[_VERSIONS]
    told = tuple(warnings)
    return Facts(run, label, units_of(run), history.update(), results, checks, versions, told, run.is_training())


def _read(path: Path, warnings: list[str]) -> dict[str, Any]:
    """An object in a file; nothing where there is none. One that cannot be read is worth a warning."""
    try:
        values = json.loads(path.read_text())
        if isinstance(values, dict):
            return values
        warnings.append(f"{path.name} cannot be read: it holds no object.")
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        warnings.append(f"{path.name} cannot be read: {error}")
    return {}


def _newer(path: Path, other: Path) -> bool:
    try:
        return path.stat().st_mtime > other.stat().st_mtime + _LATER
    except OSError:
        return False
