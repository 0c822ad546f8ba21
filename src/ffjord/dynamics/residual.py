"""A residual network that knows the time by waves of it: made for flow matching, and a dynamics like any other."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ffjord.choices import NonlinearityName
from ffjord.dynamics.mlp import nonlinearity as _sigma


class ResidualMLP(eqx.Module):
    """f(t, z) = A_out h_L + b, where h_0 = A_in ψ(z) + C c and

        h_l = h_{l-1} + B_l σ(h_{l-1} + P_l φ(t)) + b_l,     φ(t) = (cos πkt, sin πkt), k = 1 … K.

    The skip connections let a change of t or z pass through all layers at once. A_out starts at zero: the untrained
    flow is the identity. ψ(z) is z itself, beside it

        cos(π 2^k z_j / 4), sin(π 2^k z_j / 4),   k = 0 … `harmonics` - 1,

    waves of lengths 8, 4, 2 …: with them the network learns densities that change over short distances.

    **Arguments:**

    - `dim`: D, the size of z.
    - `hidden`: a width for every layer; all are the same, because each is added to the one before.
    - `frequencies`: K. `harmonics`: how many waves of every coordinate there are.
    - `condition_size`: size of c, or 0 for a density without conditions.
    """

    first: eqx.nn.Linear
    given: eqx.nn.Linear | None
    times: tuple[eqx.nn.Linear, ...]
    layers: tuple[eqx.nn.Linear, ...]
    last: eqx.nn.Linear
    frequencies: int = eqx.field(static=True)
    harmonics: int = eqx.field(static=True)
    nonlinearity: NonlinearityName = eqx.field(static=True)

    def __init__(
        self,
        dim: int,
        hidden: Sequence[int] = (256, 256, 256, 256),
        *,
        frequencies: int = 8,
        harmonics: int = 0,
        nonlinearity: NonlinearityName = "swish",
        condition_size: int = 0,
        key: PRNGKeyArray,
    ):
        if not hidden or len(set(hidden)) > 1 or min(hidden) < 1:
            raise ValueError(f"hidden of a residual network must be one positive width, repeated; got {tuple(hidden)}.")
        if frequencies < 1:
            raise ValueError(f"frequencies must be at least 1; got {frequencies}.")
        if harmonics < 0:
            raise ValueError(f"harmonics must not be negative; got {harmonics}.")
        _sigma(nonlinearity)  # fail now rather than at the first evaluation
        width, depth = hidden[0], len(hidden)
        keys = jax.random.split(key, 2 * depth + 3)
        self.first = eqx.nn.Linear(dim * (1 + 2 * harmonics), width, key=keys[0])
        self.given = eqx.nn.Linear(condition_size, width, use_bias=False, key=keys[1]) if condition_size else None
        self.times = tuple(eqx.nn.Linear(2 * frequencies, width, use_bias=False, key=k) for k in keys[3::2])
        self.layers = tuple(eqx.nn.Linear(width, width, key=k) for k in keys[4::2])
        self.last = jax.tree.map(jnp.zeros_like, eqx.nn.Linear(width, dim, key=keys[2]))
        self.frequencies, self.harmonics, self.nonlinearity = frequencies, harmonics, nonlinearity

    def __call__(
        self, t: Float[Array, ""], z: Float[Array, " dim"], condition: Float[Array, " c"] | None = None
    ) -> Float[Array, " dim"]:
        sigma, told = _sigma(self.nonlinearity), waves(t, self.frequencies)
        h = self.first(self._with_harmonics(z))
        if self.given is not None and condition is not None:
            h = h + self.given(condition)
        for time, layer in zip(self.times, self.layers, strict=True):
            h = h + layer(sigma(h + time(told)))
        return self.last(h)

    def _with_harmonics(self, z: Array) -> Array:
        angles = jnp.pi / 4 * z * 2.0 ** jnp.arange(self.harmonics, dtype=z.dtype)[:, None]
        return jnp.concatenate([z, jnp.sin(angles).ravel(), jnp.cos(angles).ravel()])


def waves(t: Float[Array, ""], count: int) -> Float[Array, " {2*count}"]:
    """φ(t) = (cos πkt, sin πkt), k = 1 … `count`."""
    angles = jnp.pi * t * jnp.arange(1, count + 1, dtype=t.dtype)
    return jnp.concatenate([jnp.cos(angles), jnp.sin(angles)])
