"""Convolutions over one image (height, width, channels) that know the time.

Channels are last, because XLA computes such convolutions faster on CPUs. A layer keeps height and width, halves them,
or doubles them.
"""

import abc
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ffjord.choices import ConvKind
from ffjord.squeezing import squeezed, unsqueezed
from ffjord.xla_convolution import convolution

Change = Literal["keep", "halve", "double"]
"""What a layer does to height and width."""


class Convolution(eqx.Module):
    """y = kernel * x + bias.

    **Arguments:**

    - `in_channels`, `out_channels`: channels of x and y.
    - `size`: of the kernel, odd, 3 by default; of a layer that halves or doubles, a convolution of stride 2 or a
      transposed one, it may be 4 too, and is by default: all places of the larger image are then seen equally often.
    - `change`: what becomes of height and width. Only an even number of rows and columns can be halved.
    """

    kernel: Float[Array, "rows columns in out"]
    bias: Float[Array, " out"]
    change: Change = eqx.field(static=True)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        size: int | None = None,
        *,
        change: Change = "keep",
        key: PRNGKeyArray,
    ):
        size = size if size is not None else 3 if change == "keep" else 4
        if min(in_channels, out_channels) < 1:
            raise ValueError(f"channels must be positive; got {in_channels} and {out_channels}.")
        if size < 1 or (size % 2 == 0 and (size != 4 or change == "keep")):
            raise ValueError(f"size must be odd and positive, or 4 where height and width change; got {size}.")
        shape = (size, size, in_channels, out_channels)
        seen = size**2 * in_channels // (4 if change == "double" else 1)  # a transposed kernel is met in four parts
        draw = lambda key, shape: jax.random.uniform(key, shape, minval=-1.0, maxval=1.0) / seen**0.5
        key_kernel, key_bias = jax.random.split(key)
        self.kernel, self.bias, self.change = draw(key_kernel, shape), draw(key_bias, (out_channels,)), change

    def __call__(self, x: Float[Array, "h w in"]) -> Float[Array, "h2 w2 out"]:
        return convolve(x, self.kernel, self.change) + self.bias

    def zeroed(self) -> "Convolution":
        """The same layer with all of its numbers zero: what it is added to stays as it is at the start."""
        return jax.tree.map(jnp.zeros_like, self)


