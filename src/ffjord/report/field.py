"""The vector field that moves the density."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ffjord.bijections import CNF, AbstractBijection, Chain, continuous_parts
from ffjord.compilation import compiled
from ffjord.flow import Flow


def moves(flow: Flow) -> bool:
    """Whether the flow has a continuous part, and so a density that changes with the time."""
    return bool(continuous_parts(flow.bijection))


def velocity(flow: Flow, x: Float[Array | np.ndarray, "n d"], time: float = 1.0) -> Float[np.ndarray, "n d"] | None:
    """dx/dt at a moment between the base (0) and the data (1), in the data's coordinates.

    K CNFs in a chain act one after another, each for a K-th of the time. With f and T of the one whose turn it is, s
    the fraction of its path behind it, and g the maps between it and the data, x = g(z):

        dx/dt = dg/dz · K T f(s T, z),   z = g⁻¹(x).

    None if the bijection is neither a CNF nor a chain with CNFs.
    """
    parts = flow.bijection.parts if isinstance(flow.bijection, Chain) else (flow.bijection,)
    cnfs = [(i, part) for i, part in enumerate(parts) if isinstance(part, CNF)]
    if not cnfs:
        return None
    turn = min(int(time * len(cnfs)), len(cnfs) - 1)
    fraction = jnp.asarray(time * len(cnfs) - turn, flow.dtype)
    position, cnf = cnfs[turn]
    # The CNFs that have not begun yet leave everything where it is.
    after = tuple(part for part in parts[position + 1 :] if not isinstance(part, CNF))
    return len(cnfs) * np.asarray(_velocity(cnf, after, fraction, jnp.asarray(x, flow.dtype)))


@compiled
def _velocity(cnf: CNF, after: tuple[AbstractBijection, ...], fraction: Array, x: Array) -> Array:
    """dg/dz · T f(s T, z)."""
    z = Chain(after).inverse(x).value if after else x
    dz = cnf.end_time * jax.vmap(cnf.dynamics, in_axes=(None, 0))(fraction * cnf.end_time, z)
    return jax.jvp(lambda z: Chain(after).forward(z).value, (z,), (dz,))[1] if after else dz
