"""Flows of coupling layers: NICE, Real NVP and Glow, over vectors."""

from functools import partial

import equinox as eqx
import flowjax.bijections as flowjax
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray
from paramax import Parameterize

from ffjord.bijections.base import AbstractBijection
from ffjord.bijections.chain import Chain
from ffjord.bijections.coupling import Coupling, DenseNetwork, one_width
from ffjord.bijections.foreign import FromFlowjax
from ffjord.bijections.linear import LULinear
from ffjord.bijections.norm import ActNorm, MovingNorm
from ffjord.bijections.repeated import Repeated
from ffjord.dynamics import nonlinearity
from ffjord.experiments.config import ModelConfig
from ffjord.flow import Flow, StandardNormal


def nice(dim: int, model: ModelConfig, *, condition_size: int = 0, key: PRNGKeyArray) -> Flow:
    """NICE (Dinh et al. 2014): additive couplings x_b = z_b + t(z_a), and a diagonal scaling at the base.

    The scaling is an act-norm: it starts from the data. Its shift adds nothing that the couplings could not do.
    """
    build = partial(_halves, dim, model, flowjax.Loc(jnp.zeros(())), condition_size)
    return _flow(dim, Chain([ActNorm((dim,)), Repeated(build, model.flows, key=key)]), condition_size)


def real_nvp(dim: int, model: ModelConfig, *, condition_size: int = 0, key: PRNGKeyArray) -> Flow:
    """Real NVP (Dinh et al. 2017): couplings x_b = exp(s(z_a)) z_b + t(z_a), with norms between.

    The norms are act-norms, or with `norm` = moving running-statistics batch norms as in that paper. The log-scale is
    bounded, |s| < 2: no layer can grow without limit. The norms have scales of their own.
    """
    scale = Parameterize(_bounded_exp, jnp.zeros(()))
    affine = eqx.tree_at(lambda affine: affine.scale, flowjax.Affine(), scale)
    norm = MovingNorm if model.norm == "moving" else ActNorm
    build = lambda key: Chain([_halves(dim, model, affine, condition_size, key), norm((dim,))])
    return _flow(dim, Repeated(build, model.flows, key=key), condition_size)


def glow(dim: int, model: ModelConfig, *, condition_size: int = 0, key: PRNGKeyArray) -> Flow:
    """Glow (Kingma & Dhariwal 2018): blocks of act-norm, a trained linear map and an affine coupling."""
    network = partial(DenseNetwork, hidden=model.hidden, nonlinearity=model.nonlinearity, condition_size=condition_size)

    def build(key: PRNGKeyArray) -> Chain:
        key_linear, key_coupling = jax.random.split(key)
        coupling = Coupling((dim,), network, key=key_coupling)
        return Chain([coupling, LULinear(dim, key=key_linear), ActNorm((dim,))])

    _check(dim)
    return _flow(dim, Repeated(build, model.flows, key=key), condition_size)


def _halves(
    dim: int,
    model: ModelConfig,
    transformer: flowjax.AbstractBijection,
    condition_size: int,
    key: PRNGKeyArray,
) -> FromFlowjax:
    """A coupling of flowjax; then the columns that it kept go to the end, and the next coupling changes those.

    Reversing the order would do only for an even number of columns: of an odd one, the middle column is never kept.
    """
    _check(dim)
    coupling = flowjax.Coupling(
        key,
        transformer=transformer,
        untransformed_dim=dim // 2,
        dim=dim,
        cond_dim=condition_size or None,
        nn_width=one_width(model.hidden),
        nn_depth=len(model.hidden),
        nn_activation=nonlinearity(model.nonlinearity),
    )
    order = jnp.roll(jnp.arange(dim), -(dim // 2))
    return FromFlowjax(flowjax.Chain([coupling, flowjax.Permute(order)]))


def _check(dim: int) -> None:
    if dim < 2:
        raise ValueError(f"dim must be at least 2 for a coupling, which changes half of the columns; got {dim}.")


def _bounded_exp(s: Array) -> Array:
    return jnp.exp(2 * jnp.tanh(s / 2))


def _flow(dim: int, bijection: AbstractBijection, condition_size: int) -> Flow:
    return Flow(StandardNormal((dim,)), bijection, (condition_size,) if condition_size else None)
