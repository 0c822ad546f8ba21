"""Typed configurations: frozen dataclasses of plain values, a sentence for every field. Free of JAX."""

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Literal

import tyro

from ffjord.choices import (
    Amortization,
    ConvKind,
    CouplingName,
    DivergenceName,
    DynamicsName,
    GaussianizeKind,
    Gradient,
    InterpolantName,
    MethodName,
    ModelKind,
    NoiseKind,
    NonlinearityName,
    NormKind,
    ObjectiveName,
    OptimizerName,
    PosteriorName,
    ScheduleName,
    Steps,
    TimesName,
)


@dataclass(frozen=True)
class DataConfig:
    """What to learn."""

    name: Annotated[str, tyro.conf.Suppress] = "pinwheel"
    """Name of the density or data set; the experiment decides it."""
    image: str | None = None
    """Picture whose darkness is the density (for toy/picture)."""
    data_dir: str | None = None
    """Directory of the data's files; $FFJORD_DATA and the cache are searched too."""
    shuffle: int | None = None
    """Seed by which the images of frey and omniglot are split, if not by the literature's first, 123."""
    num_validation: int = 2048
    """Points for choosing the best model."""
    num_test: int = 100_000
    """Points for the final figure, used by `ffjord evaluate` only; of a table, all are."""


@dataclass(frozen=True)
class FileConfig:
    """The user's table that `ffjord fit` learns; without a path there is none."""

    path: str = ""
    """Where the file is."""
    sha256: str = ""
    """Of its bytes."""
    columns: tuple[str, ...] = ()
    """Names of the columns that are learnt; x1, x2, … where the file has none."""
    condition_on: tuple[str, ...] = ()
    """Names of those that are given."""
    weights: str | None = None
    """Name of the one with the weights of rows."""
    dequantize: tuple[str, ...] = ()
    """Names of those whose values are spread over their spacing by noise."""
    missing: Literal["refuse", "drop"] = "refuse"
    """Whether rows with missing values are refused or dropped."""


@dataclass(frozen=True)
class ModelConfig:
    """The flow."""

    kind: ModelKind = "ffjord"
    """The model: a continuous flow, or one of those that the paper compares it with."""
    dynamics: DynamicsName = "mlp"
    """The network of a continuous flow: the paper's perceptron, a residual one for flow matching, or a planar one; for
    images convolutions, an encoder-decoder, or for flow matching a U-Net, alone or as what tells the mixtures that
    pixels are."""
    hidden: tuple[int, ...] = (64, 64, 64)
    """Widths of the hidden layers of the dynamics, or of the networks of another model; filters of convolutions."""
    layer: ConvKind = "concatsquash"
    """How the layers of an mlp or of convolutions know the time; concatcoord is for convolutions only."""
    frequencies: int = 8
    """Waves of the time that a residual network or a U-Net sees."""
    harmonics: int = 0
    """Waves of every coordinate that a residual network sees: with them it learns sharper densities."""
    nonlinearity: NonlinearityName = "tanh"
    """Nonlinearity of these networks."""
    flows: int = 1
    """Number of flows in a chain, or of another model's layers."""
    components: int = 40
    """Gaussians in every conditional of a TAN or in the mixture of a pixel, or sigmoids in every one of a maf-ddsf."""
    scales: int = 1
    """Scale blocks of a flow over images, of which each sees half the side of the one before; 1 for a single scale."""
    blocks: int = 2
    """Residual blocks of a U-Net at every size."""
    logit: float = 1e-6
    """Alpha of the logit that takes pixels to the line, where gaussianize is none."""
    gaussianize: GaussianizeKind = "none"
    """Fixed map at the data's end, fitted to training rows: every column, or the whitened length, becomes Gaussian; of
    images, frequent grey levels become bumps."""
    knots: int = 256
    """Pieces of that map."""
    posterior: PosteriorName | None = None
    """Of a variational autoencoder: the flow of its posterior, of which hidden, flows and nonlinearity tell the rest;
    orthogonal, householder and triangular are Sylvester flows."""
    latent: int = 64
    """Size of the latent space of a variational autoencoder."""
    amortization: Amortization = "low-rank"
    """What of a continuous posterior's weights depends on the image."""
    image_scale: float = 0.1
    """Factor of what an image adds to the weights of a continuous posterior or to the matrices of a Sylvester flow."""
    matrix_scale: float = 1.0
    """Beside it, factor of the matrices that an image adds to those of a continuous posterior."""
    rank: int = 20
    """Rank of what the image adds to a weight matrix."""
    columns: int = 32
    """Orthonormal columns of an orthogonal Sylvester flow."""
    reflections: int = 8
    """Reflections of a Householder Sylvester flow."""
    norm: NormKind = "none"
    """Normalisation at the data's end and between flows: running-statistics batch norm, or act-norm."""
    end_time: float = 0.5
    """T, where the path ends."""
    learn_end_time: bool = False
    """Make T a parameter."""

    def in_short(self) -> str:
        """A few words: 5 × 64-64 tanh, concatsquash."""
        flows = f"{self.flows} × " if self.flows > 1 else ""
        kind = self.layer if self.dynamics == "mlp" else self.dynamics
        if self.posterior is not None:
            amortized = f"rank {self.rank}" if self.amortization == "low-rank" else f"amortised: {self.amortization}"
            kind = f"{amortized}, latent {self.latent}"
        return f"{flows}{'-'.join(map(str, self.hidden))} {self.nonlinearity}, {kind}"


