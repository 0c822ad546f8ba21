"""Planar units as dynamics, with their divergence in closed form."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ffjord.choices import NonlinearityName
from ffjord.dynamics.mlp import nonlinearity as _sigma
from ffjord.dynamics.mlp import value_and_slope


class Planar(eqx.Module):
    """f(t, z) = Σ_m g_m(t) u_m(t) σ(w_m(t)ᵀ z + b_m(t)): M planar units, each with a gate g_m(t) in (0, 1).

    A small network of t gives the coefficients of all units. It starts as a constant plus a small part that varies with
    t. The planar continuous flow of Chen, Rubanova, Bettencourt and Duvenaud, "Neural Ordinary Differential Equations",
    NeurIPS 2018.

    **Arguments:**

    - `dim`: D, the size of z.
    - `hidden`: one number, M.
    - `nonlinearity`: name of σ.
    - `condition_size`: size of the condition c, which adds C c to b; 0 for none.
    - `width`: of the two hidden layers of the network of t.
    """

    hypernet: eqx.nn.MLP
    given: eqx.nn.Linear | None
    dim: int = eqx.field(static=True)
    nonlinearity: NonlinearityName = eqx.field(static=True)

    def __init__(
        self,
        dim: int,
        hidden: Sequence[int] = (64,),
        *,
        nonlinearity: NonlinearityName = "tanh",
        condition_size: int = 0,
        width: int = 32,
        key: PRNGKeyArray,
    ):
        if len(hidden) != 1 or hidden[0] < 1:
            raise ValueError(f"hidden of planar dynamics must be one number, that of its units; got {tuple(hidden)}.")
        _sigma(nonlinearity)  # fail now rather than at the first evaluation
        key_net, key_start, key_given = jax.random.split(key, 3)
        (units,) = hidden
        net = eqx.nn.MLP("scalar", units * (2 * dim + 2), width, depth=2, activation=jnp.tanh, key=key_net)
        last = lambda net: (net.layers[-1].weight, net.layers[-1].bias)
        start = _start(dim, units, key_start)
        self.hypernet = eqx.tree_at(last, net, (0.1 * net.layers[-1].weight, start))
        self.given = eqx.nn.Linear(condition_size, units, use_bias=False, key=key_given) if condition_size else None
        self.dim, self.nonlinearity = dim, nonlinearity

    has_closed_form = True

    def __call__(
        self, t: Float[Array, ""], z: Float[Array, " dim"], condition: Float[Array, " c"] | None = None
    ) -> Float[Array, " dim"]:
        w, u, b = self._units(t, condition)
        return _sigma(self.nonlinearity)(w @ z + b) @ u

    def value_and_divergence(
        self, t: Float[Array, ""], z: Float[Array, " dim"], condition: Float[Array, " c"] | None = None
    ) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """f(t, z), and Tr(df/dz) = Σ_m g_m u_mᵀ w_m σ'(w_mᵀ z + b_m)."""
        w, u, b = self._units(t, condition)
        h, slope = value_and_slope(_sigma(self.nonlinearity), w @ z + b)
        return h @ u, slope @ jnp.sum(w * u, axis=1)

    def _units(
        self, t: Float[Array, ""], condition: Float[Array, " c"] | None
    ) -> tuple[Float[Array, "units dim"], Float[Array, "units dim"], Float[Array, " units"]]:
        """w, g u and b + C c at time t."""
        rows = self.hypernet(t).reshape(-1, 2 * self.dim + 2)
        w, u, b, gate = jnp.split(rows, (self.dim, 2 * self.dim, 2 * self.dim + 1), axis=1)
        b = b[:, 0]
        if self.given is not None and condition is not None:
            b = b + self.given(condition)
        return w, jax.nn.sigmoid(gate) * u, b


def _start(dim: int, units: int, key: PRNGKeyArray) -> Float[Array, " coefficients"]:
    """Coefficients as usual for linear layers from z to the units and back, with half-open gates."""
    widths = np.concatenate([np.full(dim, dim**-0.5), np.full(dim, units**-0.5), [dim**-0.5, 0.0]])
    return (jax.random.uniform(key, (units, 2 * dim + 2), minval=-1.0, maxval=1.0) * widths).ravel()
