"""A small U-Net: made for flow matching on images, and a dynamics like any other."""

import itertools
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ffjord.choices import NonlinearityName
from ffjord.dynamics.convolution import Convolution
from ffjord.dynamics.mlp import nonlinearity as _sigma
from ffjord.dynamics.residual import waves
from ffjord.squeezing import squeezed, unsqueezed


class Block(eqx.Module):
    """h + K_2 * σ(K_1 * σ(norm h) + P e), where e tells the time: a residual block, the identity at the start.

    norm divides every place by the root of its mean square over channels.
    """

    first: Convolution
    second: Convolution
    time: eqx.nn.Linear
    nonlinearity: NonlinearityName = eqx.field(static=True)

    def __init__(self, channels: int, time_size: int, nonlinearity: NonlinearityName, *, key: PRNGKeyArray):
        key_first, key_second, key_time = jax.random.split(key, 3)
        self.first = Convolution(channels, channels, key=key_first)
        self.second = Convolution(channels, channels, key=key_second).zeroed()
        self.time = eqx.nn.Linear(time_size, channels, key=key_time)
        self.nonlinearity = nonlinearity

    def __call__(self, h: Float[Array, "h w c"], time: Float[Array, " e"]) -> Float[Array, "h w c"]:
        sigma = _sigma(self.nonlinearity)
        norm = h * jax.lax.rsqrt(jnp.mean(h**2, axis=-1, keepdims=True) + 1e-6)
        return h + self.second(sigma(self.first(sigma(norm)) + self.time(time)))


class UNet(eqx.Module):
    """f(t, z): down to smaller images with more channels and up again, with what was seen on the way down beside it.

    The image is first squeezed: 2 × 2 pixels become channels of one place, and all places have a bias of their own.
    Then every size has `blocks` residual blocks on the way down and one on the way up. The last layer starts at zero:
    the untrained flow is the identity.

    **Arguments:**

    - `shape`: (height, width, channels) of the image, whose sides can be halved as often as there are sizes.
    - `outputs`: channels of its value, if not as many.
    - `hidden`: channels at every size, from the largest image to the smallest.
    - `blocks`: residual blocks at every size on the way down.
    - `frequencies`: waves of t that the network sees.
    """

    enter: Convolution
    places: Float[Array, "h2 w2 c2"]
    down: tuple[tuple[Block, ...], ...]
    shrink: tuple[Convolution, ...]
    grow: tuple[Convolution, ...]
    join: tuple[Convolution, ...]
    up: tuple[Block, ...]
    leave: Convolution
    time: eqx.nn.Linear
    frequencies: int = eqx.field(static=True)
    nonlinearity: NonlinearityName = eqx.field(static=True)

    def __init__(
        self,
        shape: tuple[int, int, int],
        hidden: Sequence[int] = (64, 128),
        *,
        outputs: int | None = None,
        blocks: int = 2,
        frequencies: int = 8,
        nonlinearity: NonlinearityName = "swish",
        key: PRNGKeyArray,
    ):
        height, width, channels = shape
        if not hidden or min(*hidden, blocks, frequencies) < 1:
            raise ValueError(
                f"hidden, blocks and frequencies must be positive; got {tuple(hidden)}, {blocks}, {frequencies}."
            )
        if height % 2 ** len(hidden) or width % 2 ** len(hidden):
            raise ValueError(
                f"hidden: {len(hidden)} sizes halve the image as often, but {height} × {width} cannot be halved so "
                "often; use fewer."
            )
        _sigma(nonlinearity)
        keys = iter(jax.random.split(key, 4 + len(hidden) * (blocks + 4)))
        size = 4 * frequencies
        block = lambda c: Block(c, size, nonlinearity, key=next(keys))
        pairs = [*itertools.pairwise(hidden)]
        self.enter = Convolution(4 * channels, hidden[0], key=next(keys))
        self.places = jnp.zeros((height // 2, width // 2, hidden[0]))
        self.down = tuple(tuple(block(c) for _ in range(blocks)) for c in hidden)
        self.shrink = tuple(Convolution(m, n, change="halve", key=next(keys)) for m, n in pairs)
        self.grow = tuple(Convolution(n, m, change="double", key=next(keys)) for m, n in pairs)
        self.join = tuple(Convolution(2 * m, m, 1, key=next(keys)) for m, _ in pairs)
        self.up = tuple(block(m) for m, _ in pairs)
        self.leave = Convolution(hidden[0], 4 * (outputs or channels), key=next(keys)).zeroed()
        self.time = eqx.nn.Linear(2 * frequencies, size, key=next(keys))
        self.frequencies, self.nonlinearity = frequencies, nonlinearity

    def __call__(self, t: Float[Array, ""], z: Float[Array, "h w c"]) -> Float[Array, "h w c2"]:
        time = _sigma(self.nonlinearity)(self.time(waves(t, self.frequencies)))
        h = self.enter(squeezed(z)) + self.places
        seen = []
        for level, blocks in enumerate(self.down):
            for block in blocks:
                h = block(h, time)
            if level < len(self.shrink):
                seen.append(h)
                h = self.shrink[level](h)
        for level in reversed(range(len(seen))):
            h = self.join[level](jnp.concatenate([self.grow[level](h), seen[level]], axis=-1))
            h = self.up[level](h, time)
        return unsqueezed(self.leave(_sigma(self.nonlinearity)(h)))
