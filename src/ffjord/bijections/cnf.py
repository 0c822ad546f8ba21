"""The continuous normalizing flow: an ODE as a bijection."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, Shaped

from ffjord.bijections.base import AbstractBijection, Report, Transformed
from ffjord.divergence import AbstractDivergence, ClosedForm, Dynamics, Exact
from ffjord.dynamics.given import Given
from ffjord.parameters import Buffer, Counter
from ffjord.regularizers import AbstractRegularizer
from ffjord.solve import Solver, State, integrate


class Numerics(eqx.Module):
    """How a flow is computed, as opposed to what it is: the divergence, the solver, and what else of the path is asked.

    **Arguments:**

    - `regularizers`: what is integrated along the path beside the divergence, for an objective to add to its loss.
    - `steer`: with s > 0 the path ends at T (1 + s u) instead of T, with u uniform in [-1, 1] and drawn for every
        solve (STEER): a path that may be cut anywhere near its end is a simpler one.
    """

    divergence: AbstractDivergence
    solver: Solver
    regularizers: tuple[AbstractRegularizer, ...] = ()
    steer: float = eqx.field(static=True, default=0.0)

    def __check_init__(self):
        if not 0 <= self.steer < 1:
            raise ValueError(f"steer must be at least 0 and less than 1; got {self.steer}.")


class CNF(AbstractBijection):
    """x = z(T) where z(0) = z and dz/dt = f(t, z)  (section 2.2).

    The log-determinant follows the instantaneous change of variables (equation 2),

        d/dt log |det dz(t)/dz(0)| = Tr(df/dz),

    integrated together with z (equation 4): forwards from 0 to T, or backwards from T to 0.

    **Arguments:**

    - `dynamics`: f, any callable pytree `(t, z) -> dz/dt` on one sample, or `(t, z, condition) -> dz/dt`.
    - `end_time`: T. `learn_end_time`: whether T is a parameter (kept positive as exp(log T)).
    - `training`, `testing`: how to compute when `train` is true, and when not.
    """

    dynamics: Dynamics
    log_end_time: Array | Buffer
    training: Numerics
    testing: Numerics
    backward_nfe: Counter

    def __init__(
        self,
        dynamics: Dynamics,
        *,
        end_time: float = 1.0,
        learn_end_time: bool = False,
        training: Numerics | None = None,
        testing: Numerics | None = None,
    ):
        if not end_time > 0:
            raise ValueError(f"end_time must be positive; got {end_time}.")
        log_end_time = jnp.log(jnp.asarray(end_time, jnp.result_type(float)))
        self.dynamics = dynamics
        self.log_end_time = log_end_time if learn_end_time else Buffer(log_end_time)
        self.training = training or Numerics(Exact(), Solver())
        self.testing = testing or Numerics(Exact(), Solver(rtol=1e-6, atol=1e-6, steps="worst"))
        self.backward_nfe = Counter()

    @property
    def end_time(self) -> Float[Array, ""]:
        """T."""
        log_end_time = self.log_end_time
        return jnp.exp(log_end_time.value if isinstance(log_end_time, Buffer) else log_end_time)

    def forward(
        self,
        z: Float[Array, "n *event"],
        *,
        condition: PyTree[Shaped[Array, "n ..."]] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        return self._integrate(z, jnp.zeros(()), self.end_time, condition, train, key)

    def inverse(
        self,
        x: Float[Array, "n *event"],
        *,
        condition: PyTree[Shaped[Array, "n ..."]] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        return self._integrate(x, self.end_time, jnp.zeros(()), condition, train, key)

    def until(self, fraction: Float[Array, ""]) -> "CNF":
        stopped = Buffer(jnp.log(self.end_time * fraction))
        return eqx.tree_at(lambda cnf: cnf.log_end_time, self, stopped, is_leaf=lambda x: isinstance(x, Buffer))

    def rows_to_calibrate(self) -> int:
        asked = getattr(self.dynamics, "rows_to_calibrate", None)
        return asked() if asked else 0

    def calibrate(
        self, x: Float[Array, "n *event"], *, condition: PyTree[Shaped[Array, "n ..."]] | None = None, key: PRNGKeyArray
    ) -> "CNF":
        """With what of the dynamics is set from data, if anything is."""
        fit = getattr(self.dynamics, "calibrate", None)
        return eqx.tree_at(lambda cnf: cnf.dynamics, self, fit(x)) if fit else self

    def _integrate(
        self, z: Array, start: Array, end: Array, condition: Any, train: bool, key: PRNGKeyArray | None
    ) -> Transformed:
        numerics = self.training if train else self.testing
        condition = _prepared(self.dynamics, condition, numerics.divergence)
        noise = _draw_noise(numerics, self.dynamics, z, condition, key)
        if numerics.steer:
            key_end = jax.random.fold_in(_needed(key, "steer"), 2)
            factor = 1 + numerics.steer * jax.random.uniform(key_end, (), z.dtype, -1.0, 1.0)
            start, end = factor * start, factor * end
        how = numerics.divergence, numerics.regularizers
        field = _AugmentedDynamics(self.dynamics, *how, start.astype(z.dtype), end.astype(z.dtype))
        solver = numerics.solver.along(start, end)
        state, stats = integrate(field, z, (noise, condition), solver, self.backward_nfe.array)
        report = Report(*stats[:4], penalties=state.penalties, observed=stats.times)
        return Transformed(state.z, state.log_det, report)


def continuous_parts(tree: PyTree) -> list[CNF]:
    """The continuous parts of a flow or bijection, from the base to the data."""
    return [node for node in jax.tree.leaves(tree, is_leaf=_is_cnf) if _is_cnf(node)]


def map_continuous_parts(function: Callable[[CNF], CNF], tree: PyTree) -> Any:
    """The flow or bijection with every continuous part replaced by its image."""
    return jax.tree.map(lambda node: function(node) if _is_cnf(node) else node, tree, is_leaf=_is_cnf)


def _is_cnf(node: Any) -> bool:
    return isinstance(node, CNF)


class _AugmentedDynamics(eqx.Module):
    """f_aug of Algorithm 1, along t = start + s (end - start)."""

    dynamics: Dynamics
    divergence: AbstractDivergence
    regularizers: tuple[AbstractRegularizer, ...]
    start: Float[Array, ""]
    end: Float[Array, ""]

    def __call__(self, s: Array, z: Array, context: Any) -> State:
        (eps, probe), condition = context
        length = self.end - self.start
        f, t = _given(self.dynamics, condition), self.start + s * length
        if not self.regularizers:  # nobody asks for products, which may then not be needed
            dz, trace = self.divergence(f, t, z, eps)
            return State(length * dz, length * trace, {})
        seen = self.divergence.look(f, t, z, eps)
        penalties = {r.name: jnp.abs(length) * r(f, t, z, seen, probe) for r in self.regularizers}
        return State(length * seen.dz, length * seen.trace, penalties)


def _prepared(dynamics: Dynamics, condition: Any, divergence: AbstractDivergence) -> Any:
    """The conditions as the dynamics wants them at every evaluation, if it has wishes: made once for a whole solve."""
    prepare = getattr(dynamics, "prepare", None)
    if prepare is None or condition is None:
        return condition
    return jax.vmap(lambda c: prepare(c, trace=isinstance(divergence, ClosedForm)))(condition)


def _given(dynamics: Dynamics, condition: Any) -> Dynamics:
    return dynamics if condition is None else Given(dynamics, condition)


def _draw_noise(numerics: Numerics, f: Dynamics, z: Array, condition: Any, key: PRNGKeyArray | None) -> tuple[Any, Any]:
    """For every sample of the batch, outside of the integral (Algorithm 1): ε, and a probe for the regularisers."""
    eps, probe, divergence = None, None, numerics.divergence
    if divergence.stochastic:
        keys = jax.random.split(_needed(key, type(divergence).__name__), z.shape[0])
        draw = lambda z, c, key: divergence.noise(_given(f, c), z, key=key)
        eps = jax.vmap(draw)(z, condition, keys)
    for regularizer in numerics.regularizers:
        if regularizer.needs_probe:
            key_probe = jax.random.fold_in(_needed(key, regularizer.name), 1)
            probe = jax.random.rademacher(key_probe, z.shape, z.dtype)
    return eps, probe


def _needed(key: PRNGKeyArray | None, what: str) -> PRNGKeyArray:
    if key is None:
        raise ValueError(
            f"{what} needs noise; pass key=jax.random.key(...), or use an exact divergence and nothing random."
        )
    return key
