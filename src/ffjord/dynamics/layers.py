"""Linear layers that know the time.

Every kind that the authors tried is an affine map of its input whose coefficients depend on t alone:

    y = scale(t) * (weight(t) @ x) + bias(t)

A layer therefore answers one question, `at(t)`: which affine map is it now? Evaluating the layer and
writing the divergence of a whole network in closed form both start from that answer.
"""

import abc
from typing import get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ffjord.choices import LayerKind


class LinearMap(eqx.Module):
    """The affine map y = scale * (weight @ x) + bias, with all coefficients known."""

    weight: Float[Array, "out in"]
    bias: Float[Array, " out"]
    scale: Float[Array, " out"] | None = None

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        columns = self.weight.shape[1]
        # A product as thin as this takes as long as a much larger one; sums of columns are computed with what follows.
        y = x @ self.weight.T if columns > 3 else sum(x[i] * self.weight[:, i] for i in range(columns))
        return (y if self.scale is None else self.scale * y) + self.bias

    def matrix(self) -> Float[Array, "out in"]:
        """The Jacobian dy/dx = diag(scale) @ weight."""
        return self.weight if self.scale is None else self.scale[:, None] * self.weight


class AbstractTimeLinear(eqx.Module):
    """A linear layer whose coefficients are functions of t."""

    @abc.abstractmethod
    def at(self, t: Float[Array, ""]) -> LinearMap:
        """The affine map that this layer is at time t."""

    def __call__(self, t: Float[Array, ""], x: Float[Array, " in"]) -> Float[Array, " out"]:
        return self.at(t)(x)


class Ignore(AbstractTimeLinear):
    """y = W x + b: the time has no influence."""

    linear: eqx.nn.Linear

    def __init__(self, in_size: int, out_size: int, *, key: PRNGKeyArray):
        self.linear = eqx.nn.Linear(in_size, out_size, key=key)

    def at(self, t: Float[Array, ""]) -> LinearMap:
        return _plain(self.linear)


class Concat(AbstractTimeLinear):
    """y = W [t, x] + b: the time is one more input."""

    linear: eqx.nn.Linear

    def __init__(self, in_size: int, out_size: int, *, key: PRNGKeyArray):
        self.linear = eqx.nn.Linear(in_size + 1, out_size, key=key)

    def at(self, t: Float[Array, ""]) -> LinearMap:
        plain = _plain(self.linear)
        return LinearMap(plain.weight[:, 1:], plain.bias + plain.weight[:, 0] * t)


class Squash(AbstractTimeLinear):
    """y = (W x + b) * sigmoid(v t + c): the time opens and closes a gate on every output."""

    linear: eqx.nn.Linear
    gate: eqx.nn.Linear

    def __init__(self, in_size: int, out_size: int, *, key: PRNGKeyArray):
        key_linear, key_gate = jax.random.split(key)
        self.linear = eqx.nn.Linear(in_size, out_size, key=key_linear)
        self.gate = eqx.nn.Linear("scalar", out_size, key=key_gate)

    def at(self, t: Float[Array, ""]) -> LinearMap:
        plain, gate = _plain(self.linear), jax.nn.sigmoid(_of_time(self.gate, t))
        return LinearMap(plain.weight, gate * plain.bias, gate)


class ConcatSquash(AbstractTimeLinear):
    """y = (W x + b) * sigmoid(v t + c) + u t: a gate and a moving bias. The authors' default."""

    linear: eqx.nn.Linear
    gate: eqx.nn.Linear
    shift: eqx.nn.Linear

    def __init__(self, in_size: int, out_size: int, *, key: PRNGKeyArray):
        key_linear, key_gate, key_shift = jax.random.split(key, 3)
        self.linear = eqx.nn.Linear(in_size, out_size, key=key_linear)
        self.gate = eqx.nn.Linear("scalar", out_size, key=key_gate)
        self.shift = eqx.nn.Linear("scalar", out_size, use_bias=False, key=key_shift)

    def at(self, t: Float[Array, ""]) -> LinearMap:
        plain, gate = _plain(self.linear), jax.nn.sigmoid(_of_time(self.gate, t))
        return LinearMap(plain.weight, gate * plain.bias + _of_time(self.shift, t), gate)


class Hyper(AbstractTimeLinear):
    """y = W(t) x + b(t), with [W, b](t) the output of a small network of t.

    The network's last layer starts as a constant, the usual initialisation of a linear layer, plus a
    small part that varies with t.
    """

    hypernet: eqx.nn.MLP
    in_size: int = eqx.field(static=True)
    out_size: int = eqx.field(static=True)

    def __init__(self, in_size: int, out_size: int, *, width: int = 32, key: PRNGKeyArray):
        key_net, key_start = jax.random.split(key)
        num_weights = out_size * (in_size + 1)
        net = eqx.nn.MLP("scalar", num_weights, width, depth=1, activation=jnp.tanh, key=key_net)
        start = jax.random.uniform(key_start, (num_weights,), minval=-1.0, maxval=1.0) / in_size**0.5
        last = net.layers[-1]
        small = last.weight * (0.1 / in_size**0.5)
        self.hypernet = eqx.tree_at(lambda n: (n.layers[-1].weight, n.layers[-1].bias), net, (small, start))
        self.in_size, self.out_size = in_size, out_size

    def at(self, t: Float[Array, ""]) -> LinearMap:
        weights = self.hypernet(t)
        matrix = weights[self.out_size :].reshape(self.out_size, self.in_size)
        return LinearMap(matrix, weights[: self.out_size])


class Blend(AbstractTimeLinear):
    """y = (1 - t) (W0 x + b0) + t (W1 x + b1): from one linear layer to another."""

    first: eqx.nn.Linear
    second: eqx.nn.Linear

    def __init__(self, in_size: int, out_size: int, *, key: PRNGKeyArray):
        key_first, key_second = jax.random.split(key)
        self.first = eqx.nn.Linear(in_size, out_size, key=key_first)
        self.second = eqx.nn.Linear(in_size, out_size, key=key_second)

    def at(self, t: Float[Array, ""]) -> LinearMap:
        return jax.tree.map(lambda a, b: a + t * (b - a), _plain(self.first), _plain(self.second))


_KINDS: dict[str, type] = {
    "ignore": Ignore,
    "concat": Concat,
    "squash": Squash,
    "concatsquash": ConcatSquash,
    "hyper": Hyper,
    "blend": Blend,
}


def time_linear(kind: LayerKind, in_size: int, out_size: int, *, key: PRNGKeyArray) -> AbstractTimeLinear:
    """A time-conditioned linear layer of the named kind."""
    if kind not in _KINDS:
        raise ValueError(f"layer must be one of {', '.join(get_args(LayerKind))}; got {kind!r}.")
    return _KINDS[kind](in_size, out_size, key=key)


def _of_time(linear: eqx.nn.Linear, t: Float[Array, ""]) -> Float[Array, " out"]:
    """The linear layer's value at a number: a product of its elements, whose gradient over many t is a sum and quick.

    As a product of matrices it has a gradient that XLA computes column by column: half of a step of flow matching.
    """
    y = linear.weight[:, 0] * t
    return y if linear.bias is None else y + linear.bias


def _plain(linear: eqx.nn.Linear) -> LinearMap:
    assert linear.bias is not None
    return LinearMap(linear.weight, linear.bias)
