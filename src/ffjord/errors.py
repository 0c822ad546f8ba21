"""Errors that are answers to a user. The command line prints their message instead of a traceback."""


class InputError(ValueError):
    """Something the user gave is not usable; the message says what came and what to do. Exit code 2."""


class SolveError(RuntimeError):
    """An ODE solve did not reach the end of its path, so that there is no number to return. Exit code 1."""
