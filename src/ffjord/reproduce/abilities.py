"""What a model can do, found out by trying it: the columns of Table 1."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr

from ffjord.bijections import CNF, Chain, Repeated
from ffjord.bijections.base import AbstractBijection
from ffjord.experiments.config import ModelConfig, SolveConfig
from ffjord.flow import Flow
from ffjord.models import build_model
from ffjord.parameters import trainable

UNKNOWN = 50
"""How many times a loop of unknown length is taken to run: an ODE solve, a search for a root."""

MUCH = 3.0
"""Times as many passes that one direction may need before it counts as the hard one."""

_FEW, _MANY = 5, 10
_SOLVE = SolveConfig(test_rtol=1e-11, test_atol=1e-11, test_steps_shared_by="worst", divergence="exact")


class Abilities(NamedTuple):
    """A row of Table 1."""

    trains_on_data: bool
    """The density of a given point needs no more than `MUCH` times the passes of a sample."""
    samples_in_one_pass: bool
    """And the reverse, and the passes of a sample do not grow with the number of columns."""
    exact_likelihood: bool
    """log p equals that of the brute-force Jacobian's determinant."""
    free_form: bool
    """Some part has a Jacobian whose every entry, and every direction, depends on the point."""


def abilities(model: ModelConfig) -> Abilities:
    """Builds the model twice, for few and for more columns, with arbitrary weights, and tries it (in float64)."""
    few, many = (_arbitrary(build_model(dim, model, _SOLVE, key=jax.random.key(0))) for dim in (_FEW, _MANY))
    density, sampling = (passes(direction, few, model.hidden[0]) for direction in (_density, _sample))
    quick = sampling <= MUCH * density and passes(_sample, many, model.hidden[0]) == sampling
    return Abilities(density <= MUCH * sampling, quick, _is_exact(few), any(map(_is_free, elementary(few.bijection))))


def passes(direction: Any, flow: Flow, width: int) -> int:
    """Passes through the networks in a direction: products of matrices, with loops counted as often as they run.

    Those with the networks' `width` in a shape count. In a model without networks all do, and turns of loops too.
    """
    arrays, static = eqx.partition(flow, eqx.is_array)
    jaxpr = jax.make_jaxpr(lambda arrays: direction(eqx.combine(arrays, static)))(arrays).jaxpr
    return _count(jaxpr, lambda eqn: _has_width(eqn, width)) or _count(
        jaxpr, lambda eqn: _is_product(eqn) or _is_loop(eqn)
    )


def elementary(bijection: AbstractBijection) -> list[AbstractBijection]:
    """The parts that are not themselves made of parts; of layers that are alike, those of the first."""
    if isinstance(bijection, Chain):
        return [small for part in bijection.parts for small in elementary(part)]
    if isinstance(bijection, Repeated):
        return elementary(jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, bijection.layers))
    return [bijection]


def _arbitrary(flow: Flow) -> Flow:
    """The flow with noise on all its weights: many layers start as the identity."""
    weights, rest = eqx.partition(flow, trainable(flow))
    leaves, structure = jax.tree.flatten(weights)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    noise = [0.3 * jax.random.normal(key, leaf.shape, leaf.dtype) for key, leaf in zip(keys, leaves, strict=True)]
    return eqx.combine(jax.tree.unflatten(structure, [a + b for a, b in zip(leaves, noise, strict=True)]), rest)


def _points(dim: int) -> Any:
    return jnp.asarray(np.random.default_rng(0).normal(size=(4, dim)))


def _density(flow: Flow) -> Any:
    return flow.density(_points(*flow.event_shape)).log_prob


def _sample(flow: Flow) -> Any:
    return flow.sample(4, key=jax.random.key(0))


def _count(jaxpr: Jaxpr, counts: Callable[[Any], bool]) -> int:
    return sum(_times(eqn) * (counts(eqn) + sum(_count(inner, counts) for inner in _inner(eqn))) for eqn in jaxpr.eqns)


def _has_width(eqn: Any, width: int) -> bool:
    return _is_product(eqn) and any(width in value.aval.shape for value in eqn.invars)


def _is_product(eqn: Any) -> bool:
    return eqn.primitive.name == "dot_general"


def _is_loop(eqn: Any) -> bool:
    return eqn.primitive.name in ("scan", "while")


def _times(eqn: Any) -> int:
    return {"scan": eqn.params.get("length", 1), "while": UNKNOWN}.get(eqn.primitive.name, 1)


def _inner(eqn: Any) -> list[Jaxpr]:
    """The programs inside of an operation: a loop's body, a function that is called."""
    values = [v for value in eqn.params.values() for v in (value if isinstance(value, tuple | list) else [value])]
    found = [value.jaxpr if isinstance(value, ClosedJaxpr) else value for value in values]
    return [value for value in found if isinstance(value, Jaxpr)]


def _is_exact(flow: Flow) -> bool:
    """Whether log p(x) is log p(z) + log |det dz/dx|, with the whole Jacobian."""
    x = _points(*flow.event_shape)

    def one(x: Any) -> tuple[Any, Any]:
        z = flow.bijection.inverse(x[None]).value[0]
        return z, z

    jacobians, z = jax.jit(jax.vmap(jax.jacrev(one, has_aux=True)))(x)
    brute = flow.base.log_prob(z) + jnp.linalg.slogdet(jacobians)[1]
    return bool(jnp.max(jnp.abs(flow.log_prob(x) - brute)) < 1e-6)


def _is_free(part: AbstractBijection) -> bool:
    """Whether nothing about the Jacobian of a part is fixed: of a continuous one, that of its dynamics.

    Between two points, every entry of it changes, and the change has full rank. A triangle of zeros, a block that
    stays, a linear map, or a few directions in which all changes happen, make determinants cheap; none of them is here.
    """
    x = _points(_FEW)
    if isinstance(part, CNF):
        function = lambda z: part.dynamics(jnp.asarray(0.3), z)
    else:
        function = lambda z: part.forward(z[None]).value[0]
    first, second = jax.jit(jax.vmap(jax.jacfwd(function)))(x[:2])
    change = np.asarray(first - second)
    return bool(np.all(np.abs(change) > 1e-9) and np.linalg.matrix_rank(change, tol=1e-9) == _FEW)
