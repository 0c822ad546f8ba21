"""Convolutional dynamics: a stack of convolutions, and an encoder-decoder with a waist."""

from collections.abc import Sequence

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from ffjord.choices import ConvKind, NonlinearityName
from ffjord.dynamics.convolution import AbstractTimeConvolution, time_convolution
from ffjord.dynamics.mlp import nonlinearity as _sigma


class ConvNet(eqx.Module):
    """f(t, z) = K_L * σ(… σ(K_1 * z)), every convolution 3×3 and conditioned on the time (appendix B.1).

    **Arguments:**

    - `channels`: of the image.
    - `hidden`: filters of the hidden layers.
    - `layer`: how the layers know the time, see `ffjord.dynamics.convolution`.
    """

    layers: tuple[AbstractTimeConvolution, ...]
    nonlinearity: NonlinearityName = eqx.field(static=True)

    def __init__(
        self,
        channels: int,
        hidden: Sequence[int] = (64, 64, 64),
        *,
        layer: ConvKind = "concat",
        nonlinearity: NonlinearityName = "softplus",
        key: PRNGKeyArray,
    ):
        sizes = [channels, *hidden, channels]
        keys = jax.random.split(key, len(sizes) - 1)
        shapes = zip(sizes[:-1], sizes[1:], keys, strict=True)
        _sigma(nonlinearity)  # fail now rather than at the first evaluation
        self.layers = tuple(time_convolution(layer, m, n, key=k) for m, n, k in shapes)
        self.nonlinearity = nonlinearity

    def __call__(self, t: Float[Array, ""], z: Float[Array, "h w c"]) -> Float[Array, "h w c"]:
        return _run(self.layers, self.nonlinearity, t, z)


class EncoderDecoder(eqx.Module):
    """f = decode ∘ encode: convolutions that halve the image at every other layer, and their mirror (appendix B.1).

    The last layer of the encoder is the waist, where the trace may be estimated (`Bottleneck`, equation 9): that pays
    if it holds fewer numbers than the image.

    **Arguments:**

    - `shape`: (height, width, channels) of the image.
    - `hidden`: filters of the encoder's layers; the second, the fourth and so on halve height and width.
    - `layer`: how the layers know the time, see `ffjord.dynamics.convolution`.
    """

    encoder: tuple[AbstractTimeConvolution, ...]
    decoder: tuple[AbstractTimeConvolution, ...]
    nonlinearity: NonlinearityName = eqx.field(static=True)

    def __init__(
        self,
        shape: tuple[int, int, int],
        hidden: Sequence[int] = (64, 64, 128, 128),
        *,
        layer: ConvKind = "concat",
        nonlinearity: NonlinearityName = "softplus",
        key: PRNGKeyArray,
    ):
        if not hidden:
            raise ValueError("hidden must name at least one layer of the encoder; got none.")
        sizes, halvings = [shape[-1], *hidden], len(hidden) // 2
        if any(side % 2**halvings for side in shape[:2]):
            raise ValueError(
                f"hidden: {len(hidden)} layers halve the image {halvings} times, but {shape[0]} × {shape[1]} cannot be "
                f"halved so often; use fewer layers."
            )
        _sigma(nonlinearity)
        down, up = (jax.random.split(k, len(hidden)) for k in jax.random.split(key))
        halves = [i % 2 == 1 for i in range(len(hidden))]
        self.encoder = tuple(
            time_convolution(layer, sizes[i], sizes[i + 1], change="halve" if halves[i] else "keep", key=down[i])
            for i in range(len(hidden))
        )
        self.decoder = tuple(
            time_convolution(layer, sizes[i + 1], sizes[i], change="double" if halves[i] else "keep", key=up[i])
            for i in reversed(range(len(hidden)))
        )
        self.nonlinearity = nonlinearity

    def __call__(self, t: Float[Array, ""], z: Float[Array, "h w c"]) -> Float[Array, "h w c"]:
        return self.decode(t, self.encode(t, z))

    def encode(self, t: Float[Array, ""], z: Float[Array, "h w c"]) -> Float[Array, "h2 w2 waist"]:
        """h, the waist before its nonlinearity."""
        return _run(self.encoder, self.nonlinearity, t, z)

    def decode(self, t: Float[Array, ""], h: Float[Array, "h2 w2 waist"]) -> Float[Array, "h w c"]:
        """g, from the waist to dz/dt."""
        return _run(self.decoder, self.nonlinearity, t, _sigma(self.nonlinearity)(h))


def _run(layers: Sequence[AbstractTimeConvolution], nonlinearity: NonlinearityName, t: Array, h: Array) -> Array:
    *hidden, last = layers
    for layer in hidden:
        h = _sigma(nonlinearity)(layer(t, h))
    return last(t, h)
