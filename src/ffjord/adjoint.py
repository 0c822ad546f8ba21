"""The paper's continuous adjoint: gradients by solving one more ODE backwards, in constant memory (equation 6)."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ffjord.solve import OK, Field, Solver, State, Stats, error_norm, solve, start_state

Inputs = tuple[Field, Array, Any, Array]


@eqx.filter_custom_vjp
def solve_with_adjoint(inputs: Inputs, solver: Solver, axis: str | None) -> tuple[State, Stats]:
    """Integrates (field, z, context, backward_nfe); its gradient is the continuous adjoint's."""
    field, z, context, _ = inputs
    rates = lambda s, state, args: args[0](s, state.z, args[1])
    start = start_state(field, z, context)
    return solve(rates, start, (field, context), solver, norm=error_norm(solver, axis), driving=1)


@solve_with_adjoint.def_fwd
def _forward(perturbed: Any, inputs: Inputs, solver: Solver, axis: str | None):
    del perturbed
    state, stats = solve_with_adjoint(inputs, solver, axis)
    return (state, stats), state.z


@solve_with_adjoint.def_bwd
def _backward(z1: Array, grads: Any, perturbed: Any, inputs: Inputs, solver: Solver, axis: str | None):
    """Solves backwards for z, the adjoint a = dL/dz and the parameters' gradient.

        dz/ds = f,    da/ds = -aᵀ df/dz,    dL/dθ = ∫ aᵀ df/dθ ds          (equation 6)

    f includes the integrands of log_det and penalties. Nothing depends on these integrals, so that their own adjoints
    are constants. The equations are linear in the adjoint: it is solved at unit scale, so that the tolerance means the
    same whatever the loss is multiplied with. The error norm sees z and a but not dL/dθ (a seminorm): the latter steers
    no one else.
    """
    field, z0, context, _ = inputs
    like = start_state(field, z0, context)
    cotangent = jax.tree.map(lambda x, g: jnp.zeros_like(x) if g is None else g, like, grads[0], is_leaf=_is_none)
    scale = jnp.max(jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in jax.tree.leaves(cotangent)]))
    scale = jnp.where(scale > 0, scale, 1.0)
    cotangent = jax.tree.map(lambda g: g / scale, cotangent)
    params, rest = eqx.partition((field, context), (perturbed[0], perturbed[2]))

    def rates(s, state, args):
        z, a, _ = state
        params, rest, cotangent = args

        def f(z, params):
            field, context = eqx.combine(params, rest)
            return field(s, z, context)

        out, pullback = jax.vjp(f, z, params)
        grad_z, grad_params = pullback(cotangent._replace(z=a))
        return out.z, -grad_z, jax.tree.map(jnp.negative, grad_params)

    start = (jnp.nan_to_num(z1), cotangent.z, jax.tree.map(jnp.zeros_like, params))
    args = (params, rest, cotangent)
    (_, grad_z, grad_params), stats = solve(
        rates, start, args, solver, norm=error_norm(solver, axis), driving=2, reverse=True
    )
    factor = jnp.where(stats.outcome == OK, scale, jnp.nan)  # a backward solve that failed has no gradient to offer
    grad_z, (grad_field, grad_context) = jax.tree.map(lambda g: g * factor, (grad_z, grad_params))
    shares = 1 if axis is None else jax.lax.axis_size(axis)  # gradients are summed over devices, and so is the count
    return grad_field, grad_z, grad_context, stats.nfe.astype(z0.dtype) / shares


def _is_none(x: Any) -> bool:
    return x is None