@dataclass(frozen=True)
class SolveConfig:
    """How paths are solved."""

    method: MethodName = "dopri5"
    """ODE solver: explicit adaptive (dopri5 … heun), implicit (kvaerno5), or fixed-step (euler, midpoint, rk4)."""
    divergence: DivergenceName = "auto"
    """Trace in training: the cheapest exact one, Hutchinson's where exact is too dear, or the one named."""
    noise: NoiseKind = "rademacher"
    """Noise of the estimators."""
    probes: int = 1
    """Noise vectors a sample."""
    rtol: float = 1e-5
    """Relative tolerance in training."""
    atol: float = 1e-5
    """Absolute tolerance in training."""
    steps_shared_by: Steps = "batch"
    """Whose error sets the step size in training: the batch's average, the worst sample's, or each sample's own."""
    gradient: Gradient = "checkpointed"
    """Gradient of a solve: checkpointed, the paper's continuous adjoint, or direct."""
    test_divergence: DivergenceName = "auto"
    """Trace in validation and testing."""
    test_rtol: float = 1e-6
    """Relative tolerance in validation and testing."""
    test_atol: float = 1e-6
    """Absolute tolerance in validation and testing."""
    test_steps_shared_by: Steps = "worst"
    """Whose error sets the step size in validation and testing."""
    max_steps: int = 4096
    """Solver steps after which a solve gives up."""
    num_steps: int = 20
    """Number of steps of the fixed-step methods."""
    start_tolerance: float | None = None
    """Tolerance at the first step of training, from which rtol and atol are approached evenly on a log scale."""


@dataclass(frozen=True)
class MatchingConfig:
    """Flow matching: how points of the base are paired with data, and where between them the network is asked."""

    coupling: CouplingName = "independent"
    """Pairs of base and data: at random, or the assignment with the shortest paths within a batch."""
    interpolant: InterpolantName = "straight"
    """The path from one to the other."""
    times: TimesName = "stratified"
    """Times at which a batch is asked: independent, evenly spread, mostly in the middle, or mostly near the data, as
    errors count in the likelihood."""


@dataclass(frozen=True)
class RegularizationConfig:
    """What is added to the negative log-likelihood per dimension to make paths simple: coefficients of integrals along
    the path."""

    kinetic: float = 0.0
    """∫ |f|² dt / D."""
    jacobian: float = 0.0
    """∫ ‖df/dz‖² dt / D, by the noise of the trace's estimate."""
    derivative: float = 0.0
    """∫ |d^K f/dt^K|² dt / D along the path."""
    derivative_order: int = 1
    """K."""
    mean_speed: float = 0.0
    """∫ mean |f| dt; this one and the five below are the authors'."""
    speed: float = 0.0
    """∫ √(|f|² / D) dt."""
    directional: float = 0.0
    """∫ √(|(df/dz) f|² / D) dt."""
    jacobian_full: float = 0.0
    """∫ √(‖df/dz‖² / D²) dt, from the whole Jacobian."""
    jacobian_diagonal: float = 0.0
    """∫ √(mean (df_i/dz_i)²) dt, from the whole Jacobian."""
    jacobian_off_diagonal: float = 0.0
    """∫ mean over i≠j of (df_i/dz_j)² dt, from the whole Jacobian."""
    steer: float = 0.0
    """Part of T by which the end of the path is moved at random in training (STEER)."""


