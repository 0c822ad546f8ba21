"""Variational autoencoders: the paper's data, posteriors and settings (section 4.3 and appendix B.2). Free of JAX."""

from dataclasses import dataclass, replace

from ffjord.experiments.config import DataConfig, Experiment, ModelConfig, SolveConfig, TrainConfig

POSTERIORS = ("none", "planar", "iaf", "orthogonal", "householder", "triangular")
"""What the paper compares FFJORD with; the last three are Sylvester flows."""

FFJORDS = {"ffjord": "", "ffjord-fast": "-fast", "ffjord-bias": "-bias"}
"""FFJORD with the paper's settings, with ours, and with ours where the image tells biases alone: what follows the set's
name in the experiment's."""

FITTED = ("ffjord", "orthogonal", "householder", "triangular")
"""Posteriors whose flow may learn alone first, since it has weights that all images share."""

SPLITS = (123, 321, 231)
"""Seeds by which the literature splits Frey's faces."""

_BATCH = 100
_EPOCHS = 100
"""Over which the KL term's weight rises; and after which training stops, if none of them was better."""


@dataclass(frozen=True)
class _Set:
    """A data set of the paper's Table 3, with the best architecture of its Table 5."""

    summary: str
    images: str
    """Name of the set of images."""
    rows: tuple[int, int]
    """Images for training and for validation."""
    hidden: tuple[int, ...]
    flows: int
    rank: int
    paper: dict[str, str]
    """Test negative ELBO of each model."""
    nonlinearity: str = "softplus"
    unit: str = "nats"
    image_scale: float = 0.1
    """With 1, the first continuous paths are hard to solve, and with Adam's steps of 1e-3 they explode within twenty of
    them, when the KL term does not weigh anything yet; Sylvester flows learn what they know of an image by heart."""
    matrix_scale: float = 1.0
    """Of the matrices that an image adds, beside that."""

    @property
    def epoch(self) -> int:
        """Steps of an epoch."""
        return -(-self.rows[0] // _BATCH)


_KNOWN = ("none", "planar", "iaf", "sylvester", "ffjord")


def _figures(*figures: str) -> dict[str, str]:
    return dict(zip(_KNOWN, figures, strict=True))


SETS = {
    "mnist": _Set(
        "MNIST's digits, binarised once",
        "binary-mnist",
        (50_000, 10_000),
        (1024, 1024),
        2,
        64,
        _figures("86.55 ± 0.06", "86.06 ± 0.31", "84.20 ± 0.17", "83.32 ± 0.06", "82.82 ± 0.01"),
    ),
    "omniglot": _Set(
        "Omniglot's drawings, binarised anew in every batch",
        "omniglot",
        (23_000, 1_345),
        (512, 512),
        5,
        20,
        _figures("104.28 ± 0.39", "102.65 ± 0.42", "102.41 ± 0.04", "99.00 ± 0.04", "98.33 ± 0.09"),
    ),
    "frey": _Set(
        "Frey's faces, of 256 grey levels",
        "frey",
        (1_565, 200),
        (512, 512),
        2,
        20,
        _figures("4.53 ± 0.02", "4.40 ± 0.06", "4.47 ± 0.05", "4.45 ± 0.04", "4.39 ± 0.01"),
        unit="bits/dim",
        image_scale=0.02,  # with more, single faces had paths that exploded once in a few hundred steps
        matrix_scale=0.05,  # a rank's part: with 1, matrices learnt faces by heart (docs/vae.md)
    ),
    "caltech": _Set(
        "Caltech's silhouettes",
        "caltech",
        (4_100, 2_264),
        (2048,),
        1,
        20,
        _figures("110.80 ± 0.46", "109.66 ± 0.42", "111.58 ± 0.38", "104.62 ± 0.29", "104.03 ± 0.43"),
        nonlinearity="tanh",
    ),
}
"""Data sets by the name of their experiments."""


def images_of(data: str) -> str:
    """The set of images of `vae/NAME`."""
    return SETS[data].images if data in SETS else data


def in_the_paper(data: str, posterior: str) -> str:
    """The paper's test negative ELBO of a posterior, with its unit; of Sylvester flows it has one for all kinds."""
    if data not in SETS:
        return "–"
    figures = SETS[data].paper
    known = "ffjord" if posterior in FFJORDS else posterior
    return f"{figures.get(known, figures['sylvester'])} {SETS[data].unit}"


_PAPER_SOLVE = SolveConfig(
    divergence="hutchinson", gradient="adjoint", test_rtol=1e-5, test_atol=1e-5, test_steps_shared_by="batch"
)
_FAST_SOLVE = replace(_PAPER_SOLVE, gradient="checkpointed", rtol=1e-3, atol=1e-3)


def _experiment(name: str, about: _Set) -> Experiment:
    """FFJORD with the paper's settings: Adam at 1e-3 until validation stalls, counted in epochs."""
    return Experiment(
        name=f"vae/{name}",
        summary=about.summary,
        paper=in_the_paper(name, "ffjord"),
        data=DataConfig(name=f"vae/{about.images}", num_validation=about.rows[1]),
        model=ModelConfig(
            posterior="ffjord",
            hidden=about.hidden,
            layer="concat",
            flows=about.flows,
            rank=about.rank,
            image_scale=about.image_scale,
            matrix_scale=about.matrix_scale,
            nonlinearity=about.nonlinearity,  # pyright: ignore[reportArgumentType]
            end_time=0.5,
        ),
        solve=_PAPER_SOLVE,
        train=TrainConfig(
            objective="elbo",
            steps=20 * _EPOCHS * about.epoch,  # until validation stalls
            batch_size=_BATCH,
            learning_rate=1e-3,
            schedule="constant",
            kl_warmup=_EPOCHS * about.epoch,
            weight_decay=0.0,
            clip=None,
            validate_every=about.epoch,
            patience=_EPOCHS,
            drops=0,
            checkpoint_minutes=10.0,
            checkpoint_best=False,  # the features' linear maps make a state a gigabyte large
            steps_per_call=1,
        ),
    )


def _fast(paper: Experiment) -> Experiment:
    """Ours: looser solves in training with their exact gradient; and where there is one hidden layer, whose trace is
    cheap, the exact one. All else is the same, so that it can be compared with other posteriors."""
    trace = "closed-form" if len(paper.model.hidden) == 1 else "hutchinson"
    return replace(
        paper,
        name=f"{paper.name}-fast",
        summary=f"{paper.summary.split(',')[0]}, looser solves",
        solve=replace(_FAST_SOLVE, divergence=trace),
    )


def _bias(fast: Experiment) -> Experiment:
    """The same with biases alone that depend on the image, which the paper tried too: few weights, and quick steps."""
    return replace(
        fast,
        name=f"{fast.name.removesuffix('-fast')}-bias",
        summary=f"{fast.summary}, images tell biases alone",
        model=replace(fast.model, amortization="bias"),
    )


def _with(one: Experiment, posterior: str) -> Experiment:
    """The same autoencoder with another posterior, as large as van den Berg et al. have it: 16 flows."""
    latent, scale = one.model.latent, one.model.image_scale
    model = {
        "none": ModelConfig(),
        "planar": ModelConfig(flows=16),
        "iaf": ModelConfig(flows=16, hidden=(20 * latent,), nonlinearity="elu"),
        "orthogonal": ModelConfig(flows=16, columns=latent // 2),
        "householder": ModelConfig(flows=16, reflections=8),
        "triangular": ModelConfig(flows=16),
    }[posterior]
    return replace(
        one,
        name=f"{one.name}-{posterior}",
        summary=f"{one.summary}, {posterior}",
        paper=in_the_paper(one.name.removeprefix("vae/"), posterior),
        model=replace(model, posterior=posterior, layer="concat", latent=latent, image_scale=scale),  # pyright: ignore[reportArgumentType]
    )


_DIGITS = _Set(
    "scikit-learn's 8 × 8 digits",
    "digits",
    (1_259, 179),
    (128,),
    1,
    10,
    dict.fromkeys(_KNOWN, ""),
    nonlinearity="tanh",
    unit="bits/dim",
)


def _small() -> Experiment:
    """Not in the paper: needs no files, and trains in minutes."""
    full = _experiment("digits", _DIGITS)
    model, train = replace(full.model, latent=8), full.train
    train = replace(train, kl_warmup=20 * _DIGITS.epoch, average=0.99, patience=30, learning_rate=2e-3)
    return replace(full, model=model, solve=replace(_FAST_SOLVE, divergence="closed-form"), train=train)


_ALL = {"digits": _small(), **{name: _experiment(name, about) for name, about in SETS.items()}}
_PAPERS = [_ALL[name] for name in SETS]

_FAST = [_fast(paper) for paper in _PAPERS]

AUTOENCODERS = [*_ALL.values(), *_FAST, *map(_bias, _FAST)]
"""FFJORD in the posterior."""

COMPARED_AUTOENCODERS = [_with(one, posterior) for one in _ALL.values() for posterior in POSTERIORS]
"""Other posteriors."""
