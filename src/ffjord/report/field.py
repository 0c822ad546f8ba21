"""The vector field that moves the density."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ffjord.bijections import CNF, AbstractBijection, Chain
from ffjord.flow import Flow


def moves(flow: Flow) -> bool:
    """Whether the flow has a continuous part, and so a density that changes with the time."""
    leaves = jax.tree.leaves(flow.bijection, is_leaf=lambda node: isinstance(node, CNF))
    return any(isinstance(leaf, CNF) for leaf in leaves)


def velocity(flow: Flow, x: Float[Array | np.ndarray, "n d"], time: float = 1.0) -> Float[np.ndarray, "n d"] | None:
    """dx/dt at a moment between the base (0) and the data (1), in the data's coordinates.

    With f and T of the CNF that acts at that moment, and g the maps between it and the data, x = g(z):

        dx/dt = dg/dz · T f(t T, z),   z = g⁻¹(x).

    K CNFs in a chain act one after another, each for a K-th of the time. None if no CNF stands in the open.
    """
    parts = flow.bijection.parts if isinstance(flow.bijection, Chain) else (flow.bijection,)
    continuous = [i for i, part in enumerate(parts) if isinstance(part, CNF)]
    if not continuous:
        return None
    turn = min(int(time * len(continuous)), len(continuous) - 1)
    position = continuous[turn]
    # The CNFs that have not begun yet leave everything where it is.
    after = tuple(part for part in parts[position + 1 :] if not isinstance(part, CNF))
    fraction = jnp.asarray(time * len(continuous) - turn, flow.dtype)
    cnf = parts[position]
    assert isinstance(cnf, CNF)
    return np.asarray(_velocity(cnf, after, fraction, jnp.asarray(x, flow.dtype)))


@eqx.filter_jit
def _velocity(cnf: CNF, after: tuple[AbstractBijection, ...], fraction: Array, x: Array) -> Array:
    z = Chain(after).inverse(x).value if after else x
    speed = jax.vmap(cnf.dynamics, in_axes=(None, 0))(fraction * cnf.end_time, z)
    dz = cnf.end_time * speed
    return jax.jvp(lambda z: Chain(after).forward(z).value, (z,), (dz,))[1] if after else dz
