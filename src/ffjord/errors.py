"""Errors that a user can mend. The command line prints their message and exits with code 2."""


class InputError(ValueError):
    """Something the user gave is not usable; the message says what came and what to do."""
