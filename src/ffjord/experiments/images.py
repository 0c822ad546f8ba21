"""Experiments on images: the paper's, those that two cores can train, and the models they are compared with.

Free of JAX. The likelihoods are bits a dimension of uniformly dequantised pixels.
"""

from dataclasses import replace

from ffjord.choices import TimesName
from ffjord.experiments.config import (
    DataConfig,
    Experiment,
    MatchingConfig,
    ModelConfig,
    SolveConfig,
    TrainConfig,
)

_EPOCHS, _BATCH = 500, 900

_PAPER_SOLVE = SolveConfig(
    divergence="hutchinson",
    gradient="adjoint",
    test_divergence="hutchinson",
    test_rtol=1e-5,
    test_atol=1e-5,
    test_steps_shared_by="batch",
)


def _paper(name: str, summary: str, images: int, model: ModelConfig, bits: str) -> Experiment:
    """The paper's settings: 500 epochs of batches of 900, a tenth of the learning rate after 250 of them."""
    data = name.removesuffix("-single")
    return Experiment(
        name=f"image/{name}",
        summary=summary,
        paper=f"{bits} bits/dim",
        data=DataConfig(name=f"image/{data}", num_validation=1000),
        model=replace(model, layer="concat", nonlinearity="softplus", end_time=1.0),
        solve=_PAPER_SOLVE,
        train=TrainConfig(
            steps=_EPOCHS * images // _BATCH,
            batch_size=_BATCH,
            learning_rate=1e-3,
            schedule="drop",
            warmup=1000,
            weight_decay=0.0,
            clip=None,
            validate_every=images // _BATCH,
            steps_per_call=1,
        ),
    )


_MULTISCALE = ModelConfig(dynamics="conv", hidden=(64, 64, 64), flows=2)

_PAPERS = [
    _paper("mnist", "MNIST, multi-scale", 55_000, replace(_MULTISCALE, scales=3), "0.99"),
    _paper(
        "mnist-single",
        "MNIST, one flow with an encoder-decoder",
        55_000,
        ModelConfig(dynamics="encoder-decoder", hidden=(64, 64, 128, 128)),
        "1.05",
    ),
    _paper("cifar10", "CIFAR-10, multi-scale", 45_000, replace(_MULTISCALE, scales=4, logit=0.05), "3.40"),
]

_FAST_SOLVE = replace(_PAPER_SOLVE, gradient="checkpointed", rtol=1e-3, atol=1e-3)


_NETWORKS = {"unet": "U-Net", "mixture": "mixtures told by a U-Net"}


def _fast(paper: Experiment, model: ModelConfig, train: TrainConfig, times: TimesName = "stratified") -> Experiment:
    """Ours: a U-Net, or another network, trained by flow matching."""
    network = _NETWORKS.get(model.dynamics, model.dynamics)
    return replace(
        paper,
        name=f"{paper.name}-fast",
        summary=f"{paper.summary.split(',')[0]}, {network}, by flow matching",
        data=replace(paper.data, num_validation=256),
        model=replace(model, end_time=1.0),
        solve=replace(_FAST_SOLVE, test_rtol=1e-3, test_atol=1e-3),
        train=train,
        matching=MatchingConfig(times=times),
    )


_MATCHED = TrainConfig(
    objective="flow-matching",
    steps=14_000,
    batch_size=64,
    learning_rate=1e-3,
    warmup=500,
    average=0.999,
    weight_decay=1e-4,
    clip=1.0,
    validate_every=2000,
    steps_per_call=20,
)
_UNET = ModelConfig(dynamics="unet", hidden=(64, 128), nonlinearity="swish", gaussianize="levels")

_DIGITS = Experiment(
    name="image/digits",
    summary="scikit-learn's 8 × 8 digits, multi-scale",
    paper="–",
    data=DataConfig(name="image/digits"),
    model=ModelConfig(
        dynamics="conv",
        hidden=(32, 32),
        scales=2,
        layer="concat",
        nonlinearity="softplus",
        gaussianize="levels",
        end_time=1.0,
    ),
    solve=_FAST_SOLVE,
    train=TrainConfig(
        steps=1200,
        batch_size=128,
        learning_rate=3e-3,
        schedule="constant",
        average=0.99,
        validate_every=50,
        steps_per_call=5,
    ),
)

IMAGES = [
    _DIGITS,
    replace(
        _DIGITS,
        name="image/digits-single",
        summary="scikit-learn's 8 × 8 digits, one flow",
        model=replace(_DIGITS.model, hidden=(58, 58), scales=1),
    ),
    replace(
        _DIGITS,
        name="image/digits-fast",
        summary="scikit-learn's 8 × 8 digits, U-Net by flow matching",
        model=replace(_UNET, hidden=(32, 64), blocks=1),
        train=replace(_MATCHED, steps=6000, batch_size=128, validate_every=500, average=0.999, weight_decay=0.01),
    ),
    *_PAPERS,
    _fast(
        _PAPERS[0],
        replace(_UNET, dynamics="mixture", components=16),
        replace(_MATCHED, steps=12_000, batch_size=32),
        times="late",
    ),
    _fast(
        _PAPERS[1],
        replace(_PAPERS[1].model, nonlinearity="swish", gaussianize="levels"),
        _MATCHED,
    ),
    _fast(_PAPERS[2], replace(_UNET, hidden=(64, 128, 128), gaussianize="none", logit=0.05), _MATCHED),
]
"""All of them but comparisons."""


def _compared(experiment: Experiment, kind: str, bits: str, model: ModelConfig) -> Experiment:
    """A data set's experiment with another model, trained on its likelihood."""
    return replace(
        experiment,
        name=f"{experiment.name.removesuffix('-fast')}-{kind}",
        summary=f"{experiment.summary.split(',')[0]}, {kind}",
        paper=f"{bits} bits/dim" if bits else "–",
        model=replace(model, kind=kind, gaussianize=experiment.model.gaussianize, logit=experiment.model.logit),  # pyright: ignore[reportArgumentType]
        train=replace(experiment.train, objective="likelihood"),
    )


_STEPS = ModelConfig(hidden=(64,), flows=8, nonlinearity="relu")

_DIGIT_STEPS = ModelConfig(flows=4, scales=2, nonlinearity="relu")
_NAMED = {experiment.name: experiment for experiment in IMAGES}

COMPARED_IMAGES = [
    _compared(_NAMED["image/digits"], "glow", "", replace(_DIGIT_STEPS, hidden=(48,))),
    _compared(_NAMED["image/digits"], "real-nvp", "", replace(_DIGIT_STEPS, hidden=(30,))),
    _compared(_NAMED["image/mnist-fast"], "glow", "1.05", replace(_STEPS, scales=3)),
    _compared(_NAMED["image/mnist-fast"], "real-nvp", "1.06", replace(_STEPS, scales=3)),
    _compared(_NAMED["image/cifar10-fast"], "glow", "3.35", replace(_STEPS, scales=4)),
    _compared(_NAMED["image/cifar10-fast"], "real-nvp", "3.49", replace(_STEPS, scales=4)),
]
"""The models that the paper compares with."""
