"""Writes what happens in training into the run directory, and shows it."""

import json
import math
import time
from collections.abc import Callable
from typing import Any

from ffjord.arrays import save_arrays
from ffjord.runs import Run
from ffjord.training.checkpoint import Checkpoints
from ffjord.training.state import TrainState

Show = Callable[[dict[str, Any]], None]


class RunRecorder:
    """Metrics line by line, the best weights at every improvement, checkpoints every few minutes."""

    def __init__(self, run: Run, checkpoints: Checkpoints, *, show: Show):
        self.run, self.checkpoints, self.show = run, checkpoints, show
        self.file = run.metrics.open("a", buffering=1)
        self.saved_at = time.monotonic()

    def steps(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            self._write(row)
        self.show(rows[-1])

    def validated(self, row: dict[str, Any], state: TrainState, improved: bool) -> None:
        self._write(row)
        if improved:
            save_arrays(self.run.weights, state.best)
        self.show(row)

    def boundary(self, state: TrainState) -> None:
        if time.monotonic() - self.saved_at > 60 * self.run.experiment.train.checkpoint_minutes:
            self.save(state)

    def save(self, state: TrainState) -> None:
        """Starts writing a checkpoint."""
        self.checkpoints.save(state)
        self.saved_at = time.monotonic()

    def close(self) -> None:
        self.file.close()

    def _write(self, row: dict[str, Any]) -> None:
        plain = {name: None if isinstance(v, float) and not math.isfinite(v) else v for name, v in row.items()}
        self.file.write(json.dumps(plain) + "\n")


def cut_metrics(run: Run, step: int) -> None:
    """Drops lines after a step (and a line cut off in the middle), so that a resumed run writes each step once."""
    if not run.metrics.is_file():
        return
    kept = []
    for line in run.metrics.read_text().splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            break
        if row["step"] <= step:
            kept.append(line)
    temporary = run.metrics.with_suffix(".tmp")
    temporary.write_text("".join(line + "\n" for line in kept))
    temporary.replace(run.metrics)
