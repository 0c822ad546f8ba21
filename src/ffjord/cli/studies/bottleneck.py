"""`ffjord reproduce bottleneck`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ffjord.cli.common import parse
from ffjord.cli.studies import Places, check_at_least, make, tell

_EXAMPLES = """\
  ffjord reproduce bottleneck --quick
  ffjord reproduce bottleneck --data-dir DIR --seeds 3"""


@dataclass(frozen=True)
class Arguments:
    """Trains an encoder-decoder with a narrow waist four times: with and without the bottleneck trick, with Gaussian
    and with Rademacher noise; and measures the variances of the four at the same weights. A sketch has a tenth of the
    training. Stopped and started again, it goes on where it was."""

    place: Places = field(default_factory=Places)
    data_dir: Path | None = None
    """Directory of MNIST's files; without it, the 8 × 8 digits that come with scikit-learn."""
    seeds: int = 1
    """How often each is trained."""


def main(argv: Sequence[str]) -> int:
    given = parse(Arguments, argv, "reproduce bottleneck", _EXAMPLES)
    check_at_least("--seeds", given.seeds, 1)
    data_dir = None if given.data_dir is None else str(given.data_dir)
    if data_dir is not None:
        from ffjord.data.images import load_images

        load_images("mnist", data_dir)  # says what is missing before any work is done
    from ffjord.reproduce.bottleneck import study

    choice = {"quick": given.place.quick, "seeds": given.seeds, "data_dir": data_dir}
    return make("bottleneck", given.place, lambda out, runs: study(out, runs, **choice, tell=tell))
