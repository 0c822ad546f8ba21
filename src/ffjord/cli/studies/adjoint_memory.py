"""`ffjord reproduce adjoint-memory`."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ffjord.cli.common import parse
from ffjord.cli.studies import Places, check_at_least, make, tell
from ffjord.reproduce.adjoint_memory import FEW_STEPS, STEPS

_EXAMPLES = """\
  ffjord reproduce adjoint-memory --quick
  ffjord reproduce adjoint-memory --steps 8 64 512"""


@dataclass(frozen=True)
class Arguments:
    """Measures memory and time of a training step against the number of solver steps, for the gradients checkpointed,
    adjoint and direct. A sketch has fewer steps. Stopped and started again, it goes on where it was."""

    place: Places = field(default_factory=Places)
    steps: tuple[int, ...] = ()
    """Numbers of solver steps, from few to many; powers of two from 4 to 512 if not given, to 64 of a sketch."""


def main(argv: Sequence[str]) -> int:
    given = parse(Arguments, argv, "reproduce adjoint-memory", _EXAMPLES)
    for steps in given.steps:
        check_at_least("--steps", steps, 1)
    from ffjord.reproduce.adjoint_memory import study

    steps = sorted(set(given.steps)) or (FEW_STEPS if given.place.quick else STEPS)
    choice = {"steps": steps, "quick": given.place.quick}
    return make("adjoint-memory", given.place, lambda out, runs: study(out, runs, **choice, tell=tell))
