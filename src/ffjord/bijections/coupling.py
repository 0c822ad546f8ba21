"""Glow's affine coupling, over vectors and over images."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from ffjord.bijections.base import AbstractBijection, Report, Transformed
from ffjord.bijections.linear import EachPlace, LULinear
from ffjord.bijections.norm import ActNorm
from ffjord.choices import NonlinearityName
from ffjord.dynamics import Convolution
from ffjord.dynamics import nonlinearity as _sigma


class Coupling(AbstractBijection):
    """z_b = sigmoid(s + 2) x_b + t with s, t = network(x_a, c); x = [x_a, x_b] are the halves of the channels.

    The first half stays as it is. log |det dz/dx| = Σ log sigmoid(s + 2).

    **Arguments:**

    - `event_shape`: shape of x; the last axis is the channels.
    - `network`: makes the network, (in_size, out_size, *, key) -> network. That one maps x_a and a condition (or
      None) of one sample to s and t in one array.
    """

    network: Callable[..., Array]
    kept: int = eqx.field(static=True)

    def __init__(
        self, event_shape: tuple[int, ...], network: Callable[..., Callable[..., Array]], *, key: PRNGKeyArray
    ):
        channels = event_shape[-1]
        if channels < 2:
            raise ValueError(
                f"event_shape must end in at least two channels, of which a coupling changes half; got {event_shape}."
            )
        self.kept = channels // 2
        self.network = network(self.kept, 2 * (channels - self.kept), key=key)

    def forward(
        self,
        z: Float[Array, "n *event"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        kept, changed = jnp.split(z, [self.kept], axis=-1)
        log_scale, shift = self._log_scale_and_shift(kept, condition)
        return _joined(kept, jnp.exp(-log_scale) * (changed - shift), -log_scale)

    def inverse(
        self,
        x: Float[Array, "n *event"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        kept, changed = jnp.split(x, [self.kept], axis=-1)
        log_scale, shift = self._log_scale_and_shift(kept, condition)
        return _joined(kept, jnp.exp(log_scale) * changed + shift, log_scale)

    def _log_scale_and_shift(self, kept: Array, condition: Array | None) -> tuple[Array, Array]:
        s, shift = jnp.split(jax.vmap(self.network)(kept, condition), 2, axis=-1)
        return jax.nn.log_sigmoid(s + 2), shift


class DenseNetwork(eqx.Module):
    """(x_a, c) → (s, t): a perceptron of [x_a, c] whose last layer starts at zero.

    **Arguments:**

    - `hidden`: a width for every hidden layer; all are the same.
    - `nonlinearity`: its name.
    - `condition_size`: size of c, or 0 for none.
    """

    layers: eqx.nn.MLP
    condition_size: int = eqx.field(static=True)

    def __init__(
        self,
        in_size: int,
        out_size: int,
        hidden: Sequence[int] = (64, 64),
        *,
        nonlinearity: NonlinearityName = "relu",
        condition_size: int = 0,
        key: PRNGKeyArray,
    ):
        width, sigma = one_width(hidden), _sigma(nonlinearity)
        mlp = eqx.nn.MLP(in_size + condition_size, out_size, width, len(hidden), activation=sigma, key=key)
        self.layers = eqx.tree_at(lambda mlp: mlp.layers[-1], mlp, replace_fn=_zeroed)
        self.condition_size = condition_size

    def __call__(self, x: Float[Array, " a"], condition: Float[Array, " c"] | None = None) -> Float[Array, " st"]:
        return self.layers(jnp.append(x, condition) if self.condition_size and condition is not None else x)


class ConvNetwork(eqx.Module):
    """x_a → (s, t): convolutions 3×3, 1×1, 3×3 with relu between, the last one zero at the start. Channels are last."""

    layers: tuple[Convolution, ...]

    def __init__(self, in_size: int, out_size: int, width: int = 64, *, key: PRNGKeyArray):
        first, middle, last = jax.random.split(key, 3)
        self.layers = (
            Convolution(in_size, width, key=first),
            Convolution(width, width, 1, key=middle),
            Convolution(width, out_size, key=last).zeroed(),
        )

    def __call__(self, x: Float[Array, "h w a"], condition: Array | None = None) -> Float[Array, "h w st"]:
        first, middle, last = self.layers
        return last(jax.nn.relu(middle(jax.nn.relu(first(x)))))


def glow_step(event_shape: tuple[int, int, int], width: int, *, key: PRNGKeyArray) -> list[AbstractBijection]:
    """The parts of one step of Glow on images (height, width, channels), from the base to the data.

    From the data that is: act-norm of every channel, a 1×1 convolution that starts as a rotation, and a coupling by
    convolutions with `width` filters.
    """
    key_linear, key_coupling = jax.random.split(key)
    channels = event_shape[-1]
    return [
        Coupling(event_shape, partial(ConvNetwork, width=width), key=key_coupling),
        EachPlace(LULinear(channels, key=key_linear)),
        EachPlace(ActNorm((channels,))),
    ]


def one_width(hidden: Sequence[int]) -> int:
    """The width that all hidden layers have; networks of flowjax and Equinox have no others."""
    if len(set(hidden)) != 1 or hidden[0] < 1:
        raise ValueError(f"hidden must be one positive width, repeated for every layer; got {tuple(hidden)}.")
    return hidden[0]


def _zeroed(layer: Any) -> Any:
    return jax.tree.map(jnp.zeros_like, layer)


def _joined(kept: Array, changed: Array, log_scale: Array) -> Transformed:
    log_det = jnp.sum(log_scale, axis=tuple(range(1, log_scale.ndim)))
    return Transformed(jnp.concatenate([kept, changed], axis=-1), log_det, Report.nothing())
