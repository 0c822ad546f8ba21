"""`ffjord reproduce table3`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ffjord.choices import OptimizerName
from ffjord.cli.common import parse
from ffjord.cli.studies import Places, check_words, make, tell
from ffjord.errors import InputError
from ffjord.reproduce.table3 import DATA, DEFAULT_MODELS, MODELS, Budget, is_there

_EXAMPLES = """\
  ffjord reproduce table3 --quick
  ffjord reproduce table3 --data frey caltech --data-dir DIR
  ffjord reproduce table3 --data frey --posterior none ffjord-fast --seeds 1 --minutes 60 --warmup 20
  ffjord reproduce table3 --data frey --posterior none ffjord-fast --seeds 1 --base-minutes 30 --minutes 30"""

_QUICK = Budget(epochs=20.0, warmup=5.0, limit=200)


@dataclass(frozen=True)
class Arguments:
    """Trains variational autoencoders with every posterior until validation stalls, which takes hours each, and prints
    their test ELBO beside the paper's. A sketch has one run of 20 epochs each and 200 test images. Stopped and
    started again, it goes on where it was."""

    data: tuple[str, ...] = ("digits",)
    """Images: mnist, omniglot, frey, caltech (see `ffjord data`), or scikit-learn's digits, which need no files."""
    posterior: tuple[str, ...] = DEFAULT_MODELS
    """Posteriors to train; householder, triangular, ffjord-fast and ffjord-bias are there too."""
    seeds: int = 3
    """Runs of each, with the seeds 0, 1, 2, …"""
    minutes: float | None = None
    """Training time of each run, at most. With more of it, runs that are there go on."""
    epochs: float | None = None
    """Epochs of each run, at most: unlike minutes, they are the same on every machine."""
    base_minutes: float | None = None
    """First train without a flow for so long, once for all posteriors, which then start from its encoder and decoder:
    a short --minutes gets further. The KL term's weight rises there."""
    base_epochs: float | None = None
    """The same in epochs, which are the same on every machine."""
    warmup: float | None = None
    """Epochs over which the KL term's weight rises, in place of the paper's 100: for short --minutes."""
    average: float | None = None
    """Decay of averaged weights, the same for all; the paper has none."""
    batch_size: int | None = None
    """Images a step, the same for all, in place of the paper's 100: fewer get further in short --minutes."""
    optimizer: OptimizerName | None = None
    """Optimiser, the same for all, in place of the paper's Adam: Adamax is what its authors' release has. What they
    start from with --base-minutes has Adam."""
    learning_rate: float | None = None
    """Learning rate, the same for all, in place of the paper's 1e-3; not of what they start from."""
    clip: float | None = None
    """Longest gradient; a single image may have a hundred times the usual one. Not of what they start from."""
    fit_flow: int | None = None
    """Steps, at most, in which a flow learns alone, before all else goes on from --base-minutes or --base-epochs: those
    of FFJORD and Sylvester, which have weights that all images share."""
    flow_rate: float | None = None
    """Factor of the learning rate for these flows afterwards: a small one keeps what they have learnt, until the
    decoder has followed."""
    limit: int | None = None
    """Test images to score, at most."""
    draws: int = 1
    """Draws of the latent point of every test image."""
    importance: int | None = None
    """Also the likelihood, by so many samples an image."""
    data_dir: Path | None = None
    """Directory of the data's files; $FFJORD_DATA and the cache are searched too."""
    place: Places = field(default_factory=Places)


def main(argv: Sequence[str]) -> int:
    given = parse(Arguments, argv, "reproduce table3", _EXAMPLES)
    check_words("--data", given.data, DATA)
    check_words("--posterior", given.posterior, MODELS)
    if not any(is_there(name, posterior) for name in given.data for posterior in given.posterior):
        raise InputError(f"--posterior {' '.join(given.posterior)} is not there for the digits; name another.")
    budget = _budget(given)
    from ffjord.data.images import load_images
    from ffjord.experiments.vae import images_of
    from ffjord.reproduce.table3 import study

    data_dir = None if given.data_dir is None else str(given.data_dir)
    for name in given.data:
        load_images(images_of(name), data_dir)  # says what is missing before any work is done
    quick = given.place.quick
    what = {"data": given.data, "posteriors": given.posterior, "data_dir": data_dir, "budget": budget, "quick": quick}
    seeds = 1 if quick else given.seeds
    return make("table3", given.place, lambda out, runs: study(out, runs, **what, seeds=seeds, tell=tell))


def _budget(given: Arguments) -> Budget:
    for name, least in (
        ("seeds", 1),
        ("draws", 1),
        ("limit", 2),
        ("importance", 1),
        ("batch_size", 1),
        ("fit_flow", 1),
    ):
        value = getattr(given, name)
        if value is not None and value < least:
            raise InputError(f"--{name.replace('_', '-')} must be at least {least}; got {value}.")
    for name in ("minutes", "epochs", "base_minutes", "base_epochs", "learning_rate", "clip", "flow_rate"):
        value = getattr(given, name)
        if value is not None and not 0 < value < math.inf:
            raise InputError(f"--{name.replace('_', '-')} must be a positive number; got {value}.")
    if given.warmup is not None and not 0 <= given.warmup < math.inf:
        raise InputError(f"--warmup must be a number of epochs; got {given.warmup}.")
    if given.average is not None and not 0 < given.average < 1:
        raise InputError(f"--average must be between 0 and 1; got {given.average}.")
    if given.fit_flow is not None and given.base_minutes is None and given.base_epochs is None:
        raise InputError("--fit-flow needs --base-minutes or --base-epochs: there is nothing to fit a flow to without.")
    if given.flow_rate is not None and given.fit_flow is None:
        raise InputError("--flow-rate needs --fit-flow: it is for flows that have learnt alone.")
    names = ("average", "optimizer", "learning_rate", "clip", "fit_flow", "flow_rate", "draws", "importance")
    same = {name: getattr(given, name) for name in names}
    same["batch"] = given.batch_size
    if given.place.quick:
        return replace(_QUICK, **same)
    longest = {"minutes": given.minutes, "epochs": given.epochs, "base": given.base_minutes}
    return Budget(**longest, base_epochs=given.base_epochs, warmup=given.warmup, limit=given.limit, **same)
