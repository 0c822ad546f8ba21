"""Variational autoencoders: the paper's data, posteriors and settings (section 4.3 and appendix B.2). Free of JAX."""

from dataclasses import dataclass, replace

from ffjord.experiments.config import DataConfig, Experiment, ModelConfig, SolveConfig, TrainConfig

POSTERIORS = ("none", "planar", "iaf", "orthogonal", "householder", "triangular")
"""What the paper compares FFJORD with; the last three are Sylvester flows."""

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
        _figures("86.55 ± .06", "86.06 ± .31", "84.20 ± .17", "83.32 ± .06", "82.82 ± .01"),
    ),
    "omniglot": _Set(
        "Omniglot's drawings, binarised anew in every batch",
        "omniglot",
        (23_000, 1_345),
        (512, 512),
        5,
        20,
        _figures("104.28 ± .39", "102.65 ± .42", "102.41 ± .04", "99.00 ± .04", "98.33 ± .09"),
    ),
    "frey": _Set(
        "Frey's faces, of 256 grey levels",
        "frey",
        (1_565, 200),
        (512, 512),
        2,
        20,
        _figures("4.53 ± .02", "4.40 ± .06", "4.47 ± .05", "4.45 ± .04", "4.39 ± .01"),
        unit="bits/dim",
    ),
    "caltech": _Set(
        "Caltech's silhouettes",
        "caltech",
        (4_100, 2_264),
        (2048,),
        1,
        20,
        _figures("110.80 ± .46", "109.66 ± .42", "111.58 ± .38", "104.62 ± .29", "104.03 ± .43"),
        nonlinearity="tanh",
    ),
}
"""Data sets by the name of their experiments."""

_PAPER_SOLVE = SolveConfig(
    divergence="hutchinson", gradient="adjoint", test_rtol=1e-5, test_atol=1e-5, test_steps_shared_by="batch"
)
_FAST_SOLVE = replace(_PAPER_SOLVE, gradient="checkpointed", rtol=1e-3, atol=1e-3)


def _experiment(name: str, about: _Set) -> Experiment:
    """FFJORD with the paper's settings: Adam at 1e-3 until validation stalls, counted in epochs."""
    return Experiment(
        name=f"vae/{name}",
        summary=about.summary,
        paper=f"{about.paper['ffjord']} {about.unit}",
        data=DataConfig(name=f"vae/{about.images}", num_validation=about.rows[1]),
        model=ModelConfig(
            posterior="ffjord",
            hidden=about.hidden,
            layer="concat",
            flows=about.flows,
            rank=about.rank,
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
            steps_per_call=1,
        ),
    )


def _fast(paper: Experiment) -> Experiment:
    """Ours: looser solves in training with their exact gradient, averaged weights, and where there is one hidden layer,
    whose trace is cheap, the exact one."""
    trace = "closed-form" if len(paper.model.hidden) == 1 else "hutchinson"
    return replace(
        paper,
        name=f"{paper.name}-fast",
        summary=f"{paper.summary}; looser solves, averaged weights",
        solve=replace(_FAST_SOLVE, divergence=trace),
        train=replace(paper.train, average=0.999, clip=100.0),
    )


def _with(paper: Experiment, about: _Set, posterior: str) -> Experiment:
    """The same autoencoder with another posterior, as large as van den Berg et al. have it: 16 flows."""
    model = {
        "none": ModelConfig(),
        "planar": ModelConfig(flows=16),
        "iaf": ModelConfig(flows=16, hidden=(1280,), nonlinearity="elu"),
        "orthogonal": ModelConfig(flows=16, columns=32),
        "householder": ModelConfig(flows=16, reflections=8),
        "triangular": ModelConfig(flows=16),
    }[posterior]
    known = about.paper.get(posterior, about.paper["sylvester"])
    return replace(
        paper,
        name=f"{paper.name}-{posterior}",
        summary=f"{about.summary}, {posterior}",
        paper=f"{known} {about.unit}",
        model=replace(model, posterior=posterior, layer="concat", latent=paper.model.latent),
    )


_PAPERS = {name: _experiment(name, about) for name, about in SETS.items()}

AUTOENCODERS = [*_PAPERS.values(), *(_fast(paper) for paper in _PAPERS.values())]
"""FFJORD in the posterior."""

COMPARED_AUTOENCODERS = [
    _with(paper, SETS[name], posterior) for name, paper in _PAPERS.items() for posterior in POSTERIORS
]
"""Other posteriors."""
