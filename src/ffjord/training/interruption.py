"""Signals that ask training to stop: it finishes the steps under way, saves, and says how to go on."""

import signal
import threading
from collections.abc import Callable
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """A context in which SIGINT and SIGTERM are noted instead of obeyed; a second one is obeyed at once."""

    def __init__(self, tell: Callable[[str], None] = lambda text: None):
        self.signal: int | None = None
        self._tell, self._before = tell, {}

    def __enter__(self) -> "Interruption":
        if threading.current_thread() is threading.main_thread():  # elsewhere Python allows no handlers
            self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def __bool__(self) -> bool:
        return self.signal is not None

    def _note(self, number: int, frame: Any) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number
        self._tell(f"{signal.Signals(number).name}: finishing the steps under way, then saving; again to stop at once.")
