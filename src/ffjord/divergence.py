"""Tr(df/dz), the rate at which the log-density falls (equation 2): exactly, or by an unbiased estimate.

Every estimator answers for one sample. `noise` is called once per solve and `__call__` at each evaluation, so
that ε stays fixed along the path and the integrand is smooth (section 3.1). Estimators are interchangeable:
nothing else in the library knows which one it is using.
"""

import abc
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ffjord.choices import NoiseKind

Dynamics = Callable[[Float[Array, ""], Float[Array, "*event"]], Float[Array, "*event"]]


class Local(NamedTuple):
    """What an estimator saw of f at a point, with J = df/dz."""

    dz: Float[Array, "*event"]
    """f(t, z)."""
    trace: Float[Array, ""]
    """Tr(J), or its estimate."""
    vectors: Float[Array, "k *event"] | None
    """The directions v that it looked along, with E[v vᵀ] = I unless `exact`; none if it took no products with J."""
    products: Float[Array, "k *event"] | None
    """J v of each: the mean of |J v|² estimates ‖J‖²_F without bias."""
    exact: bool
    """Whether the vectors are the whole basis, so that the sum of |J v|² is ‖J‖²_F itself."""


class Prepared(NamedTuple):
    """ε, with what the dynamics makes of it once a solve."""

    eps: Float[Array, "k *event"]
    forms: Any
    """What `value_and_forms` takes."""


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

    def look(self, f: Dynamics, t: Float[Array, ""], z: Float[Array, "*event"], eps: Any) -> Local:
        """The same, with the products J v that the answer was made of, for whoever has another use for them."""
        dz, trace = self(f, t, z, eps)
        return Local(dz, trace, None, None, False)


class Exact(AbstractDivergence):
    """The sum of the Jacobian's diagonal, by D forward-mode products."""

    stochastic: ClassVar[bool] = False

    def __call__(
        self, f: Dynamics, t: Float[Array, ""], z: Float[Array, "*event"], eps: Any = None
    ) -> tuple[Float[Array, "*event"], Float[Array, ""]]:
        local = self.look(f, t, z, eps)
        return local.dz, local.trace

    def look(self, f: Dynamics, t: Float[Array, ""], z: Float[Array, "*event"], eps: Any = None) -> Local:
        basis = jnp.eye(z.size, dtype=z.dtype).reshape(z.size, *z.shape)
        dz, columns = _value_and_products(lambda y: f(t, y), z, basis)
        return Local(dz, jnp.sum(columns * basis), basis, columns, True)


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


class _AbstractProbing(AbstractDivergence):
    """An estimate from products with the Jacobian, which `look` hands on."""

    @abc.abstractmethod
    def look(self, f: Dynamics, t: Float[Array, ""], z: Float[Array, "*event"], eps: Any) -> Local:
        """The estimate and its products."""

    def __call__(
        self, f: Dynamics, t: Float[Array, ""], z: Float[Array, "*event"], eps: Any
    ) -> tuple[Float[Array, "*event"], Float[Array, ""]]:
        local = self.look(f, t, z, eps)
        return local.dz, local.trace


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

    def noise(self, f: Dynamics, z: Float[Array, "*event"], *, key: PRNGKeyArray) -> "Array | Prepared":
        eps = _draw(self.kind, (self.probes, *z.shape), z.dtype, key)
        return Prepared(eps, f.prepare_forms(eps)) if has_forms(f) else eps  # pyright: ignore[reportFunctionMemberAccess]

    def __call__(
        self, f: Dynamics, t: Float[Array, ""], z: Float[Array, "*event"], eps: Any
    ) -> tuple[Float[Array, "*event"], Float[Array, ""]]:
        if isinstance(eps, Prepared):
            dz, forms = f.value_and_forms(t, z, eps.forms)  # pyright: ignore[reportFunctionMemberAccess]
            return dz, jnp.mean(forms)
        local = self.look(f, t, z, eps)
        return local.dz, local.trace

    def look(self, f: Dynamics, t: Float[Array, ""], z: Float[Array, "*event"], eps: Any) -> Local:
        return _mean_along(f, t, z, eps.eps if isinstance(eps, Prepared) else eps)


