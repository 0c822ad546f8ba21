"""Transformation autoregressive networks."""

import jax
from jaxtyping import PRNGKeyArray

from ffjord.autoregressive import AutoregressiveMixture
from ffjord.bijections import ActNorm, Chain, LULinear, Recurrent, Repeated
from ffjord.experiments.config import ModelConfig
from ffjord.flow import Flow


def tan(dim: int, model: ModelConfig, *, condition_size: int = 0, key: PRNGKeyArray) -> Flow:
    """`flows` times a linear and a recurrent transformation, then conditionals that are mixtures of `components`.

    The linear one is A (x - b), where A starts at the data's scale and b at its mean. The first of `hidden` is the
    width of every GRU, the others are those of the networks on top of it.

    Oliva et al., "Transformation Autoregressive Networks", ICML 2018.
    """
    if condition_size:
        raise ValueError(
            f"a tan takes no conditions, so condition_size must be 0; got {condition_size}. maf-ddsf does."
        )
    key_base, key_layers = jax.random.split(key)

    def build(key: PRNGKeyArray) -> Chain:
        key_recurrent, key_linear = jax.random.split(key)
        recurrent = Recurrent(dim, model.hidden, nonlinearity=model.nonlinearity, key=key_recurrent)
        return Chain([recurrent, LULinear(dim, start="identity", key=key_linear), ActNorm((dim,))])

    base = AutoregressiveMixture(dim, model.components, model.hidden, nonlinearity=model.nonlinearity, key=key_base)
    return Flow(base, Repeated(build, model.flows, key=key_layers))
