"""The determinant of a flow's map from its Jacobian itself, and not from a trace.

Beside z, the columns of J = dz(t)/dz(0) are carried along the path (the variational equation),

    dz/dt = f(t, z),   dJ/dt = (df/dz) J,   J(0) = I,

and log |det J(T)| is taken at the end. Nothing of it uses Tr(df/dz): it is another way to the same number, D times as
large a state, and so a witness for the log-densities. (After Chen et al., 2018, equation 2 makes the two equal.)
"""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ffjord.bijections import CNF, AbstractBijection, Chain, Numerics
from ffjord.compilation import compiled
from ffjord.divergence import Dynamics, Skipped
from ffjord.errors import SolveError
from ffjord.flow import Flow

_NUMBERS = 1 << 21
"""Numbers in the states of the points that are solved together."""


class Pushed(NamedTuple):
    """Points x = g(z), and the log-density that they have as images of the base."""

    x: Float[np.ndarray, "n d"]
    log_det: Float[np.ndarray, " n"]
    """log |det dg/dz|."""
    log_prob: Float[np.ndarray, " n"]
    """log N(z) - log |det dg/dz|."""


class _WithTangents(eqx.Module):
    """The rates of (z, J), side by side in an array of shape (D, 1 + D)."""

    dynamics: Dynamics

    def __call__(self, t: Array, y: Array, *condition: Any) -> Array:
        f = lambda z: self.dynamics(t, z, *condition)
        push = lambda v: jax.jvp(f, (y[:, 0],), (v,))
        dz, columns = jax.vmap(push, in_axes=1, out_axes=(None, 1))(y[:, 1:])
        return jnp.concatenate([dz[:, None], columns], axis=1)


def push(flow: Flow, z: Float[np.ndarray, "n d"], condition: Any = None) -> Pushed:
    """Maps points of the base to the data with the testing solver, and takes the determinant of the map's Jacobian."""
    dim = z.shape[1]
    size = min(len(z), max(1, _NUMBERS // (dim * (dim + 1))))
    pieces = []
    for start in range(0, len(z), size):
        stop = min(start + size, len(z))
        rows = slice(stop - min(size, stop), stop)  # the last piece has some rows twice, and so the others' shape
        given = None if condition is None else jnp.asarray(condition[rows], flow.dtype)
        x, log_det = _push(flow.bijection, jnp.asarray(z[rows], flow.dtype), given)
        pieces.append((np.asarray(x)[start - stop :], np.asarray(log_det)[start - stop :]))
    x, log_det = (np.concatenate(part) for part in zip(*pieces, strict=True))
    if not np.all(np.isfinite(log_det)):
        raise SolveError("the Jacobian of the map could not be followed along the path: it has left finite numbers.")
    return Pushed(x, log_det, np.asarray(flow.base.log_prob(jnp.asarray(z))) - log_det)


@compiled
def _push(bijection: AbstractBijection, z: Array, condition: Any) -> tuple[Array, Array]:
    if isinstance(bijection, Chain):
        total = jnp.zeros(len(z), z.dtype)
        for part in bijection.parts:
            z, log_det = _push(part, z, condition)
            total = total + log_det
        return z, total
    x, jacobian = (_of_cnf if isinstance(bijection, CNF) else _of_map)(bijection, z, condition)
    return x, jnp.linalg.slogdet(jacobian).logabsdet


def _of_cnf(cnf: Any, z: Array, condition: Any) -> tuple[Array, Array]:
    solver = cnf.testing.solver
    if solver.method == "kvaerno5":  # whose Newton steps would solve for all of J
        solver = dataclasses.replace(solver, method="dopri5")
    parts = _WithTangents(cnf.dynamics), Numerics(Skipped(), solver)
    wider = eqx.tree_at(lambda cnf: (cnf.dynamics, cnf.testing), cnf, parts)
    identity = jnp.broadcast_to(jnp.eye(z.shape[1], dtype=z.dtype), (len(z), z.shape[1], z.shape[1]))
    y = wider.forward(jnp.concatenate([z[:, :, None], identity], axis=2), condition=condition).value
    return y[:, :, 0], y[:, :, 1:]


def _of_map(bijection: AbstractBijection, z: Array, condition: Any) -> tuple[Array, Array]:
    def one(z: Array, condition: Any) -> Array:
        row = None if condition is None else condition[None]
        return bijection.forward(z[None], condition=row).value[0]

    return bijection.forward(z, condition=condition).value, jax.vmap(jax.jacfwd(one))(z, condition)