class Orthogonal(_AbstractProbing):
    """The mean of vᵀ (df/dz) v over `probes` directions at right angles, uniformly distributed, with |v|² = D.

    Probes that share no direction repeat nothing of what the others saw. With k probes in D > 1 dimensions the estimate
    of Tr(A) has, with B = (A + Aᵀ)/2, the variance

        2 D (D - k) / (k (D - 1) (D + 2))  (‖B‖²_F - Tr(B)²/D)

    which is below Hutchinson's with Gaussian noise for every k, and zero for k = D: then the answer is exact, at the
    price of `Exact`. (The directions span a uniformly distributed subspace; less its mean k/D I, the projection onto it
    is spread evenly over the (D - 1)(D + 2)/2 dimensions of symmetric matrices without trace, and its squared norm is
    k (D - k)/D.)
    """

    stochastic: ClassVar[bool] = True
    probes: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        _check_probes(self.probes)

    def noise(self, f: Dynamics, z: Float[Array, "*event"], *, key: PRNGKeyArray) -> Array:
        if self.probes > z.size:
            raise ValueError(
                f"probes={self.probes} directions cannot all be at right angles in D={z.size} dimensions; set probes "
                f"to at most {z.size} (which makes the trace exact), or use Exact or Hutchinson."
            )
        return _draw_orthogonal((self.probes, *z.shape), z.dtype, key)

    def look(self, f: Dynamics, t: Float[Array, ""], z: Float[Array, "*event"], eps: Any) -> Local:
        return _mean_along(f, t, z, eps)


class HutchPlusPlus(_AbstractProbing):
    """The trace over the subspace where df/dz is largest, exactly, and Hutchinson's estimate of the rest (Hutch++).

    With J = df/dz, m directions S, r noise vectors G, and the columns of Q an orthonormal basis of what J S spans,

        Tr(J) ≈ Tr(Qᵀ J Q) + 1/r Σ_g gᵀ (I - QQᵀ) J (I - QQᵀ) g.

    It takes `probes` products with J in all: m = ⌊probes/3⌋ for J S, m for J Q and r = probes - 2m for the rest; and at
    each evaluation a QR decomposition of D×m numbers. For given S the variance is Hutchinson's with r probes for the
    matrix (I - QQᵀ) J (I - QQᵀ): zero if J has a rank of at most m, and small if its singular values fall quickly; else
    much is spent for little.

    S and G are drawn once a solve, Q follows from J(t, z) S. The directions S are at right angles: they span what
    Gaussian vectors would, and J S is as far from singular as can be, so that Q turns slowly along the path. Of random
    signs, in few dimensions, two vectors are often the same: then rounding decides on Q, anew at each evaluation, and
    no step is small enough for the solver. `kind` is that of G.

    Q is a constant to the gradient. Whatever orthonormal Q is, the expectation over G is the trace, so that the
    gradient at a fixed Q is an unbiased estimate of the trace's gradient; and the derivative of a QR decomposition is
    NaN where J S has not full rank, which a Jacobian of zeros has not. `look` hands on S and J S.

    Meyer, Musco, Musco and Woodruff, "Hutch++: Optimal Stochastic Trace Estimation", SOSA 2021, algorithm 1.
    """

    stochastic: ClassVar[bool] = True
    kind: NoiseKind = eqx.field(static=True, default="gaussian")
    probes: int = eqx.field(static=True, default=3)

    def __check_init__(self):
        _check_noise(self.kind, self.probes)
        if self.probes < 3:
            raise ValueError(
                "Hutch++ needs probes of at least 3, one product each for the sketch, its subspace and the rest; got "
                f"{self.probes}. Raise probes, or use Hutchinson."
            )

    def noise(self, f: Dynamics, z: Float[Array, "*event"], *, key: PRNGKeyArray) -> tuple[Array, Array]:
        m = self.probes // 3
        if m > z.size:
            raise ValueError(
                f"probes={self.probes} give Hutch++ a sketch of {m} vectors in D={z.size} dimensions; set probes to at "
                f"most {3 * z.size + 2}, or use Exact, which takes {z.size} products."
            )
        key_sketch, key_rest = jax.random.split(key)
        sketch = _draw_orthogonal((m, *z.shape), z.dtype, key_sketch)
        return sketch, _draw(self.kind, (self.probes - 2 * m, *z.shape), z.dtype, key_rest)

    def look(self, f: Dynamics, t: Float[Array, ""], z: Float[Array, "*event"], eps: Any) -> Local:
        sketch, rest = eps
        axes = tuple(range(1, 1 + z.ndim))
        dz, push = jax.linearize(lambda y: f(t, y), z)
        products = jax.vmap(push)(sketch)
        q = orthonormal_basis(jax.lax.stop_gradient(products))
        rest = rest - jnp.tensordot(jnp.tensordot(rest, q, (axes, axes)), q, 1)
        seen = jnp.concatenate([q, rest])
        dots = jnp.sum(seen * jax.vmap(push)(seen), axis=axes)
        trace = jnp.sum(dots[: len(q)]) + jnp.mean(dots[len(q) :])
        return Local(dz, trace, sketch, products, False)


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