@dataclass(frozen=True)
class TrainConfig:
    """How the flow is trained."""

    objective: ObjectiveName = "likelihood"
    """What training minimises: the negative log-likelihood, the distance to a velocity (flow matching), or the negative
    bound of a variational autoencoder (elbo)."""
    start_from: str | None = None
    """Run whose best weights training starts from, wherever name and shape agree: a flow that was trained otherwise, or
    encoder and decoder of an autoencoder with another posterior."""
    fit_flow: int = 0
    """Steps, at most, before the first one, in which the flow of a posterior alone learns the posteriors of all images
    together, among the maps that the decoder can follow; with --start-from."""
    flow_rate: float = 1.0
    """Factor of the learning rate for the flow of a posterior: a small one keeps what the flow has learnt alone, until
    the decoder has followed."""
    warm_start: int = 0
    """Steps of flow matching before those of the likelihood, within --steps."""
    likelihood_learning_rate: float | None = None
    """Peak learning rate of the likelihood's steps after a warm start; a tenth of --learning-rate if not given."""
    steps: int = 5000
    """Optimiser steps."""
    max_minutes: float | None = None
    """Stop after so many minutes of training."""
    batch_size: int = 256
    """Points a step."""
    optimizer: OptimizerName = "adam"
    """Adam, or Adamax, which a single large gradient does not throw off its way."""
    learning_rate: float = 3e-3
    """Peak learning rate."""
    schedule: ScheduleName = "cosine"
    """Learning rate over time: constant, falling to zero along a cosine, or a tenth in the second half."""
    warmup: int = 0
    """Steps of linear warm-up."""
    kl_warmup: int = 0
    """Steps over which the weight of a variational autoencoder's KL term rises to 1."""
    weight_decay: float = 1e-5
    """Decoupled weight decay of the weight matrices."""
    spectral_norm: float | None = None
    """Largest singular value of a weight matrix; larger ones are scaled down after every step."""
    clip: float | None = 10.0
    """Largest norm of a gradient; longer ones are shortened."""
    average: float | None = None
    """Decay of the moving average of weights; the average is what is validated and kept."""
    validate_every: int = 100
    """Steps between validations."""
    patience: int | None = None
    """Validations without improvement before the learning rate drops."""
    drops: int = 2
    """Tenfold drops of the learning rate before training stops early."""
    checkpoint_minutes: float = 5.0
    """Minutes between checkpoints."""
    checkpoint_best: bool = True
    """Also write a checkpoint when there is a new best model."""
    max_failures: int = 5
    """Steps that fail in a row (loss, gradient or solve) before training goes back to where it was sound."""
    max_rollbacks: int = 3
    """Times to go back, each with a third of the learning rate, before training gives up."""
    steps_per_call: int = 10
    """Optimiser steps in one compiled call."""


@dataclass(frozen=True)
class Experiment:
    """Everything that determines a run."""

    name: str
    summary: str = ""
    paper: str = ""
    """What the paper reports for it."""
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    solve: SolveConfig = field(default_factory=SolveConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    matching: MatchingConfig = field(default_factory=MatchingConfig)
    regularization: RegularizationConfig = field(default_factory=RegularizationConfig)
    seed: int = 0
    """Seed of everything random."""
    file: FileConfig = field(default_factory=FileConfig)

    def to_dict(self) -> dict:
        """Plain values, for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict) -> "Experiment":
        """The inverse of `to_dict`; unknown or missing parts are a ValueError that names them.

        Settings that an older version did not know have their defaults, which are what it did.
        """
        return _build(cls, values, "config")


_LATER = {"matching", "regularization", "file"}
"""Parts of an experiment that older versions did not know."""


def _build(cls: type, values: dict, where: str):
    if not isinstance(values, dict):
        raise ValueError(f"{where} must be an object; got {type(values).__name__}.")
    names = {f.name: f for f in dataclasses.fields(cls)}
    unknown, missing = set(values) - set(names), set(names) - set(values)
    missing = missing - _LATER if cls is Experiment else missing & {"name"}
    if unknown or missing:
        raise ValueError(f"{where}: unknown fields {sorted(unknown)}, missing fields {sorted(missing)}.")
    out = {}
    for name, value in values.items():
        kind = names[name].type
        if dataclasses.is_dataclass(kind):
            value = _build(kind, value, f"{where}.{name}")  # pyright: ignore[reportArgumentType]
        out[name] = tuple(value) if isinstance(value, list) else value
    return cls(**out)
