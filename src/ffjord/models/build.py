"""The paper's model, put together from its parts."""

from typing import cast, get_args

import jax
from jaxtyping import PRNGKeyArray

from ffjord.bijections import CNF, ActNorm, Chain, Marginals, MovingNorm, Numerics, Radial
from ffjord.bijections.base import AbstractBijection
from ffjord.choices import DivergenceName, DynamicsName, LayerKind, ModelKind
from ffjord.divergence import (
    AbstractDivergence,
    Bottleneck,
    ClosedForm,
    Dynamics,
    Exact,
    Hutchinson,
    HutchPlusPlus,
    Orthogonal,
    automatic,
)
from ffjord.dynamics import MLP, Planar, ResidualMLP
from ffjord.experiments.config import ModelConfig, RegularizationConfig, SolveConfig
from ffjord.flow import Flow, StandardNormal
from ffjord.models.compared import COMPARED
from ffjord.models.images import image_flow
from ffjord.regularizers import SIMPLE, AbstractRegularizer, TotalDerivative
from ffjord.solve import Solver

MAX_PRODUCTS_IN_TRAINING = 8
MAX_PRODUCTS_IN_TESTING = 1024


def build_model(
    dim: int,
    model: ModelConfig | None = None,
    solve: SolveConfig | None = None,
    regularization: RegularizationConfig | None = None,
    *,
    condition_size: int = 0,
    key: PRNGKeyArray,
) -> Flow:
    """The configured model over R^dim: the paper's, or one that it compares with."""
    model = model or ModelConfig()
    if model.kind == "ffjord":
        return ffjord(dim, model, solve, regularization, condition_size=condition_size, key=key)
    if model.kind not in COMPARED:
        raise ValueError(f"kind must be one of {', '.join(get_args(ModelKind))}; got {model.kind!r}.")
    if model.flows < 1:
        raise ValueError(f"flows must be at least 1; got {model.flows}.")
    flow = COMPARED[model.kind](dim, model, condition_size=condition_size, key=key)
    outer = [*_norm(model.norm, dim), *_gaussianized(model, dim)]
    return Flow(flow.base, Chain([flow.bijection, *outer]), flow.condition_shape) if outer else flow


def ffjord(
    dim: int,
    model: ModelConfig | None = None,
    solve: SolveConfig | None = None,
    regularization: RegularizationConfig | None = None,
    *,
    condition_size: int = 0,
    key: PRNGKeyArray,
) -> Flow:
    """A chain of continuous flows over R^dim, with standard normal base (section 3.2).

    With `condition_size`, the densities p(x | c) for c of that size.
    """
    model, solve = model or ModelConfig(), solve or SolveConfig()
    if model.flows < 1:
        raise ValueError(f"flows must be at least 1; got {model.flows}.")
    parts: list[AbstractBijection] = []
    for flow_key in jax.random.split(key, model.flows):
        dynamics = _dynamics(dim, model, condition_size, flow_key)
        parts += [cnf(dynamics, (dim,), model, solve, regularization), *_norm(model.norm, dim)]
    parts += _gaussianized(model, dim)
    bijection = Chain(parts) if len(parts) > 1 else parts[0]
    return Flow(StandardNormal((dim,)), bijection, (condition_size,) if condition_size else None)


def build_image_model(
    shape: tuple[int, int, int],
    model: ModelConfig,
    solve: SolveConfig | None = None,
    regularization: RegularizationConfig | None = None,
    *,
    levels: int = 256,
    key: PRNGKeyArray,
) -> Flow:
    """The configured model over images (height, width, channels) with pixels in [0, 1]: the paper's, Glow or Real NVP.

    `levels`: how many grey levels a pixel had before it was dequantised.
    """
    solve = solve or SolveConfig()
    make = lambda dynamics, shape: cnf(dynamics, shape, model, solve, regularization)
    return image_flow(shape, model, make, levels=levels, key=key)


def cnf(
    dynamics: Dynamics,
    event_shape: tuple[int, ...],
    model: ModelConfig,
    solve: SolveConfig,
    regularization: RegularizationConfig | None = None,
) -> CNF:
    """One continuous flow over any dynamics, with the configured numerics for training and testing."""
    return CNF(
        dynamics,
        end_time=model.end_time,
        learn_end_time=model.learn_end_time,
        training=_training_numerics(dynamics, event_shape, solve, regularization or RegularizationConfig()),
        testing=_testing_numerics(dynamics, event_shape, solve),
    )