def convolve(
    x: Float[Array, "h w in"], kernel: Float[Array, "rows columns in out"], change: Change = "keep"
) -> Float[Array, "h2 w2 out"]:
    """The convolution of an image with zeros around it.

    - keep:    y[i] = Σ_k K[k] x[i + k - size//2]
    - halve:   y[i] = Σ_k K[k] x[2i + k - (size-1)//2]
    - double:  y[2i] = Σ_k K[2k] x[i + k - 1],   y[2i+1] = Σ_k K[2k+1] x[i + k]

    in each of the two directions.
    """
    size, _, channels, out = kernel.shape
    if size == 1:
        return x @ kernel[0, 0]
    if change == "keep":
        return convolution(x[None], kernel, size // 2)[0]
    half = (size + 1) // 2
    even = jnp.pad(kernel, ((0, 2 * half - size), (0, 2 * half - size), (0, 0), (0, 0)))
    split = even.reshape(half, 2, half, 2, channels, out)  # K[2a + p, 2b + q] at [a, p, b, q]
    if change == "halve":
        if x.shape[0] % 2 or x.shape[1] % 2:
            raise ValueError(f"height and width must be even to be halved; got {x.shape[0]} × {x.shape[1]}.")
        around = ((size - 1) // 2, 2 * half - 2 - (size - 1) // 2)
        blocks = squeezed(jnp.pad(x, (around, around, (0, 0))))
        folded = split.transpose(0, 2, 1, 3, 4, 5).reshape(half, half, 4 * channels, out)
        return convolution(blocks[None], folded, 0)[0]
    folded = split.transpose(0, 2, 4, 1, 3, 5).reshape(half, half, channels, 4 * out)
    phases = convolution(jnp.pad(x, ((1, half - 1), (1, half - 1), (0, 0)))[None], folded, 0)[0]
    h, w, _ = x.shape
    parts = [phases[a : h + a, b : w + b, (2 * a + b) * out : (2 * a + b + 1) * out] for a in (0, 1) for b in (0, 1)]
    return unsqueezed(jnp.concatenate(parts, axis=-1))


class AbstractTimeConvolution(eqx.Module):
    """A convolution whose coefficients, or input, depend on t."""

    @abc.abstractmethod
    def __call__(self, t: Float[Array, ""], x: Float[Array, "h w in"]) -> Float[Array, "h2 w2 out"]:
        """The layer's value at time t."""


class Ignore(AbstractTimeConvolution):
    """y = K * x + b: the time has no influence."""

    inner: Convolution

    def __init__(self, in_channels: int, out_channels: int, *, key: PRNGKeyArray, **shape: Any):
        self.inner = Convolution(in_channels, out_channels, key=key, **shape)

    def __call__(self, t: Float[Array, ""], x: Float[Array, "h w in"]) -> Float[Array, "h2 w2 out"]:
        return self.inner(x)


class Concat(AbstractTimeConvolution):
    """y = K * [t, x] + b: the time is one more channel. The authors' choice for images."""

    inner: Convolution

    def __init__(self, in_channels: int, out_channels: int, *, key: PRNGKeyArray, **shape: Any):
        self.inner = Convolution(in_channels + 1, out_channels, key=key, **shape)

    def __call__(self, t: Float[Array, ""], x: Float[Array, "h w in"]) -> Float[Array, "h2 w2 out"]:
        return _beside(self.inner, _everywhere(t, x), x)


class ConcatCoord(AbstractTimeConvolution):
    """y = K * [t, row, column, x] + b: the time and the place, both from 0 to 1, are more channels."""

    inner: Convolution

    def __init__(self, in_channels: int, out_channels: int, *, key: PRNGKeyArray, **shape: Any):
        self.inner = Convolution(in_channels + 3, out_channels, key=key, **shape)

    def __call__(self, t: Float[Array, ""], x: Float[Array, "h w in"]) -> Float[Array, "h2 w2 out"]:
        places = np.stack(np.meshgrid(*(np.linspace(0, 1, n) for n in x.shape[:2]), indexing="ij"), axis=-1)
        return _beside(self.inner, jnp.concatenate([_everywhere(t, x), jnp.asarray(places, x.dtype)], axis=-1), x)


class Squash(AbstractTimeConvolution):
    """y = (K * x + b) sigmoid(v t + c): the time opens and closes a gate on every channel."""

    inner: Convolution
    gate: Float[Array, "2 out"]

    def __init__(self, in_channels: int, out_channels: int, *, key: PRNGKeyArray, **shape: Any):
        key_inner, key_gate = jax.random.split(key)
        self.inner = Convolution(in_channels, out_channels, key=key_inner, **shape)
        self.gate = _of_time(2, out_channels, key=key_gate)

    def __call__(self, t: Float[Array, ""], x: Float[Array, "h w in"]) -> Float[Array, "h2 w2 out"]:
        slope, start = self.gate
        return self.inner(x) * jax.nn.sigmoid(slope * t + start)


class ConcatSquash(AbstractTimeConvolution):
    """y = (K * x + b) sigmoid(v t + c) + u t: a gate and a moving bias."""

    squash: Squash
    shift: Float[Array, "1 out"]

    def __init__(self, in_channels: int, out_channels: int, *, key: PRNGKeyArray, **shape: Any):
        key_squash, key_shift = jax.random.split(key)
        self.squash = Squash(in_channels, out_channels, key=key_squash, **shape)
        self.shift = _of_time(1, out_channels, key=key_shift)

    def __call__(self, t: Float[Array, ""], x: Float[Array, "h w in"]) -> Float[Array, "h2 w2 out"]:
        return self.squash(t, x) + self.shift[0] * t


class Hyper(AbstractTimeConvolution):
    """y = K(t) * x + b(t), where K and b start as usual and a small network of t adds to them."""

    inner: Convolution
    hypernet: eqx.nn.MLP

    def __init__(self, in_channels: int, out_channels: int, *, width: int = 8, key: PRNGKeyArray, **shape: Any):
        key_inner, key_net = jax.random.split(key)
        self.inner = Convolution(in_channels, out_channels, key=key_inner, **shape)
        size = self.inner.kernel.size + out_channels
        net = eqx.nn.MLP("scalar", size, width, depth=1, activation=jnp.tanh, key=key_net)
        small = 0.1 * (out_channels / self.inner.kernel.size) ** 0.5  # of the kernel's own size, a tenth
        last = lambda net: (net.layers[-1].weight, net.layers[-1].bias)
        self.hypernet = eqx.tree_at(last, net, (small * last(net)[0], jnp.zeros(size)))

    def __call__(self, t: Float[Array, ""], x: Float[Array, "h w in"]) -> Float[Array, "h2 w2 out"]:
        bias, kernel = jnp.split(self.hypernet(t), [self.inner.bias.size])
        kernel = self.inner.kernel + kernel.reshape(self.inner.kernel.shape)
        return convolve(x, kernel, self.inner.change) + self.inner.bias + bias


class Blend(AbstractTimeConvolution):
    """y = (1 - t) (K0 * x + b0) + t (K1 * x + b1): from one convolution to another."""

    first: Convolution
    second: Convolution

    def __init__(self, in_channels: int, out_channels: int, *, key: PRNGKeyArray, **shape: Any):
        key_first, key_second = jax.random.split(key)
        self.first = Convolution(in_channels, out_channels, key=key_first, **shape)
        self.second = Convolution(in_channels, out_channels, key=key_second, **shape)

    def __call__(self, t: Float[Array, ""], x: Float[Array, "h w in"]) -> Float[Array, "h2 w2 out"]:
        return jax.tree.map(lambda a, b: a + t * (b - a), self.first, self.second)(x)


_KINDS: dict[str, type] = {
    "ignore": Ignore,
    "concat": Concat,
    "squash": Squash,
    "concatsquash": ConcatSquash,
    "hyper": Hyper,
    "blend": Blend,
    "concatcoord": ConcatCoord,
}


def time_convolution(
    kind: ConvKind,
    in_channels: int,
    out_channels: int,
    size: int | None = None,
    *,
    change: Change = "keep",
    key: PRNGKeyArray,
) -> AbstractTimeConvolution:
    """A time-conditioned convolution of the named kind."""
    if kind not in _KINDS:
        raise ValueError(f"layer must be one of {', '.join(get_args(ConvKind))}; got {kind!r}.")
    return _KINDS[kind](in_channels, out_channels, size=size, change=change, key=key)


def _beside(layer: Convolution, known: Array, x: Array) -> Array:
    """The layer's value of [known, x]: in two parts, of which a batch that shares the time computes the first once."""
    first, second = jnp.split(layer.kernel, [known.shape[-1]], axis=2)
    return convolve(x, second, layer.change) + convolve(known, first, layer.change) + layer.bias


def _everywhere(t: Array, x: Array) -> Array:
    """A channel that is t at every place."""
    return jnp.broadcast_to(jnp.asarray(t, x.dtype), (*x.shape[:2], 1))


def _of_time(rows: int, channels: int, *, key: PRNGKeyArray) -> Array:
    """Coefficients of a line in t for every channel, as a linear layer's of one input."""
    return jax.random.uniform(key, (rows, channels), minval=-1.0, maxval=1.0)
