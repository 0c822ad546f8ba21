"""Writes what happens in training into the run directory, and shows it."""

import json
import math
import time
from collections.abc import Callable
from typing import Any

from ffjord.arrays import save_arrays
from ffjord.errors import StorageError
from ffjord.files import atomic_file
from ffjord.runs import Run
from ffjord.training.checkpoint import Checkpoints
from ffjord.training.state import TrainState

Show = Callable[[dict[str, Any]], None]

_PATIENCE = 400
"""A new best is saved when this many times what the last save held training up has passed since: few bests in a row
are one checkpoint, and saving (in all about four times what it holds up) stays below 2% of the time."""


class RunRecorder:
    """Metrics line by line, the best weights at every improvement, checkpoints every few minutes and after a best."""

    def __init__(self, run: Run, checkpoints: Checkpoints, *, show: Show):
        self.run, self.checkpoints, self.show = run, checkpoints, show
        self.file = run.metrics.open("a", buffering=1)
        self.saved_at, self.held_up, self.news = time.monotonic(), 0.0, False

    def steps(self, rows: list[dict[str, Any]]) -> None:
        self._write(rows)
        self.show(rows[-1])

    def validated(self, row: dict[str, Any], state: TrainState, improved: bool) -> None:
        self._write([row])
        if improved:
            save_arrays(self.run.weights, state.best)
            self.news = True
        self.show(row | {"best": float(state.best_loss)})

    def event(self, row: dict[str, Any]) -> None:
        self._write([row])
        self.show(row)

    def boundary(self, state: TrainState) -> None:
        config, since = self.run.experiment.train, time.monotonic() - self.saved_at
        best_is_due = self.news and config.checkpoint_best and since > _PATIENCE * self.held_up
        if best_is_due or since > 60 * config.checkpoint_minutes:
            self.save(state)

    def save(self, state: TrainState) -> None:
        """Starts writing a checkpoint."""
        began = time.monotonic()
        self.checkpoints.save(state)
        self.saved_at, self.news = time.monotonic(), False
        self.held_up = self.saved_at - began

    def close(self) -> None:
        try:
            self.file.close()
        except OSError as error:
            raise StorageError(f"{self.run.metrics} could not be written ({error.strerror}).") from error

    def _write(self, rows: list[dict[str, Any]]) -> None:
        """Appends lines in one write, so that few can be cut off in the middle."""
        lines = [json.dumps({name: _plain(value) for name, value in row.items()}) + "\n" for row in rows]
        self.file.write("".join(lines))


def cut_metrics(run: Run, step: int) -> None:
    """Drops what was recorded after a step, and lines that are damaged, so that a resumed run writes each step once."""
    if not run.metrics.is_file():
        return
    with run.metrics.open(errors="replace") as old, atomic_file(run.metrics, "w") as new:
        new.writelines(line for line in old if _step_of(line) <= step)


def _step_of(line: str) -> float | int:
    """The step that a line of metrics tells of; infinite if it can't be read."""
    try:
        return json.loads(line)["step"] if line.endswith("\n") else math.inf
    except (ValueError, TypeError, KeyError):
        return math.inf


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
