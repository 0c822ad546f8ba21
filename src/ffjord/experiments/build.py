"""From a configuration to data and model."""

from pathlib import Path

import jax

from ffjord.data import TABLES, TOYS, FreshSamples, LateRows, Picture, Rows, Source
from ffjord.data.discrete import Discrete, discrete_set, is_discrete
from ffjord.data.held_out import HeldOut
from ffjord.data.images import load_images
from ffjord.data.pictures import Pictures, image_set, is_image
from ffjord.data.sets import SETS, found_forms, load
from ffjord.data.split import Split
from ffjord.errors import InputError
from ffjord.experiments.config import Experiment, MatchingConfig, RegularizationConfig, SolveConfig, TrainConfig
from ffjord.experiments.vae import FITTED
from ffjord.flow import Flow
from ffjord.matching import FlowMatching
from ffjord.models import build_image_model, build_model, regularizers
from ffjord.objectives import Likelihood, Objective, Staged, Tightening
from ffjord.vae import VAE, NegativeElbo, build_vae


def build_source(experiment: Experiment, *, folder: Path | None = None) -> Source:
    """The data of an experiment; files it names are looked for in `folder` (a run directory) if relative."""
    data, file = experiment.data, experiment.file
    if file.path:
        read = lambda: _rows_of_file(experiment)
        return LateRows((len(file.columns),), read, condition_size=len(file.condition_on))
    if is_image(data.name):
        return _pictures(experiment)
    if is_discrete(data.name):
        about = discrete_set(data.name)
        return LateRows(about.shape, lambda: _discrete(experiment), num_test=about.rows[2])
    if data.name in TABLES:
        table = TABLES[data.name]()
        batch_size = min(experiment.train.batch_size, len(table.train))
        return Rows(*table[:3], batch_size=batch_size, seed=experiment.seed, jitter=table.jitter)
    if data.name in SETS:
        table = SETS[data.name]
        return LateRows((table.dim,), lambda: _rows_of_set(experiment), num_test=table.rows[2])
    return FreshSamples(
        _draw(data.name, data.image, folder or Path()),
        batch_size=experiment.train.batch_size,
        seed=experiment.seed,
        num_validation=data.num_validation,
        num_test=data.num_test,
    )


def _pictures(experiment: Experiment) -> Pictures:
    """The images of a set, with as many for validation as are wanted."""
    data, about = experiment.data, image_set(experiment.data.name)

    def read() -> Split:
        split = load_images(about.name, data.data_dir)
        return split._replace(validation=split.validation[: data.num_validation])

    return Pictures(
        about.shape,
        read,
        levels=about.levels,
        num_test=about.rows[2],
        batch_size=experiment.train.batch_size,
        seed=experiment.seed,
        flips=about.name == "cifar10",
    )


def _discrete(experiment: Experiment) -> Discrete:
    """The images of an autoencoder, with as many for validation as are wanted."""
    data = experiment.data
    split = load_images(discrete_set(data.name).name, data.data_dir, data.shuffle)
    split = split._replace(validation=split.validation[: data.num_validation])
    return Discrete(split, batch_size=experiment.train.batch_size, seed=experiment.seed)


def _rows_of_file(experiment: Experiment) -> Rows:
    """The user's table that the experiment is about."""
    from ffjord.table.rows import prepared, source

    found = prepared(experiment.file, experiment.seed)
    return source(found, batch_size=experiment.train.batch_size, seed=experiment.seed)


def _rows_of_set(experiment: Experiment) -> Rows | HeldOut:
    """All training and test rows, and as many validation rows as are wanted."""
    data, train = experiment.data, experiment.train
    split = load(data.name, data.data_dir)
    validation = split.validation[: data.num_validation]
    if not len(split.train):
        _, test = next(found_forms(data.name, data.data_dir))
        why = f"{data.name}: there are no rows to train on: {test.with_name('train.npy')} is missing."
        return HeldOut(validation, split.test, why=f"{why} Without it a model can be tested only.")
    return Rows(split.train, validation, split.test, batch_size=train.batch_size, seed=experiment.seed)


