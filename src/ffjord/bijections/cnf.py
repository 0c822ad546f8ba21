"""The continuous normalizing flow: an ODE as a bijection."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ffjord.bijections.base import AbstractBijection, Report, Transformed
from ffjord.divergence import AbstractDivergence, Dynamics, Exact
from ffjord.parameters import Buffer, Counter
from ffjord.solve import Solver, State, integrate


class Numerics(eqx.Module):
    """How a flow is computed, as opposed to what it is: the divergence and the solver."""

    divergence: AbstractDivergence
    solver: Solver


class CNF(AbstractBijection):
    """x = z(T) where z(0) = z and dz/dt = f(t, z)  (section 2.2).

    The log-determinant follows the instantaneous change of variables (equation 2),

        d/dt log |det dz(t)/dz(0)| = Tr(df/dz),

    integrated together with z (equation 4): forwards from 0 to T, or backwards from T to 0.

    **Arguments:**

    - `dynamics`: f, any callable pytree `(t, z) -> dz/dt` on one sample.
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
        self, z: Float[Array, "n *event"], *, train: bool = False, key: PRNGKeyArray | None = None
    ) -> Transformed:
        return self._integrate(z, jnp.zeros(()), self.end_time, train, key)

    def inverse(
        self, x: Float[Array, "n *event"], *, train: bool = False, key: PRNGKeyArray | None = None
    ) -> Transformed:
        return self._integrate(x, self.end_time, jnp.zeros(()), train, key)

    def until(self, fraction: Float[Array, ""]) -> "CNF":
        stopped = Buffer(jnp.log(self.end_time * fraction))
        return eqx.tree_at(lambda cnf: cnf.log_end_time, self, stopped, is_leaf=lambda x: isinstance(x, Buffer))

    def _integrate(self, z: Array, start: Array, end: Array, train: bool, key: PRNGKeyArray | None) -> Transformed:
        numerics = self.training if train else self.testing
        eps = _draw_noise(numerics.divergence, self.dynamics, z, key)
        field = _AugmentedDynamics(self.dynamics, numerics.divergence, start.astype(z.dtype), end.astype(z.dtype))
        state, stats = integrate(field, z, eps, numerics.solver, self.backward_nfe.array)
        report = Report(*stats, penalties=state.penalties)
        return Transformed(state.z, state.log_det, report)


class _AugmentedDynamics(eqx.Module):
    """f_aug of Algorithm 1, along t = start + s (end - start)."""

    dynamics: Dynamics
    divergence: AbstractDivergence
    start: Float[Array, ""]
    end: Float[Array, ""]

    def __call__(self, s: Array, z: Array, eps: Any) -> State:
        length = self.end - self.start
        dz, trace = self.divergence(self.dynamics, self.start + s * length, z, eps)
        return State(length * dz, length * trace, {})


def _draw_noise(divergence: AbstractDivergence, f: Dynamics, z: Array, key: PRNGKeyArray | None) -> Any:
    """ε for every sample of the batch, outside of the integral (Algorithm 1)."""
    if not divergence.stochastic:
        return None
    if key is None:
        raise ValueError(
            f"{type(divergence).__name__} estimates the trace with noise; pass key=jax.random.key(...), "
            "or use an exact divergence."
        )
    keys = jax.random.split(key, z.shape[0])
    return jax.vmap(lambda z, key: divergence.noise(f, z, key=key))(z, keys)
