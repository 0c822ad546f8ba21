"""The course of a training, read from its metrics: curves, and what went wrong on the way."""

import contextlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

from ffjord.report.page.bins import Bins, finite

_METRICS = ("nfe", "backward_nfe", "accepted", "rejected", "validation_loss", "validation_nfe")


class History:
    """What metrics.jsonl tells; `update` reads on from where it stopped, so that a page can follow a training.

    **Arguments:**

    - `path`: the file; where there is none, nothing is known.
    - `matching`: how many of the first steps are of flow matching. Their losses are the curve "matching", those of the
        other steps, without penalties, are the curve "training".
    """

    def __init__(self, path: Path, *, matching: int = 0):
        self.path, self.matching, self.bins = path, matching, Bins()
        self.step, self.seconds = 0, 0.0
        self.best: float | int | None = None
        self.unsound = self.unsolved = self.validations = 0
        self.outcomes: Counter[int] = Counter()
        """How many steps' solves ended in which way."""
        self.events: list[dict[str, Any]] = []
        self._offset = 0

    def update(self) -> "History":
        """Reads all whole lines that are new; those that are damaged are passed over."""
        with contextlib.suppress(FileNotFoundError), self.path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                with contextlib.suppress(ValueError, TypeError, KeyError):
                    self._add(json.loads(line))
        return self

    def __bool__(self) -> bool:
        return self.step > 0 or bool(self.events)

    def _add(self, row: dict[str, Any]) -> None:
        step, seconds = int(row["step"]), float(row.get("seconds", self.seconds))
        self.step, self.seconds = max(self.step, step), max(self.seconds, seconds)
        if "event" in row:
            self.events.append(row | {"seconds": seconds})
            return
        if "validation_loss" in row:
            self._validated(row["validation_loss"])
        else:
            self.unsound += row.get("sound") is False
            self.outcomes.update([row["outcome"]] if "outcome" in row else [])
        values = {name: row[name] for name in _METRICS if finite(row.get(name))}
        loss = row.get("nll", row.get("loss"))
        if finite(loss):
            values["matching" if step <= self.matching else "training"] = loss
        self.bins.add(step, seconds, values)

    def _validated(self, loss: float | int | None) -> None:
        self.validations += 1
        if finite(loss):
            self.best = loss if self.best is None else min(self.best, loss)
        else:
            self.unsolved += 1