def regularizers(config: RegularizationConfig) -> list[tuple[AbstractRegularizer, float]]:
    """The regularisers that have a coefficient, with it."""
    found: list[tuple[AbstractRegularizer, float]] = [(TotalDerivative(config.derivative_order), config.derivative)]
    found += [(kind(), getattr(config, name)) for name, kind in SIMPLE.items()]
    for regularizer, weight in found:
        if not 0 <= weight < float("inf"):
            raise ValueError(f"{regularizer.name} must be a number and not negative; got {weight}.")
    return [(regularizer, weight) for regularizer, weight in found if weight]


def _dynamics(dim: int, model: ModelConfig, condition_size: int, key: PRNGKeyArray) -> Dynamics:
    common = {"nonlinearity": model.nonlinearity, "condition_size": condition_size, "key": key}
    match model.dynamics:
        case "mlp":
            return MLP(dim, model.hidden, layer=cast(LayerKind, model.layer), **common)
        case "residual":
            return ResidualMLP(dim, model.hidden, frequencies=model.frequencies, harmonics=model.harmonics, **common)
        case "planar":
            return Planar(dim, model.hidden, **common)
        case _:
            known = ", ".join(get_args(DynamicsName)[:3])
            raise ValueError(f"dynamics must be one of {known} for columns; got {model.dynamics!r}.")


def _training_numerics(
    dynamics: Dynamics, event_shape: tuple[int, ...], solve: SolveConfig, regularization: RegularizationConfig
) -> Numerics:
    solver = Solver(
        method=solve.method,
        rtol=solve.rtol,
        atol=solve.atol,
        steps=solve.steps_shared_by,
        gradient=solve.gradient,
        max_steps=solve.max_steps,
        num_steps=solve.num_steps,
    )
    divergence = _divergence(solve.divergence, dynamics, event_shape, MAX_PRODUCTS_IN_TRAINING, solve)
    asked = tuple(regularizer for regularizer, _ in regularizers(regularization))
    return Numerics(divergence, solver, asked, regularization.steer)


def _testing_numerics(dynamics: Dynamics, event_shape: tuple[int, ...], solve: SolveConfig) -> Numerics:
    solver = Solver(
        method=solve.method,
        rtol=solve.test_rtol,
        atol=solve.test_atol,
        steps=solve.test_steps_shared_by,
        max_steps=solve.max_steps,
        num_steps=solve.num_steps,
    )
    return Numerics(_divergence(solve.test_divergence, dynamics, event_shape, MAX_PRODUCTS_IN_TESTING, solve), solver)


def _divergence(
    name: DivergenceName, dynamics: Dynamics, event_shape: tuple[int, ...], max_products: int, solve: SolveConfig
) -> AbstractDivergence:
    match name:
        case "auto":
            return automatic(dynamics, event_shape, max_products=max_products, kind=solve.noise, probes=solve.probes)
        case "exact":
            return Exact()
        case "closed-form":
            return ClosedForm()
        case "hutchinson":
            return Hutchinson(solve.noise, solve.probes)
        case "orthogonal":
            return Orthogonal(solve.probes)
        case "hutch++":
            return HutchPlusPlus(solve.noise, max(3, solve.probes))  # it has no fewer
        case "bottleneck":
            return Bottleneck(solve.noise, solve.probes)
        case _:
            raise ValueError(f"divergence must be one of {', '.join(get_args(DivergenceName))}; got {name!r}.")


def _gaussianized(model: ModelConfig, dim: int) -> list[AbstractBijection]:
    match model.gaussianize:
        case "none":
            return []
        case "marginal":
            return [Marginals(dim, knots=model.knots)]
        case "radial":
            return [Radial(dim, knots=model.knots)]
        case _:
            raise ValueError(f"gaussianize must be none, marginal or radial for columns; got {model.gaussianize!r}.")


def _norm(kind: str, dim: int) -> list[AbstractBijection]:
    match kind:
        case "none":
            return []
        case "moving":
            return [MovingNorm((dim,))]
        case "act":
            return [ActNorm((dim,))]
        case _:
            raise ValueError(f"norm must be none, moving or act; got {kind!r}.")
