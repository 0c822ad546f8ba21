"""MAF with deep dense sigmoidal flows in place of affine maps."""

import flowjax.bijections
from jaxtyping import PRNGKeyArray

from ffjord.bijections import ActNorm, Chain, FromFlowjax, MovingNorm, Repeated, SigmoidalAutoregressive
from ffjord.experiments.config import ModelConfig
from ffjord.flow import Flow, StandardNormal


def maf_ddsf(dim: int, model: ModelConfig, *, condition_size: int = 0, key: PRNGKeyArray) -> Flow:
    """`flows` autoregressive maps, every column's a network of two layers of `components` sigmoids (16 are many).

    Between them the columns are normalised, as in our MAF, and their order is reversed. Densities are in closed form,
    in one pass; samples are numerical, in D passes a layer.

    Huang, Krueger, Lacoste and Courville, "Neural Autoregressive Flows", ICML 2018.
    """
    if model.components < 1:
        raise ValueError(f"components must be at least 1; got {model.components}.")
    norm = MovingNorm if model.norm == "moving" else ActNorm

    def build(key: PRNGKeyArray) -> Chain:
        layer = SigmoidalAutoregressive(
            dim,
            model.components,
            model.hidden,
            nonlinearity=model.nonlinearity,
            condition_size=condition_size,
            key=key,
        )
        return Chain([layer, FromFlowjax(flowjax.bijections.Flip((dim,))), norm((dim,))])

    bijection = Repeated(build, model.flows, key=key)
    return Flow(StandardNormal((dim,)), bijection, (condition_size,) if condition_size else None)