def has_forms(f: Dynamics) -> bool:
    """Whether the dynamics computes εᵀ (df/dz) ε itself, for an ε that it may prepare before the solve."""
    return getattr(f, "has_forms", False)


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


def _mean_along(f: Dynamics, t: Array, z: Array, vectors: Array) -> Local:
    """The mean of vᵀ (df/dz) v, and what it was made of."""
    dz, products = _value_and_products(lambda y: f(t, y), z, vectors)
    return Local(dz, jnp.sum(products * vectors) / len(vectors), vectors, products, False)


def orthonormal_basis(vectors: Float[Array, "m *event"]) -> Float[Array, "m *event"]:
    """An orthonormal basis of a space that holds the vectors, even where they are not independent.

    By Gram and Schmidt, twice: that is orthogonal to rounding. LAPACK's QR is not used because it is a call out of the
    compiled program, and a large program with such calls can come to a halt on two cores (seen with JAX 0.10).
    """
    flat = vectors.reshape(len(vectors), -1)
    others = jax.random.normal(jax.random.key(0), flat.shape, flat.dtype)  # for vectors that depend on those before

    def add(basis: Array, item: tuple[Array, Array, Array]) -> tuple[Array, None]:
        number, vector, other = item
        clean = lambda v: v - (basis @ v) @ basis
        least = 10 * jnp.finfo(vector.dtype).eps * jnp.linalg.norm(vector)
        rest = clean(jnp.where(jnp.linalg.norm(clean(vector)) > least, clean(vector), clean(other)))
        return basis.at[number].set(rest / jnp.linalg.norm(rest)), None

    basis, _ = jax.lax.scan(add, jnp.zeros_like(flat), (jnp.arange(len(flat)), flat, others))
    return basis.reshape(vectors.shape)


def _draw(kind: NoiseKind, shape: tuple[int, ...], dtype: Any, key: PRNGKeyArray) -> Array:
    draw = jax.random.normal if kind == "gaussian" else jax.random.rademacher
    return draw(key, shape, dtype)


def _draw_orthogonal(shape: tuple[int, ...], dtype: Any, key: PRNGKeyArray) -> Array:
    """Vectors v (leading axis) at right angles, uniformly distributed, with |v|² = D and so E[v vᵀ] = I."""
    return np.sqrt(np.prod(shape[1:])).astype(dtype) * orthonormal_basis(jax.random.normal(key, shape, dtype))


def _check_noise(kind: str, probes: int) -> None:
    if kind not in get_args(NoiseKind):
        raise ValueError(f"noise must be one of {', '.join(get_args(NoiseKind))}; got {kind!r}.")
    _check_probes(probes)


def _check_probes(probes: int) -> None:
    if probes < 1:
        raise ValueError(f"probes must be at least 1; got {probes}.")
