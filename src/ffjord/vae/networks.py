"""Encoder and decoder of van den Berg et al. (2018): gated convolutions, and nothing between them."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ffjord.dynamics.convolution import Change, Convolution

FEATURES = 256
"""What the encoder tells of an image, from which mean, variance and the flow's parameters are linear maps."""

_DOWN: tuple[tuple[int, Change], ...] = ((32, "keep"), (32, "halve"), (64, "keep"), (64, "halve"), (64, "keep"))
_UP: tuple[tuple[int, Change], ...] = ((64, "keep"), (32, "double"), (32, "keep"), (32, "double"), (32, "keep"))
_FIRST = 64
"""Channels of the decoder's smallest image."""


class Gated(eqx.Module):
    """y = a · sigmoid(b) with [a, b] = layer(x)."""

    layer: Convolution | eqx.nn.Linear

    def __call__(self, x: Float[Array, "*in"]) -> Float[Array, "*out"]:
        a, b = jnp.split(self.layer(x), 2, axis=-1)
        return a * jax.nn.sigmoid(b)


class Encoder(eqx.Module):
    """An image → 256 features: five gated convolutions of 5 × 5, two of which halve the image, and one as large as it.

    **Arguments:**

    - `shape`: (height, width, channels); height and width can be halved twice.
    """

    layers: tuple[Gated, ...]
    last: Gated

    def __init__(self, shape: tuple[int, int, int], *, key: PRNGKeyArray):
        height, width, channels = _quarter(shape)
        *keys, key_last = jax.random.split(key, len(_DOWN) + 1)
        sizes = (channels, *(n for n, _ in _DOWN))
        self.layers = tuple(
            Gated(Convolution(m, 2 * n, 5, change=change, key=k))
            for m, (n, change), k in zip(sizes[:-1], _DOWN, keys, strict=True)
        )
        # A kernel as large as the image is a linear map of it.
        self.last = Gated(eqx.nn.Linear(height * width * sizes[-1], 2 * FEATURES, key=key_last))

    def __call__(self, x: Float[Array, "h w c"]) -> Float[Array, " 256"]:
        for layer in self.layers:
            x = layer(x)
        return self.last(x.ravel())


class Decoder(eqx.Module):
    """A latent point → what the pixels' distribution is made of: the encoder's mirror, and two layers of its own.

    **Arguments:**

    - `shape`: (height, width, channels) of the image.
    - `latent`: size of z.
    - `outputs`: numbers a pixel: 1 for the logit of a Bernoulli variable, 256 for the logits of grey levels.
    """

    first: Gated
    layers: tuple[Gated, ...]
    wide: Convolution | None
    last: Convolution
    small: tuple[int, int] = eqx.field(static=True)

    def __init__(self, shape: tuple[int, int, int], latent: int, *, outputs: int = 1, key: PRNGKeyArray):
        height, width, channels = _quarter(shape)
        key_first, key_wide, key_last, *keys = jax.random.split(key, len(_UP) + 3)
        self.first = Gated(eqx.nn.Linear(latent, 2 * height * width * _FIRST, key=key_first))
        sizes = (_FIRST, *(n for n, _ in _UP))
        self.layers = tuple(
            Gated(Convolution(m, 2 * n, 5, change=change, key=k))
            for m, (n, change), k in zip(sizes[:-1], _UP, keys, strict=True)
        )
        many = outputs > 1
        self.wide = Convolution(sizes[-1], outputs * channels, 5, key=key_wide) if many else None
        self.last = Convolution(outputs * channels if many else sizes[-1], outputs * channels, 1, key=key_last)
        self.small = (height, width)

    def __call__(self, z: Float[Array, " latent"]) -> Float[Array, "h w outputs"]:
        x = self.first(z).reshape(*self.small, -1)
        for layer in self.layers:
            x = layer(x)
        return self.last(x) if self.wide is None else _after(self.last, self.wide)(x)

    def after(self, matrix: Float[Array, "latent latent"], shift: Float[Array, " latent"]) -> "Decoder":
        """The decoder of L z + μ: the first layer takes in the linear map."""
        weight, bias = self.first.layer.weight, jnp.asarray(self.first.layer.bias)  # pyright: ignore[reportAttributeAccessIssue]
        parts = lambda decoder: (decoder.first.layer.weight, decoder.first.layer.bias)
        return eqx.tree_at(parts, self, (weight @ matrix, bias + weight @ shift))


def _after(last: Convolution, wide: Convolution) -> Convolution:
    """Both as one: nothing stands between them, and the product of their kernels is much smaller than an image's."""
    kernel = wide.kernel @ last.kernel[0, 0]
    bias = wide.bias @ last.kernel[0, 0] + last.bias
    return eqx.tree_at(lambda layer: (layer.kernel, layer.bias), wide, (kernel, bias))


def _quarter(shape: tuple[int, int, int]) -> tuple[int, int, int]:
    height, width, channels = shape
    if height % 4 or width % 4:
        raise ValueError(f"shape: height and width must be multiples of 4, to be halved twice; got {height} × {width}.")
    return height // 4, width // 4, channels
