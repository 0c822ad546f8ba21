"""Autoregressive models: every column has an affine map, whose coefficients depend on the columns before it.

    z_i = scale(α_i(x_1 … x_{i-1})) x_i + μ_i(x_1 … x_{i-1})

One masked network gives all coefficients in one pass, in the direction in which its input is known. The other direction
fills in one column after another, in D passes. The network's last layer starts at zero: an untrained layer is the
identity.
"""

from collections.abc import Sequence

import equinox as eqx
import flowjax.bijections as fx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from paramax import Parameterize

from ffjord.bijections import ActNorm, Chain, FromFlowjax, MovingNorm
from ffjord.bijections.base import AbstractBijection
from ffjord.bijections.coupling import one_width
from ffjord.dynamics import nonlinearity
from ffjord.experiments.config import ModelConfig
from ffjord.flow import Flow, StandardNormal

_LEAST_SCALE = 1e-3


def made(dim: int, model: ModelConfig, *, condition_size: int = 0, key: PRNGKeyArray) -> Flow:
    """p(x) = Π_i N(x_i; mean and deviation from x_1 … x_{i-1}): densities in one pass, samples in D.

    Germain, Gregor, Murray and Larochelle, "MADE: Masked Autoencoder for Distribution Estimation", ICML 2015.
    """
    if model.flows != 1:
        raise ValueError(f"a made has one layer, so flows must be 1; got {model.flows}. For more, set kind to maf.")
    return maf(dim, model, condition_size=condition_size, key=key)


def maf(dim: int, model: ModelConfig, *, condition_size: int = 0, key: PRNGKeyArray) -> Flow:
    """`flows` MADEs, each the base of the next, in alternating order of columns: densities in one pass, samples in D.

    Papamakarios, Pavlakou and Murray, "Masked Autoregressive Flow for Density Estimation", NeurIPS 2017.
    """
    layers = [fx.Invert(layer) for layer in _layers(dim, model, condition_size, key)]
    return _flow(dim, model, layers, condition_size)


def iaf(dim: int, model: ModelConfig, *, condition_size: int = 0, key: PRNGKeyArray) -> Flow:
    """MAF in the other direction: samples, with their densities, in one pass, and densities of given points in D.

    Kingma et al., "Improving Variational Inference with Inverse Autoregressive Flow", NeurIPS 2016.
    """
    return _flow(dim, model, _layers(dim, model, condition_size, key), condition_size)


def _flow(dim: int, model: ModelConfig, layers: Sequence[fx.AbstractBijection], condition_size: int) -> Flow:
    """The layers as a flow, with the columns normalised and their order reversed between one and the next.

    The normalisation is an act-norm unless `norm` is "moving". Calibrating the chain starts both from data; an act-norm
    then follows the gradient alone, with no statistics that lag behind the layers.
    """
    norm = MovingNorm if model.norm == "moving" else ActNorm
    parts: list[AbstractBijection] = [FromFlowjax(layers[0])]
    for layer in layers[1:]:
        parts += [norm((dim,)), FromFlowjax(fx.Flip((dim,))), FromFlowjax(layer)]
    bijection = Chain(parts) if len(parts) > 1 else parts[0]
    return Flow(StandardNormal((dim,)), bijection, (condition_size,) if condition_size else None)


def _layers(dim: int, model: ModelConfig, condition_size: int, key: PRNGKeyArray) -> list[fx.MaskedAutoregressive]:
    return [_layer(dim, model, condition_size, layer_key) for layer_key in jax.random.split(key, model.flows)]


def _layer(dim: int, model: ModelConfig, condition_size: int, key: PRNGKeyArray) -> fx.MaskedAutoregressive:
    width = one_width(model.hidden)
    least = dim if condition_size else dim - 1
    if width < least:
        raise ValueError(
            f"hidden must be at least {least} wide for {dim} columns; got {width}. A unit of the masked network stands "
            "for the columns up to one of them: with fewer units, some columns would not depend on others."
        )
    layer = fx.MaskedAutoregressive(
        key,
        transformer=_affine(jnp.zeros(2)),
        dim=dim,
        cond_dim=condition_size or None,
        nn_width=width,
        nn_depth=len(model.hidden),
        nn_activation=nonlinearity(model.nonlinearity),
    )
    # A function of this module in place of the layer's own: models built alike then share their compiled programs.
    layer = eqx.tree_at(lambda made: made.transformer_constructor, layer, _affine)
    last = lambda made: made.masked_autoregressive_mlp.layers[-1]
    return eqx.tree_at(lambda made: (last(made).weight.args[1], last(made).bias), layer, replace_fn=jnp.zeros_like)


def _affine(coefficients: Float[Array, " 2"]) -> fx.Affine:
    """y = scale(α) x + μ of one column, from (μ, α)."""
    shift, alpha = coefficients
    return eqx.tree_at(lambda affine: (affine.loc, affine.scale), fx.Affine(), (shift, Parameterize(_scale, alpha)))


def _scale(alpha: Float[Array, "..."]) -> Float[Array, "..."]:
    """A positive number, 1 at zero. In place of exp(α), with which rows far out make the gradients explode."""
    return jax.nn.softplus(alpha + np.log(np.expm1(1 - _LEAST_SCALE))) + _LEAST_SCALE
