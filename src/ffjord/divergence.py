"""Tr(df/dz), the rate at which the log-density falls (equation 2): exactly, or by an unbiased estimate.

Every estimator answers for one sample. `noise` is called once per solve and `__call__` at each evaluation, so
that ε stays fixed along the path and the integrand is smooth (section 3.1). Estimators are interchangeable:
nothing else in the library knows which one it is using.
"""

import abc
from collections.abc import Callable
from typing import Any, ClassVar, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ffjord.choices import NoiseKind

Dynamics = Callable[[Float[Array, ""], Float[Array, "*event"]], Float[Array, "*event"]]


class AbstractDivergence(eqx.Module):
    """How to get f(t, z) together with its divergence."""

    stochastic: ClassVar[bool]
    """Whether the answer is an estimate that needs noise, and so a key."""

    def noise(self, f: Dynamics, z: Float[Array, "*event"], *, key: PRNGKeyArray) -> Any:
        """ε for one sample and one solve; nothing for an exact method."""
        return None

    @abc.abstractmethod
    def __call__(
        self, f: Dynamics, t: Float[Array, ""], z: Float[Array, "*event"], eps: Any
    ) -> tuple[Float[Array, "*event"], Float[Array, ""]]:
        """f(t, z) and Tr(df/dz), or its estimate with the noise `eps`."""


class Exact(AbstractDivergence):
    """The sum of the Jacobian's diagonal, by D forward-mode products."""

    stochastic: ClassVar[bool] = False

    def __call__(
        self, f: Dynamics, t: Float[Array, ""], z: Float[Array, "*event"], eps: Any = None
    ) -> tuple[Float[Array, "*event"], Float[Array, ""]]:
        basis = jnp.eye(z.size, dtype=z.dtype).reshape(z.size, *z.shape)
        dz, columns = _value_and_products(lambda y: f(t, y), z, basis)
        return dz, jnp.sum(columns * basis)


class Skipped(AbstractDivergence):
    """No divergence: the log-determinant comes out as zero. For paths of which only the points matter."""

    stochastic: ClassVar[bool] = False

    def __call__(
        self, f: Dynamics, t: Float[Array, ""], z: Float[Array, "*event"], eps: Any = None
    ) -> tuple[Float[Array, "*event"], Float[Array, ""]]:
        return f(t, z), jnp.zeros((), z.dtype)


class ClosedForm(AbstractDivergence):
    """What the dynamics itself knows: `f.value_and_divergence(t, z)`."""

    stochastic: ClassVar[bool] = False

    def __call__(
        self, f: Dynamics, t: Float[Array, ""], z: Float[Array, "*event"], eps: Any = None
    ) -> tuple[Float[Array, "*event"], Float[Array, ""]]:
        if not has_closed_form(f):
            raise ValueError(
                f"{type(f).__name__} has no divergence in closed form (an MLP has one for up to two hidden layers); "
                "use Exact or Hutchinson."
            )
        return f.value_and_divergence(t, z)  # pyright: ignore[reportFunctionMemberAccess]


class Hutchinson(AbstractDivergence):
    """εᵀ (df/dz) ε with E[ε] = 0, Cov(ε) = I (equation 7), averaged over `probes` draws of ε.

    The estimate of Tr(A) has, with B = (A + Aᵀ)/2, the variance 2 ‖B‖²_F / probes for Gaussian noise and
    2 (‖B‖²_F - Σ B_ii²) / probes for Rademacher noise.
    """

    stochastic: ClassVar[bool] = True
    kind: NoiseKind = eqx.field(static=True, default="gaussian")
    probes: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        _check_noise(self.kind, self.probes)

    def noise(self, f: Dynamics, z: Float[Array, "*event"], *, key: PRNGKeyArray) -> Array:
        return _draw(self.kind, (self.probes, *z.shape), z.dtype, key)

    def __call__(
        self, f: Dynamics, t: Float[Array, ""], z: Float[Array, "*event"], eps: Any
    ) -> tuple[Float[Array, "*event"], Float[Array, ""]]:
        dz, products = _value_and_products(lambda y: f(t, y), z, eps)
        return dz, jnp.sum(products * eps) / self.probes


class Bottleneck(AbstractDivergence):
    """εᵀ (dh/dz) (dg/dh) ε for f = g ∘ h, by the cyclic property of the trace (equation 9).

    The dynamics says where it is narrowest, with `encode` (h) and `decode` (g); ε has that width.
    """

    stochastic: ClassVar[bool] = True
    kind: NoiseKind = eqx.field(static=True, default="gaussian")
    probes: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        _check_noise(self.kind, self.probes)

    def noise(self, f: Dynamics, z: Float[Array, "*event"], *, key: PRNGKeyArray) -> Array:
        if not has_waist(f):
            raise ValueError(f"{type(f).__name__} has no `encode` and `decode`; Bottleneck needs both. Use Hutchinson.")
        encode = f.encode  # pyright: ignore[reportFunctionMemberAccess]
        waist = jax.eval_shape(encode, jax.ShapeDtypeStruct((), z.dtype), z)
        return _draw(self.kind, (self.probes, *waist.shape), z.dtype, key)

    def __call__(
        self, f: Dynamics, t: Float[Array, ""], z: Float[Array, "*event"], eps: Any
    ) -> tuple[Float[Array, "*event"], Float[Array, ""]]:
        waist, push = jax.linearize(lambda y: f.encode(t, y), z)  # pyright: ignore[reportFunctionMemberAccess]
        dz, products = _value_and_products(lambda h: f.decode(t, h), waist, eps)  # pyright: ignore[reportFunctionMemberAccess]
        return dz, jnp.sum(jax.vmap(push)(products) * eps) / self.probes


def has_closed_form(f: Dynamics) -> bool:
    """Whether the dynamics knows its own divergence."""
    return getattr(f, "has_closed_form", False)


def has_waist(f: Dynamics) -> bool:
    """Whether the dynamics names a narrowest layer."""
    return hasattr(f, "encode") and hasattr(f, "decode")


def automatic(
    f: Dynamics, event_shape: tuple[int, ...], *, max_products: int, kind: NoiseKind = "gaussian", probes: int = 1
) -> AbstractDivergence:
    """The cheapest exact divergence, or Hutchinson's where exact would take more than `max_products` products."""
    if has_closed_form(f):
        return ClosedForm()
    if np.prod(event_shape) <= max_products:
        return Exact()
    return Hutchinson(kind, probes)


def _value_and_products(f: Callable[[Array], Array], z: Array, vectors: Array) -> tuple[Array, Array]:
    """f(z), and df/dz times each of the vectors (leading axis), in one forward-mode sweep."""
    return jax.vmap(lambda v: jax.jvp(f, (z,), (v,)), out_axes=(None, 0))(vectors)


def _draw(kind: NoiseKind, shape: tuple[int, ...], dtype: Any, key: PRNGKeyArray) -> Array:
    draw = jax.random.normal if kind == "gaussian" else jax.random.rademacher
    return draw(key, shape, dtype)


def _check_noise(kind: str, probes: int) -> None:
    if kind not in get_args(NoiseKind):
        raise ValueError(f"noise must be one of {', '.join(get_args(NoiseKind))}; got {kind!r}.")
    if probes < 1:
        raise ValueError(f"probes must be at least 1; got {probes}.")
