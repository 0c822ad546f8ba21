"""What may be asked of a path beside its ends: integrals that an objective adds to its loss, to make the path simple.

Each is integrated together with z but does not steer the solver's steps, is a mean over dimensions (and weighed against
the log-likelihood per dimension, so that one coefficient serves all D), and is taken over the flow's time from 0 to T.
They act on one sample.

- `Kinetic`, `JacobianFrobenius`: Finlay et al., How to train your neural ODE, 2020.
- `TotalDerivative`: Kelly et al., Learning differential equations that are easy to solve, 2020.
- the other six: those of the authors' release.
"""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.experimental.jet import jet
from jaxtyping import Array, Float

from ffjord.divergence import Dynamics, Local


class AbstractRegularizer(eqx.Module):
    """An integrand along the path."""

    name: ClassVar[str]
    """In reports, metrics and configurations."""
    needs_probe: ClassVar[bool] = False
    """Whether it may need noise of its own, where the divergence has none to share."""

    @abc.abstractmethod
    def __call__(
        self, f: Dynamics, t: Float[Array, ""], z: Float[Array, "*event"], seen: Local, probe: Any
    ) -> Float[Array, ""]:
        """The integrand at (t, z), where the divergence has `seen` f already."""


class Kinetic(AbstractRegularizer):
    """|f|² / D: the cheapest way from the base to the data is straight, at constant speed."""

    name: ClassVar[str] = "kinetic"

    def __call__(self, f: Dynamics, t: Array, z: Array, seen: Local, probe: Any) -> Array:
        return jnp.mean(seen.dz**2)


class JacobianFrobenius(AbstractRegularizer):
    """‖df/dz‖²_F / D, estimated by |(df/dz) ε|² / D with the ε of the trace's estimate: no product is added.

    Where the trace is found without products (in closed form) there is one, with noise of its own; where it takes all
    columns the norm is exact.
    """

    name: ClassVar[str] = "jacobian"
    needs_probe: ClassVar[bool] = True

    def __call__(self, f: Dynamics, t: Array, z: Array, seen: Local, probe: Any) -> Array:
        if seen.products is None:
            return jnp.mean(jax.jvp(lambda y: f(t, y), (z,), (probe,))[1] ** 2)
        count = 1 if seen.exact else len(seen.products)
        return jnp.sum(seen.products**2) / (count * z.size)


class TotalDerivative(AbstractRegularizer):
    """|d^K f(t, z(t)) / dt^K|² / D, by Taylor mode; K = 1 is |df/dt + (df/dz) f|² / D, the acceleration.

    A path whose derivative of that order is small is one that a solver of that order takes in few steps.
    """

    name: ClassVar[str] = "derivative"
    order: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        if self.order < 1:
            raise ValueError(f"derivative_order must be at least 1; got {self.order}.")

    def __call__(self, f: Dynamics, t: Array, z: Array, seen: Local, probe: Any) -> Array:
        return jnp.mean(total_derivative(f, t, z, self.order) ** 2)


class MeanSpeed(AbstractRegularizer):
    """mean |f_i|."""

    name: ClassVar[str] = "mean_speed"

    def __call__(self, f: Dynamics, t: Array, z: Array, seen: Local, probe: Any) -> Array:
        return jnp.mean(jnp.abs(seen.dz))


class Speed(AbstractRegularizer):
    """√(|f|² / D)."""

    name: ClassVar[str] = "speed"

    def __call__(self, f: Dynamics, t: Array, z: Array, seen: Local, probe: Any) -> Array:
        return _rms(seen.dz)


class Directional(AbstractRegularizer):
    """√(|(df/dz) f|² / D): how f changes in its own direction."""

    name: ClassVar[str] = "directional"

    def __call__(self, f: Dynamics, t: Array, z: Array, seen: Local, probe: Any) -> Array:
        return _rms(jax.jvp(lambda y: f(t, y), (z,), (seen.dz,))[1])


class JacobianFull(AbstractRegularizer):
    """√(‖df/dz‖²_F / D²), from all D columns."""

    name: ClassVar[str] = "jacobian_full"

    def __call__(self, f: Dynamics, t: Array, z: Array, seen: Local, probe: Any) -> Array:
        return _rms(_jacobian(f, t, z, seen))


class JacobianDiagonal(AbstractRegularizer):
    """√(Σ_i (df_i/dz_i)² / D), from all D columns."""

    name: ClassVar[str] = "jacobian_diagonal"

    def __call__(self, f: Dynamics, t: Array, z: Array, seen: Local, probe: Any) -> Array:
        return _rms(jnp.diagonal(_jacobian(f, t, z, seen)))


class JacobianOffDiagonal(AbstractRegularizer):
    """Σ_{i≠j} (df_i/dz_j)² / (D (D - 1)), from all D columns."""

    name: ClassVar[str] = "jacobian_off_diagonal"

    def __call__(self, f: Dynamics, t: Array, z: Array, seen: Local, probe: Any) -> Array:
        squares = _jacobian(f, t, z, seen) ** 2
        return (jnp.sum(squares) - jnp.trace(squares)) / max(1, z.size * (z.size - 1))


SIMPLE: dict[str, type[AbstractRegularizer]] = {
    kind.name: kind
    for kind in (
        Kinetic,
        JacobianFrobenius,
        MeanSpeed,
        Speed,
        Directional,
        JacobianFull,
        JacobianDiagonal,
        JacobianOffDiagonal,
    )
}
"""Those without settings, by name."""


def total_derivative(f: Dynamics, t: Float[Array, ""], z: Float[Array, "*event"], order: int) -> Float[Array, "*event"]:
    """d^K/dt^K f(t, z(t)) along dz/dt = f.

    z' = f gives the path's first derivative; each pass of Taylor mode through f turns the first k derivatives of z into
    those of f, the last of which is the next of z. A network with a part that JAX's Taylor mode cannot take (softplus
    is one) is differentiated K times in forward mode instead.
    """
    try:
        return _by_taylor_mode(f, t, z, order)
    except (NotImplementedError, KeyError, jax.errors.UnexpectedTracerError):
        return _by_forward_mode(f, order)(t, z)


def _by_taylor_mode(f: Dynamics, t: Array, z: Array, order: int) -> Array:
    derivatives = [f(t, z)]
    for k in range(1, order + 1):
        times = [jnp.ones_like(t)] + [jnp.zeros_like(t)] * (k - 1)
        _, series = jet(f, (t, z), (times, list(derivatives)))
        derivatives.append(series[k - 1])
    return derivatives[-1]


def _by_forward_mode(f: Dynamics, order: int) -> Dynamics:
    if order == 0:
        return f
    lower = _by_forward_mode(f, order - 1)
    return lambda t, z: jax.jvp(lower, (t, z), (jnp.ones_like(t), f(t, z)))[1]


def _jacobian(f: Dynamics, t: Array, z: Array, seen: Local) -> Array:
    """df/dz as a (D, D) matrix, transposed; the columns are those of the exact trace where there are any."""
    if seen.exact and seen.products is not None:
        return seen.products.reshape(z.size, z.size)
    basis = jnp.eye(z.size, dtype=z.dtype).reshape(z.size, *z.shape)
    columns = jax.vmap(lambda v: jax.jvp(lambda y: f(t, y), (z,), (v,))[1])(basis)
    return columns.reshape(z.size, z.size)


def _rms(x: Array) -> Array:
    """√(mean of squares), with a gradient of zero at zero."""
    square = jnp.mean(x**2)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)
