"""`ffjord resume`."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from ffjord.cli.common import RunPath, parse
from ffjord.runs import Run


@dataclass(frozen=True)
class Arguments:
    """Goes on with a run from its last checkpoint, exactly as if it had never stopped."""

    run: RunPath
    max_minutes: float | None = None
    """Stop when the run has trained so many minutes in all; as configured if not given."""


def main(argv: Sequence[str]) -> int:
    from ffjord import compilation_cache
    from ffjord.cli.train import train_and_tell

    given = parse(Arguments, argv, "resume", "  ffjord resume runs/toy/pinwheel")
    compilation_cache.enable()
    run = Run.open(given.run)
    if given.max_minutes is not None:
        train = dataclasses.replace(run.experiment.train, max_minutes=given.max_minutes)
        run = Run(run.path, dataclasses.replace(run.experiment, train=train))
    return train_and_tell(run)
