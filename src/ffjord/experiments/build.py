"""From a configuration to data and model."""

from pathlib import Path

import jax

from ffjord.data import TOYS, FreshSamples, Picture, Source
from ffjord.errors import InputError
from ffjord.experiments.config import Experiment
from ffjord.flow import Flow
from ffjord.models import ffjord


def build_source(experiment: Experiment, *, folder: Path | None = None) -> Source:
    """The data of an experiment; files it names are looked for in `folder` (a run directory) if relative."""
    data = experiment.data
    return FreshSamples(
        _draw(data.name, data.image, folder or Path()),
        batch_size=experiment.train.batch_size,
        seed=experiment.seed,
        num_validation=data.num_validation,
        num_test=data.num_test,
    )


def build_flow(experiment: Experiment, source: Source) -> Flow:
    """The untrained model of an experiment."""
    (dim,) = source.event_shape
    return ffjord(dim, experiment.model, experiment.solve, key=jax.random.key(experiment.seed))


def _draw(name: str, image: str | None, folder: Path):
    if name == "picture":
        if image is None:
            raise InputError("toy/picture needs a picture: add --image FILE.")
        return Picture(folder / image)
    if name not in TOYS:
        raise InputError(f"there is no toy {name!r}; there are {', '.join(TOYS)}.")
    return TOYS[name]
