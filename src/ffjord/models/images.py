"""Flows over images: FFJORD single- and multi-scale, Glow and Real NVP, from the same parts."""

from collections.abc import Callable
from typing import Any, get_args

import jax
from jaxtyping import PRNGKeyArray

from ffjord.bijections import ActNorm, Chain, EachPlace, Levels, Logit, MovingNorm, OnHalf, Squeezed, glow_step
from ffjord.bijections.base import AbstractBijection
from ffjord.bijections.masked import real_nvp_step
from ffjord.choices import DynamicsName
from ffjord.divergence import Dynamics
from ffjord.dynamics import ConvNet, EncoderDecoder, PixelMixture, UNet
from ffjord.experiments.config import ModelConfig
from ffjord.flow import Flow, StandardNormal

Shape = tuple[int, int, int]
Parts = Callable[[Shape, PRNGKeyArray], list[AbstractBijection]]
"""Makes the parts of a flow over images of a shape, from the base to the data."""
MakeCNF = Callable[[Dynamics, Shape], AbstractBijection]


def image_flow(
    shape: Shape,
    model: ModelConfig,
    make_cnf: MakeCNF,
    *,
    levels: int = 256,
    key: PRNGKeyArray,
) -> Flow:
    """The configured flow over images whose pixels are in [0, 1], with standard normal base.

    `make_cnf` makes a continuous flow of a dynamics; `levels` is the number of grey levels.
    """
    _check(shape, model)
    match model.kind:
        case "ffjord":
            flows = lambda shape, key: _continuous(shape, model, make_cnf, key)
            parts = multiscale(shape, model.scales, before=flows, after=flows, last=flows, key=key)
        case "glow":
            steps = lambda shape, key: _steps(glow_step, shape, model, key)
            parts = multiscale(shape, model.scales, before=_none, after=steps, last=steps, key=key)
        case "real-nvp":
            by_place = lambda shape, key: _steps(real_nvp_step, shape, model, key, pattern="checkerboard")
            by_channel = lambda shape, key: _steps(real_nvp_step, shape, model, key, pattern="channels")
            parts = multiscale(shape, model.scales, before=by_place, after=by_channel, last=by_place, key=key)
        case _:
            raise ValueError(f"kind must be ffjord, glow or real-nvp for images; got {model.kind!r}.")
    return Flow(StandardNormal(shape), Chain([*parts, *_pixels(model, levels)]))


def multiscale(
    shape: Shape, scales: int, *, before: Parts, after: Parts, last: Parts, key: PRNGKeyArray
) -> list[AbstractBijection]:
    """Scale blocks, from the base to the data (appendix B.1, after Dinh et al. 2017).

    On its way from the data an image meets `before`, is squeezed, meets `after`, and half of its channels are factored
    out; the rest goes through the next block. The last block is `last` alone.
    """
    if scales == 1:
        return last(shape, key)
    height, width, channels = shape
    if height % 2 or width % 2:
        raise ValueError(
            f"scales: a block of {height} × {width} pixels cannot be squeezed, because its sides are not even; "
            "use fewer scales."
        )
    key_before, key_after, key_rest = jax.random.split(key, 3)
    small = (height // 2, width // 2, 4 * channels)
    rest = multiscale((*small[:2], 2 * channels), scales - 1, before=before, after=after, last=last, key=key_rest)
    return [Squeezed(Chain([OnHalf(Chain(rest)), *after(small, key_after)])), *before(shape, key_before)]


def _continuous(shape: Shape, model: ModelConfig, make_cnf: MakeCNF, key: PRNGKeyArray) -> list[AbstractBijection]:
    parts: list[AbstractBijection] = []
    for flow_key in jax.random.split(key, model.flows):
        parts += [make_cnf(_dynamics(shape, model, flow_key), shape), *_norm(model.norm, shape[-1])]
    return parts


def _dynamics(shape: Shape, model: ModelConfig, key: PRNGKeyArray) -> Dynamics:
    common: dict[str, Any] = {"nonlinearity": model.nonlinearity, "key": key}
    match model.dynamics:
        case "conv":
            return ConvNet(shape[-1], model.hidden, layer=model.layer, **common)
        case "encoder-decoder":
            return EncoderDecoder(shape, model.hidden, layer=model.layer, **common)
        case "unet":
            return UNet(shape, model.hidden, blocks=model.blocks, frequencies=model.frequencies, **common)
        case "mixture":
            if model.end_time != 1 or model.learn_end_time:
                raise ValueError(f"dynamics mixture: time must go from 0 to 1; got end_time {model.end_time:g}.")
            height, width, channels = shape
            inputs, outputs = (height, width, channels * (1 + model.components)), channels * model.components
            how: dict[str, Any] = {"blocks": model.blocks, "frequencies": model.frequencies} | common
            return PixelMixture(UNet(inputs, model.hidden, outputs=outputs, **how), model.components)
        case _:
            known = ", ".join(get_args(DynamicsName)[-4:])
            raise ValueError(f"dynamics must be one of {known} for images; got {model.dynamics!r}.")


def _steps(make: Callable[..., list], shape: Shape, model: ModelConfig, key: PRNGKeyArray, **kwargs: Any) -> list:
    keys = jax.random.split(key, model.flows)
    return [part for i, k in enumerate(keys) for part in make(shape, model.hidden[0], key=k, **_turn(kwargs, i))]


def _turn(kwargs: dict[str, Any], number: int) -> dict[str, Any]:
    """Patterns are turned over from one coupling to the next."""
    return kwargs | {"flipped": number % 2 == 1} if kwargs else {}


def _none(shape: Shape, key: PRNGKeyArray) -> list[AbstractBijection]:
    return []


def _norm(kind: str, channels: int) -> list[AbstractBijection]:
    norms = {"none": [], "moving": [MovingNorm], "act": [ActNorm]}
    if kind not in norms:
        raise ValueError(f"norm must be none, moving or act; got {kind!r}.")
    return [EachPlace(norm((channels,))) for norm in norms[kind]]


def _pixels(model: ModelConfig, levels: int) -> list[AbstractBijection]:
    """What takes pixels from [0, 1] to the line."""
    if model.gaussianize == "levels":
        return [Levels(levels)]
    if model.gaussianize != "none":
        raise ValueError(f"gaussianize must be none or levels for images; got {model.gaussianize!r}.")
    return [Logit(model.logit)]


def _check(shape: Shape, model: ModelConfig) -> None:
    if len(shape) != 3:
        raise ValueError(f"shape must be (height, width, channels); got {tuple(shape)}.")
    for name in ("flows", "scales", "blocks"):
        if getattr(model, name) < 1:
            raise ValueError(f"{name} must be at least 1; got {getattr(model, name)}.")
    if not model.hidden or min(model.hidden) < 1:
        raise ValueError(f"hidden must be positive numbers of filters; got {tuple(model.hidden)}.")
