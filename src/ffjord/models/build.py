"""The paper's model, put together from its parts."""

import jax
from jaxtyping import PRNGKeyArray

from ffjord.bijections import CNF, ActNorm, Chain, MovingNorm, Numerics
from ffjord.bijections.base import AbstractBijection
from ffjord.choices import DivergenceName
from ffjord.divergence import AbstractDivergence, Bottleneck, ClosedForm, Dynamics, Exact, Hutchinson, automatic
from ffjord.dynamics import MLP
from ffjord.experiments.config import ModelConfig, SolveConfig
from ffjord.flow import Flow, StandardNormal
from ffjord.solve import Solver

MAX_PRODUCTS_IN_TRAINING = 8
MAX_PRODUCTS_IN_TESTING = 1024


def ffjord(dim: int, model: ModelConfig | None = None, solve: SolveConfig | None = None, *, key: PRNGKeyArray) -> Flow:
    """A chain of continuous flows over R^dim, with standard normal base (section 3.2)."""
    model, solve = model or ModelConfig(), solve or SolveConfig()
    if model.flows < 1:
        raise ValueError(f"flows must be at least 1; got {model.flows}.")
    parts: list[AbstractBijection] = []
    for flow_key in jax.random.split(key, model.flows):
        dynamics = MLP(dim, model.hidden, layer=model.layer, nonlinearity=model.nonlinearity, key=flow_key)
        parts += [cnf(dynamics, (dim,), model, solve), *_norm(model.norm, dim)]
    return Flow(StandardNormal((dim,)), Chain(parts) if len(parts) > 1 else parts[0])


def cnf(dynamics: Dynamics, event_shape: tuple[int, ...], model: ModelConfig, solve: SolveConfig) -> CNF:
    """One continuous flow over any dynamics, with the configured numerics for training and testing."""
    return CNF(
        dynamics,
        end_time=model.end_time,
        learn_end_time=model.learn_end_time,
        training=_training_numerics(dynamics, event_shape, solve),
        testing=_testing_numerics(dynamics, event_shape, solve),
    )


def _training_numerics(dynamics: Dynamics, event_shape: tuple[int, ...], solve: SolveConfig) -> Numerics:
    solver = Solver(
        method=solve.method,
        rtol=solve.rtol,
        atol=solve.atol,
        steps=solve.steps_shared_by,
        gradient=solve.gradient,
        max_steps=solve.max_steps,
        num_steps=solve.num_steps,
    )
    return Numerics(_divergence(solve.divergence, dynamics, event_shape, MAX_PRODUCTS_IN_TRAINING, solve), solver)


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
        case "bottleneck":
            return Bottleneck(solve.noise, solve.probes)
        case _:
            raise ValueError(f"divergence must be auto, exact, closed-form, hutchinson or bottleneck; got {name!r}.")


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