def build_flow(experiment: Experiment, source: Source) -> Flow | VAE:
    """The untrained model of an experiment: a flow, or an autoencoder with one in its posterior."""
    configs = (experiment.model, experiment.solve, experiment.regularization)
    _check_autoencoder(experiment)
    if is_discrete(experiment.data.name):
        about = discrete_set(experiment.data.name)
        return build_vae(about.shape, about.levels, *configs, key=jax.random.key(experiment.seed))
    if is_image(experiment.data.name):
        about = image_set(experiment.data.name)
        return build_image_model(about.shape, *configs, levels=about.levels, key=jax.random.key(experiment.seed))
    (dim,) = source.event_shape
    size = getattr(source, "condition_size", 0)
    return build_model(dim, *configs, condition_size=size, key=jax.random.key(experiment.seed))


def _check_autoencoder(experiment: Experiment) -> None:
    """Autoencoders have images of their own, a posterior, and an objective; nothing else has."""
    discrete, posterior, objective = is_discrete(experiment.data.name), experiment.model.posterior, experiment.train
    if discrete and posterior is None:
        raise ValueError(f"posterior: {experiment.name} is an autoencoder and needs one, if only the one named none.")
    if discrete != (objective.objective == "elbo"):
        wanted = "elbo" if discrete else "likelihood or flow-matching"
        raise ValueError(f"objective must be {wanted} for {experiment.name}; got {objective.objective!r}.")
    if posterior is not None and not discrete:
        raise ValueError(f"posterior is for autoencoders, such as vae/frey; {experiment.name} is none.")
    if experiment.train.fit_flow:
        _check_fitting(experiment)
    if experiment.train.flow_rate != 1 and posterior in (None, "none"):
        raise ValueError(f"flow_rate is for posteriors with a flow; got {posterior or experiment.name}. Leave it out.")


def _check_fitting(experiment: Experiment) -> None:
    """A flow is fitted to posteriors that are there, by weights that all images share."""
    if experiment.model.posterior not in FITTED:
        raise ValueError(
            f"fit_flow is for the posteriors {', '.join(FITTED)}, which have weights that all images share; got "
            f"{experiment.model.posterior or experiment.name}."
        )
    if experiment.train.start_from is None:
        raise ValueError("fit_flow needs start_from: before training there are no posteriors to fit a flow to.")


def build_objective(
    train: TrainConfig, solve: SolveConfig, matching: MatchingConfig, regularization: RegularizationConfig
) -> Objective | Staged:
    """What training minimises."""
    first = FlowMatching(matching.coupling, matching.interpolant, matching.times)
    if train.objective == "flow-matching":
        return first
    weights = tuple((regularizer.name, weight) for regularizer, weight in regularizers(regularization))
    if train.objective == "elbo":
        return NegativeElbo(train.kl_warmup, weights, _tightening(train, solve))
    then = Likelihood(weights, _tightening(train, solve))
    return Staged(first, train.warm_start, then) if train.warm_start else then


def _tightening(train: TrainConfig, solve: SolveConfig) -> Tightening | None:
    if solve.start_tolerance is None:
        return None
    if not solve.start_tolerance >= solve.rtol:
        raise ValueError(
            f"start_tolerance must not be less than rtol, {solve.rtol:g}, to which it falls; "
            f"got {solve.start_tolerance:g}."
        )
    return Tightening(solve.start_tolerance / solve.rtol, train.steps)


def _draw(name: str, image: str | None, folder: Path):
    if name == "picture":
        if image is None:
            raise InputError("toy/picture needs a picture: add --image FILE.")
        return Picture(folder / image)
    if name not in TOYS:
        raise InputError(f"there is no toy {name!r}; there are {', '.join(TOYS)}.")
    return TOYS[name]
