"""How far a long job is: a bar in a terminal, a plain line now and then elsewhere. Both go to the standard error."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[int, int | None], None]
"""Is told how many rows are done, and of how many (None if that is not known)."""


@contextmanager
def rows_bar(what: str, *, every_seconds: float = 10.0) -> Iterator[Progress]:
    """A callback that shows rows done, their total and the time left."""
    if not sys.stderr.isatty():
        yield _plain_lines(what, every_seconds)
        return
    from rich import progress
    from rich.console import Console

    columns = (progress.TextColumn("{task.description}"), progress.BarColumn(), progress.MofNCompleteColumn())
    left = progress.TimeRemainingColumn()
    with progress.Progress(*columns, left, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _plain_lines(what: str, every_seconds: float) -> Progress:
    began = printed_at = time.monotonic()

    def show(done: int, total: int | None) -> None:
        nonlocal printed_at
        now = time.monotonic()
        if now - printed_at < every_seconds:
            return
        printed_at = now
        of = "" if total is None else f" of {total:,}, {_duration((total - done) * (now - began) / done)} left"
        print(f"{what}: {done:,}{of}", file=sys.stderr, flush=True)

    return show


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
