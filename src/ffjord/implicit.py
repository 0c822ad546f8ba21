"""Kvaerno's fifth-order implicit method, for stiff flows, with its evaluations counted.

Diffrax has the method, and this is Diffrax's table of coefficients and Diffrax's root finder. Its own step has two
shortcomings here. It does not say how many Newton iterations it took, so that nothing could be reported as NFE. And
it treats the whole state as one implicit unknown, while nothing depends on the integrals that a flow carries along
(log-determinant, penalties, parameter gradients): here the implicit equations are solved for the parts that drive the
path alone, and the integrals are summed up with the same weights, which is the same method at a fraction of the price.
"""

from typing import Any, ClassVar

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix
from jaxtyping import Array

_TABLEAU: Any = diffrax.Kvaerno5.tableau
_DIAGONAL = float(_TABLEAU.a_diagonal[-1])


def _square(rows: tuple[np.ndarray, ...]) -> np.ndarray:
    """The rows of a lower triangle (second stage first), filled up with zeros."""
    return np.stack([np.pad(row, (0, len(rows) + 1 - len(row))) for row in rows])


class Kvaerno5(diffrax.AbstractSolver):
    """Solves, stage by stage, for the rates k of the driving parts x of the state (L-stable, order 5 with 4 embedded):

        k_i = f(t_i, x_0 + h Σ_{j<i} a_ij k_j + h γ k_i)

    Each stage is found by chord iteration, with the Jacobian of the step's first implicit stage.

    **Arguments:**

    - `driving`: how many of the state's leading leaves the rates depend on.
    - `rtol`, `atol`: of the step's error; the iterations stop at a small part of it.

    In place of the local error alone, a step gives (error, evaluations) to the step size controller, which must be
    `Counting`: it is the only one to hear of rejected steps too.
    """

    driving: int = eqx.field(static=True)
    rtol: Any
    atol: Any

    term_structure: ClassVar = diffrax.AbstractTerm
    interpolation_cls: ClassVar = diffrax.LocalLinearInterpolation
    max_iterations: ClassVar = 10

    def order(self, terms: Any) -> int:
        return 5

    def func(self, terms: Any, t0: Any, y0: Any, args: Any) -> Any:
        return terms.vf(t0, y0, args)

    def init(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any) -> list[Array]:
        """The rates at the start; later steps take over the last stage of the step before."""
        return jax.tree.leaves(terms.vf(t0, y0, args))

    def step(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any, solver_state: list[Array], made_jump: Any):
        leaves, structure = jax.tree.flatten(y0)
        h = terms.contr(t0, t1)  # negative when Diffrax solves backwards, while t1 - t0 is not
        dtype = leaves[0].dtype
        lower, predictor, times = (jnp.asarray(x, dtype) for x in (_LOWER, _PREDICTOR, _TABLEAU.c))

        def f(t, x, args):
            """All rates, which depend on the driving parts alone."""
            return jax.tree.leaves(terms.vf(t, jax.tree.unflatten(structure, x + leaves[self.driving :]), args))

        def residual(k, inputs):
            t, start, h, args = inputs
            x = [s + h * _DIAGONAL * rate for s, rate in zip(start, k, strict=True)]
            return [rate - new for rate, new in zip(k, f(t, x, args), strict=False)]

        def inputs_of(rates, weights, time):
            start = [x + h * jnp.tensordot(weights, k, 1) for x, k in zip(leaves, rates, strict=False)]
            return t0 + time * (t1 - t0), start[: self.driving], h, args

        def guess(rates, weights):
            return [jnp.tensordot(weights, k, 1) for k in rates[: self.driving]]

        finder = diffrax.VeryChord(self.rtol, self.atol, norm=optimistix.rms_norm)
        rates = [jnp.zeros((len(_TABLEAU.b_sol), *k.shape), k.dtype).at[0].set(k) for k in solver_state]
        first = guess(rates, predictor[0])
        chord = finder.init(
            lambda k, inputs: (residual(k, inputs), None),
            jax.lax.stop_gradient(first),
            jax.lax.stop_gradient(inputs_of(rates, lower[0], times[0])),
            options={},
            f_struct=jax.eval_shape(lambda: first),
            aux_struct=None,
            tags=frozenset(),
        )

        def stage(carry, coefficients):
            rates, evaluations, converged = carry
            index, weights, predictor, time = coefficients
            inputs = inputs_of(rates, weights, time)
            found = optimistix.root_find(
                residual,
                finder,
                guess(rates, predictor),
                inputs,
                options={"init_state": chord},
                max_steps=self.max_iterations,
                throw=False,
            )
            t, start, _, _ = inputs
            x = [s + h * _DIAGONAL * k for s, k in zip(start, found.value, strict=True)]
            new = found.value + f(t, x, args)[self.driving :]
            rates = [k.at[index].set(rate) for k, rate in zip(rates, new, strict=True)]
            evaluations = evaluations + found.stats["num_steps"].astype(dtype) + 1
            converged = converged & (found.result == optimistix.RESULTS.successful)
            return (rates, evaluations, converged), None

        begin = rates, jnp.ones((), dtype), jnp.asarray(True)  # one for the Jacobian
        stages = jnp.arange(1, len(_TABLEAU.b_sol)), lower, predictor, times
        (rates, evaluations, converged), _ = jax.lax.scan(stage, begin, stages)
        weigh = lambda weights, k: h * jnp.tensordot(jnp.asarray(weights, dtype), k, 1)
        y1 = jax.tree.unflatten(structure, [x + weigh(_TABLEAU.b_sol, k) for x, k in zip(leaves, rates, strict=True)])
        error = [jnp.where(converged, weigh(_TABLEAU.b_error, k), jnp.inf) for k in rates]
        error = jax.tree.unflatten(structure, error)
        last = [k[-1] for k in rates]
        return y1, (error, evaluations), {"y0": y0, "y1": y1}, last, diffrax.RESULTS.successful


_LOWER = _square(_TABLEAU.a_lower)
_PREDICTOR = _square(_TABLEAU.a_predictor)


class Counting(diffrax.AbstractStepSizeController):
    """A step size controller that also sums up the evaluations which `Kvaerno5` reports, as its state's first part."""

    inner: diffrax.AbstractStepSizeController

    def wrap(self, direction: Any) -> "Counting":
        return Counting(self.inner.wrap(direction))

    def init(self, terms: Any, t0: Any, t1: Any, y0: Any, dt0: Any, args: Any, func: Any, error_order: Any):
        tnext, state = self.inner.init(terms, t0, t1, y0, dt0, args, func, error_order)
        return tnext, (jnp.ones((), jax.tree.leaves(y0)[0].dtype), state)  # one at the start

    def adapt_step_size(
        self,
        t0: Any,
        t1: Any,
        y0: Any,
        y1_candidate: Any,
        args: Any,
        y_error: Any,
        error_order: Any,
        controller_state: Any,
    ):
        error, evaluations = y_error
        count, state = controller_state
        keep, tprev, tnext, made_jump, state, result = self.inner.adapt_step_size(
            t0, t1, y0, y1_candidate, args, error, error_order, state
        )
        return keep, tprev, tnext, made_jump, (count + evaluations, state), result
