"""What a person sees while a flow trains: a bar in a terminal, plain lines elsewhere."""

import math
import sys
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn


class TrainingDisplay:
    """Shows step, loss, NFE, best validation loss and the time left; a context manager and a callback for rows.

    **Arguments:**

    - `total`: steps of the training.
    - `minutes`: after which it ends, if not by its steps.
    """

    def __init__(self, total: int, minutes: float | None = None, *, every_seconds: float = 10.0):
        self.total, self.minutes, self.every_seconds = total, minutes, every_seconds
        self.known: dict[str, Any] = {}
        self.best = float("inf")
        self.began = self.printed_at = time.monotonic()
        self.first_step: int | None = None
        self.printed: int | None = None
        self.bar = _bar() if sys.stderr.isatty() else None

    def __enter__(self) -> "TrainingDisplay":
        if self.bar is not None:
            self.bar.start()
            self.task = self.bar.add_task("compiling", total=self.total, left="")
        else:
            print("compiling …", flush=True)
        return self

    def __exit__(self, *_: Any) -> None:
        if self.bar is not None:
            self.bar.stop()
        elif self.known.get("step") != self.printed:
            print(self._line(), flush=True)

    def tell(self, text: str) -> None:
        """Prints a line, above the bar where there is one."""
        if self.bar is not None:
            self.bar.console.print(text, highlight=False)
        else:
            print(text, flush=True)

    def __call__(self, row: dict[str, Any]) -> None:
        self.first_step = row["step"] if self.first_step is None else self.first_step
        if "event" in row:
            details = ", ".join(f"{name} {value}" for name, value in row.items() if name not in ("step", "event"))
            self.tell(f"step {row['step']}: {row['event']} ({details})")
        self.known |= row
        self.best = row.get("best", self.best)
        if self.bar is not None:
            self.bar.update(self.task, completed=row["step"], description=self._figures(), left=self._left())
        elif time.monotonic() - self.printed_at > self.every_seconds:
            print(self._line(), flush=True)
            self.printed_at, self.printed = time.monotonic(), row["step"]

    def _figures(self) -> str:
        parts = [f"loss {self.known['loss']:.4f}" if "loss" in self.known else ""]
        if "nfe" in self.known:
            parts.append(f"NFE {self.known['nfe']:.0f}")
        if self.best < float("inf"):
            parts.append(f"best validation {self.best:.4f}")
        return "  ".join(part for part in parts if part)

    def _line(self) -> str:
        return f"step {self.known['step']}/{self.total}  {self._figures()}  {self._left()}"

    def _left(self) -> str:
        """The time to the last step, or to the limit if that is sooner."""
        step, first = self.known["step"], self.first_step or 0
        rate = (step - first) / max(1e-9, time.monotonic() - self.began)
        by_steps = (self.total - step) / rate / 60 if rate > 0 else math.inf
        by_time = math.inf if self.minutes is None else max(0.0, self.minutes - self.known.get("seconds", 0.0) / 60)
        left = min(by_steps, by_time)
        return f"{left:.1f} min left" if left < math.inf else ""


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}"),
        console=Console(stderr=True),
    )
