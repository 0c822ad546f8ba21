"""The page of a run that follows its training."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from ffjord.experiments.config import Experiment
from ffjord.report.page.build import Entry, page, write_page
from ffjord.report.page.facts import read_facts
from ffjord.report.page.history import History
from ffjord.report.page.picture import without_picture
from ffjord.runs import Run
from ffjord.units import matching_steps

_SECONDS, _SHARE = 60.0, 200
"""A page is written again after a minute, and when 200 times what it took has passed: half a percent of the time."""
_NOT_YET = "The flow is drawn when its training has ended."


class LivePage:
    """Writes the page of a run, without its picture, as rows of metrics come; `warn` is told once if it cannot."""

    def __init__(self, run: Run, experiment: Experiment, *, warn: Callable[[str], None]):
        self.run, self._warn, self._due = run, warn, 0.0
        self.history = History(run.metrics, matching=matching_steps(experiment.train))

    def __call__(self, row: dict[str, Any]) -> None:
        if time.monotonic() >= self._due:
            self.write()

    def write(self) -> None:
        """Brings the page up to date. A page that cannot be written must not end a training."""
        began = time.monotonic()
        try:
            facts = read_facts(self.run, str(self.run.path), self.history)
            write_page(self.run.page, page([Entry(facts, without_picture(_NOT_YET))]))
        except OSError as error:
            self._warn(f"{self.run.page} cannot be written ({error.strerror}); training goes on.")
            self._warn = lambda text: None
        self._due = began + max(_SECONDS, _SHARE * (time.monotonic() - began))


@contextlib.contextmanager
def following(run: Run, experiment: Experiment, warn: Callable[[str], None]) -> Iterator[LivePage]:
    """A page that follows a training; at the end, however it comes, it says how training stands."""
    live = LivePage(run, experiment, warn=warn)
    try:
        yield live
    finally:
        live.write()
