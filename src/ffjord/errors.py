"""Errors that are answers to a user. The command line prints their message instead of a traceback."""

from typing import Any


class Answer(Exception):
    """An error whose message says what happened and what to do."""

    exit_code = 1


class InputError(Answer, ValueError):
    """Something the user gave is not usable; the message says what came and what to do."""

    exit_code = 2


class SolveError(Answer, RuntimeError):
    """An ODE solve did not reach the end of its path, so that there is no number to return."""


class TrainingError(Answer, RuntimeError):
    """Training cannot go on: its steps fail again and again. `state` is the last one that was sound."""

    def __init__(self, message: str, state: Any = None):
        super().__init__(message)
        self.state = state


class StorageError(Answer, RuntimeError):
    """A run directory can no longer be written; what was saved before is whole."""


class PeerError(Answer, RuntimeError):
    """Another process of a distributed run is gone."""


class Interrupted(Answer, RuntimeError):
    """Training was asked to stop by a signal, and has saved its state."""

    def __init__(self, message: str, signal: int):
        super().__init__(message)
        self.exit_code = 128 + signal
