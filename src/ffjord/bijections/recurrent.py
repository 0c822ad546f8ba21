"""Columns one after another, with a recurrent network that remembers those before."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, Shaped

from ffjord.bijections.base import AbstractBijection, Report, Transformed
from ffjord.choices import NonlinearityName
from ffjord.dynamics import nonlinearity as named


class Memory(eqx.Module):
    """v_i = network(s_i + c_i), s_{i+1} = GRU(x_i, s_i), s_1 = 0: what column i is told of the columns before it.

    The c_i are learnt, one for every column: a table's columns differ in kind, unlike the steps of a series.

    **Arguments:**

    - `dim`: D, the number of columns.
    - `num_out`: the size of v_i.
    - `hidden`: the width of the GRU, then those of the network's hidden layers; if there is one only, it is both.
    - `nonlinearity`: of the network.
    """

    cell: eqx.nn.GRUCell
    columns: Float[Array, "dim width"]
    layers: tuple[eqx.nn.Linear, ...]
    nonlinearity: NonlinearityName = eqx.field(static=True)

    def __init__(
        self, dim: int, num_out: int, hidden: Sequence[int], *, nonlinearity: NonlinearityName, key: PRNGKeyArray
    ):
        if dim < 1 or not hidden or min(hidden) < 1:
            raise ValueError(
                f"dim and hidden widths must be positive, at least one width; got dim={dim}, hidden={tuple(hidden)}."
            )
        named(nonlinearity)
        key_cell, *keys = jax.random.split(key, len(hidden[1:] or hidden) + 2)
        sizes = [hidden[0], *(hidden[1:] or hidden), num_out]
        self.cell = eqx.nn.GRUCell(1, hidden[0], key=key_cell)
        self.columns = jnp.zeros((dim, hidden[0]))
        self.layers = tuple(
            eqx.nn.Linear(before, after, key=key)
            for before, after, key in zip(sizes[:-1], sizes[1:], keys, strict=True)
        )
        self.nonlinearity = nonlinearity

    def __call__(self, x: Float[Array, "n dim"]) -> Float[Array, "dim n out"]:
        """What every column is told. Only the states are one after another; the network sees all columns at once."""

        def remember(state: Array, column: Array) -> tuple[Array, Array]:
            state = self._next(column, state)
            return state, state

        first = self._first(x)
        _, later = jax.lax.scan(remember, first, x.T[:-1])
        return self._network(jnp.concatenate([first[None], later]) + self.columns[:, None])

    def generate(
        self, column: Callable[[Array, Any], Array], given: PyTree, like: Float[Array, "n dim"]
    ) -> Float[Array, "n dim"]:
        """x with x_i = column(v_i, given_i), where `given` has a leading axis of columns; `like` has the shape of x."""

        def add(state: Array, item: tuple[Array, Any]) -> tuple[Array, Array]:
            new = column(self._network(state + item[0]), item[1])
            return self._next(new, state), new

        return jax.lax.scan(add, self._first(like), (self.columns, given))[1].T

    def _first(self, x: Array) -> Array:
        return jnp.zeros((len(x), self.cell.hidden_size), x.dtype)

    def _next(self, column: Array, state: Array) -> Array:
        return jax.vmap(self.cell)(column[:, None], state)

    def _network(self, h: Array) -> Array:
        for linear in self.layers[:-1]:
            h = named(self.nonlinearity)(_each(linear, h))
        return _each(self.layers[-1], h)


class Recurrent(AbstractBijection):
    """z_i = r(y x_i + m_i), with m_i from the columns before: the recurrent transformation of TAN.

        r(t) = t if t ≥ 0, else α t;   y, α > 0, and m_i = v_i of `Memory`

    Oliva et al., "Transformation Autoregressive Networks" (2018), have two: this one with a linear m of a ReLU
    network's state, and a "recurrent shift" x_i + m_i with a perceptron of a GRU's. Here it is the GRU and perceptron
    of the second in the place that m has in the first. It starts with y = α = 1.

    Data → base knows all columns, so that only the GRU takes D steps; base → data finds them one after another.
    """

    memory: Memory
    log_scale: Float[Array, ""]
    log_slope: Float[Array, ""]

    def __init__(
        self, dim: int, hidden: Sequence[int] = (64,), *, nonlinearity: NonlinearityName = "relu", key: PRNGKeyArray
    ):
        self.memory = Memory(dim, 1, hidden, nonlinearity=nonlinearity, key=key)
        self.log_scale, self.log_slope = jnp.zeros(()), jnp.zeros(())

    def forward(
        self,
        z: Float[Array, "n dim"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        t = jnp.where(z < 0, jnp.exp(-self.log_slope) * z, z)
        unshift = lambda shift, t: jnp.exp(-self.log_scale) * (t - shift[:, 0])
        return Transformed(self.memory.generate(unshift, t.T, z), -self._log_det(z), Report.nothing())

    def inverse(
        self,
        x: Float[Array, "n dim"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        t = jnp.exp(self.log_scale) * x + self.memory(x)[..., 0].T
        z = jnp.where(t < 0, jnp.exp(self.log_slope) * t, t)
        return Transformed(z, self._log_det(z), Report.nothing())

    def _log_det(self, z: Array) -> Array:
        """log |det dz/dx|; z has the sign of what r is given."""
        return z.shape[1] * self.log_scale + self.log_slope * jnp.sum(z < 0, axis=1)


def _each(linear: eqx.nn.Linear, h: Float[Array, "*n a"]) -> Float[Array, "*n b"]:
    return jnp.vectorize(linear, signature="(a)->(b)")(h)
