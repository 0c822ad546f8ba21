"""Planar flows (Rezende and Mohamed, "Variational Inference with Normalizing Flows", ICML 2015).

Base → data has a closed form: samples and their densities take one pass. Data → base has none: there, each layer finds
the root of a monotone function of one number, to the precision of the floating-point type.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from ffjord.bijections import Repeated
from ffjord.bijections.base import AbstractBijection, Report, Transformed
from ffjord.bijections.coupling import one_width
from ffjord.dynamics import nonlinearity
from ffjord.experiments.config import ModelConfig
from ffjord.flow import Flow, StandardNormal


def planar(dim: int, model: ModelConfig, *, condition_size: int = 0, key: PRNGKeyArray) -> Flow:
    """`flows` planar layers; with conditions, networks with `hidden` widths move their coefficients."""
    build = lambda key: PlanarLayer(dim, _network(dim, model, condition_size, key), key=key)
    bijection = Repeated(build, model.flows, key=key)
    return Flow(StandardNormal((dim,)), bijection, (condition_size,) if condition_size else None)


class PlanarLayer(AbstractBijection):
    """x = z + û tanh(wᵀz + b), whose Jacobian has the determinant 1 + wᵀû (1 - tanh²(wᵀz + b)).

    It is invertible if wᵀû > -1, to which û = u + (m(wᵀu) - wᵀu) w / |w|² with m(a) = softplus(a) - 1 sees. The inverse
    is z = x - û tanh(s), where s is the root of s + wᵀû tanh(s) = wᵀx + b. The layer starts near the identity.

    **Arguments:**

    - `dim`: D, the size of z.
    - `network`: from a condition to 2D + 1 numbers that are added to (w, u, b); None for a layer without conditions.
    """

    coefficients: Float[Array, " size"]
    network: eqx.nn.MLP | None

    def __init__(self, dim: int, network: eqx.nn.MLP | None = None, *, key: PRNGKeyArray):
        key_w, key_u = jax.random.split(key)
        w = jax.random.normal(key_w, (dim,)) / np.sqrt(dim)
        u = np.log(np.e - 1) * w / (w @ w) + 0.01 * jax.random.normal(key_u, (dim,))  # m(log(e - 1)) = 0
        self.coefficients, self.network = jnp.concatenate([w, u, jnp.zeros(1)]), network

    def forward(
        self,
        z: Float[Array, "n dim"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        return self._rows(_forward, z, condition)

    def inverse(
        self,
        x: Float[Array, "n dim"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        return self._rows(_inverse, x, condition)

    def _rows(self, direction: Callable[..., tuple[Array, Array]], rows: Array, condition: Array | None) -> Transformed:
        if self.network is None or condition is None:
            out = jax.vmap(direction, (None, 0))(self.coefficients, rows)
        else:
            out = jax.vmap(direction)(self.coefficients + jax.vmap(self.network)(condition), rows)
        return Transformed(*out, Report.nothing())


def _network(dim: int, model: ModelConfig, condition_size: int, key: PRNGKeyArray) -> eqx.nn.MLP | None:
    """From a condition to what is added to a layer's coefficients: nothing, at first."""
    if not condition_size:
        return None
    sigma, width, key = nonlinearity(model.nonlinearity), one_width(model.hidden), jax.random.fold_in(key, 1)
    net = eqx.nn.MLP(condition_size, 2 * dim + 1, width, len(model.hidden), activation=sigma, key=key)
    return eqx.tree_at(lambda net: (net.layers[-1].weight, net.layers[-1].bias), net, replace_fn=jnp.zeros_like)


def _forward(coefficients: Array, z: Array) -> tuple[Array, Array]:
    w, u, b, stretch = _plane(coefficients)
    s = w @ z + b
    return z + u * jnp.tanh(s), jnp.log(_slope(stretch, s))


def _inverse(coefficients: Array, x: Array) -> tuple[Array, Array]:
    w, u, b, stretch = _plane(coefficients)
    s = _root(stretch, w @ x + b)
    return x - u * jnp.tanh(s), -jnp.log(_slope(stretch, s))


def _plane(coefficients: Float[Array, " size"]) -> tuple[Array, Array, Array, Array]:
    """w, û, b and wᵀû from (w, u, b)."""
    dim = len(coefficients) // 2
    w, u, b = coefficients[:dim], coefficients[dim:-1], coefficients[-1]
    stretch = jax.nn.softplus(w @ u) - 1
    return w, u + (stretch - w @ u) * w / (w @ w), b, stretch


@jax.custom_jvp
def _root(stretch: Float[Array, ""], target: Float[Array, ""]) -> Float[Array, ""]:
    """s with s + stretch tanh(s) = target, for stretch > -1: by bisection, and its last digits by Newton's steps."""
    excess = lambda s: s + stretch * jnp.tanh(s) - target

    def halve(_, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = (low + high) / 2
        below = excess(middle) < 0
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    reach = jnp.abs(stretch)
    low, high = jax.lax.fori_loop(0, jnp.finfo(target.dtype).nmant, halve, (target - reach, target + reach))
    s = (low + high) / 2
    for _ in range(3):
        s = jnp.clip(s - excess(s) / _slope(stretch, s), low, high)
    return s


@_root.defjvp
def _root_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    """The implicit function's: ds = (d target - tanh(s) d stretch) / slope."""
    s = _root(*primals)
    d_stretch, d_target = tangents
    return s, (d_target - jnp.tanh(s) * d_stretch) / _slope(primals[0], s)


def _slope(stretch: Float[Array, ""], s: Float[Array, ""]) -> Float[Array, ""]:
    """d/ds (s + stretch tanh(s))."""
    return 1 + stretch * (1 - jnp.tanh(s) ** 2)
