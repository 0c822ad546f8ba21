"""Multi-layer perceptrons as dynamics, with their divergence in closed form."""

from collections.abc import Callable, Sequence
from typing import get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ffjord.choices import LayerKind, NonlinearityName
from ffjord.dynamics.layers import AbstractTimeLinear, time_linear

_NONLINEARITIES: dict[str, Callable[[Array], Array]] = {
    "tanh": jnp.tanh,
    "softplus": jax.nn.softplus,
    "elu": jax.nn.elu,
    "swish": jax.nn.silu,
    "relu": jax.nn.relu,
    "square": jnp.square,
    "identity": lambda x: x,
}


def nonlinearity(name: NonlinearityName) -> Callable[[Array], Array]:
    """The named nonlinearity, applied elementwise."""
    if name not in _NONLINEARITIES:
        raise ValueError(f"nonlinearity must be one of {', '.join(get_args(NonlinearityName))}; got {name!r}.")
    return _NONLINEARITIES[name]


class MLP(eqx.Module):
    """f(t, z) = A_L σ(… σ(A_1 z + b_1) …) + b_L, every layer conditioned on the time.

    **Arguments:**

    - `dim`: D, the size of z.
    - `hidden`: widths of the hidden layers; an empty sequence gives linear dynamics.
    - `layer`: how the layers know the time, see `ffjord.dynamics.layers`.
    - `nonlinearity`: name of σ.
    - `condition_size`: size of the condition c, which adds C c to what the first layer gives; 0 for none.
    """

    layers: tuple[AbstractTimeLinear, ...]
    nonlinearity: NonlinearityName = eqx.field(static=True)
    given: eqx.nn.Linear | None = None

    def __init__(
        self,
        dim: int,
        hidden: Sequence[int] = (64, 64, 64),
        *,
        layer: LayerKind = "concatsquash",
        nonlinearity: NonlinearityName = "tanh",
        condition_size: int = 0,
        key: PRNGKeyArray,
    ):
        sizes = [dim, *hidden, dim]
        if min(sizes) < 1:
            raise ValueError(f"dim and hidden widths must be positive; got dim={dim}, hidden={tuple(hidden)}.")
        _sigma(nonlinearity)  # fail now rather than at the first evaluation
        keys = jax.random.split(key, len(sizes) - 1)
        shapes = zip(sizes[:-1], sizes[1:], keys, strict=True)
        self.layers = tuple(time_linear(layer, m, n, key=k) for m, n, k in shapes)
        self.nonlinearity = nonlinearity
        if condition_size:
            self.given = eqx.nn.Linear(condition_size, sizes[1], use_bias=False, key=jax.random.fold_in(key, 1))

    def __call__(
        self, t: Float[Array, ""], z: Float[Array, " dim"], condition: Float[Array, " c"] | None = None
    ) -> Float[Array, " dim"]:
        return self._run(self.layers, t, z, self._shift(condition))

    # The cyclic trace (equation 9) needs to know where the network is narrowest.

    @property
    def waist(self) -> int:
        """Number of layers up to and including the one with the narrowest output."""
        widths = [jax.eval_shape(layer.at, jnp.zeros(())).bias.shape[0] for layer in self.layers[:-1]]
        if not widths:
            raise ValueError("an MLP without hidden layers has no waist; give it hidden layers.")
        return widths.index(min(widths)) + 1

    def encode(
        self, t: Float[Array, ""], z: Float[Array, " dim"], condition: Float[Array, " c"] | None = None
    ) -> Float[Array, " waist"]:
        """h, the pre-activations of the narrowest hidden layer: f = decode ∘ encode."""
        return self._run(self.layers[: self.waist], t, z, self._shift(condition))

    def decode(self, t: Float[Array, ""], h: Float[Array, " waist"]) -> Float[Array, " dim"]:
        """g, from the narrowest hidden layer to dz/dt."""
        return self._run(self.layers[self.waist :], t, _sigma(self.nonlinearity)(h))

    # The divergence in closed form.

    @property
    def has_closed_form(self) -> bool:
        """Whether `value_and_divergence` exists: it does for at most two hidden layers."""
        return len(self.layers) <= 3

    def value_and_divergence(
        self, t: Float[Array, ""], z: Float[Array, " dim"], condition: Float[Array, " c"] | None = None
    ) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """f(t, z) and Tr(df/dz), exactly, at about the price of one Hutchinson probe.

        With u1 = A1 z + b1, u2 = A2 σ(u1) + b2, f = A3 σ(u2) + b3 and s_l = σ'(u_l),

            Tr(df/dz) = Tr(A3 diag(s2) A2 diag(s1) A1) = s2ᵀ (A2 ∘ (A1 A3)ᵀ) s1.

        A1 A3 does not depend on z: a batch that shares t computes it once.
        """
        maps = [layer.at(t) for layer in self.layers]
        slopes = []
        h, shift = z, self._shift(condition)
        for linear in maps[:-1]:
            h, slope = value_and_slope(_sigma(self.nonlinearity), _added(linear(h), shift))
            slopes.append(slope)
            shift = None
        return _added(maps[-1](h), shift), trace_with(product_of([m.matrix() for m in maps]), slopes)

    def _shift(self, condition: Array | None) -> Array | None:
        """C c, for the first layer."""
        return None if self.given is None or condition is None else self.given(condition)

    def _run(self, layers: Sequence[AbstractTimeLinear], t: Array, h: Array, shift: Array | None = None) -> Array:
        *hidden, last = layers
        for layer in hidden:
            h = _sigma(self.nonlinearity)(_added(layer(t, h), shift))
            shift = None
        return _added(last(t, h), shift)


_sigma = nonlinearity


def _added(u: Array, shift: Array | None) -> Array:
    return u if shift is None else u + shift


def value_and_slope(sigma: Callable[[Array], Array], u: Array) -> tuple[Array, Array]:
    """σ(u) and σ'(u)."""
    return jax.jvp(sigma, (u,), (jnp.ones_like(u),))


def product_of(matrices: list[Array]) -> Array:
    """What Tr(A_L diag(s_{L-1}) … diag(s_1) A_1) takes of the matrices: Tr(A1), diag(A1 A2), or A2 ∘ (A1 A3)ᵀ."""
    match matrices:
        case [a1]:
            return jnp.trace(a1)
        case [a1, a2]:
            return jnp.einsum("hd,dh->h", a1, a2)
        case [a1, a2, a3]:
            return a2 * (a1 @ a3).T
        case _:
            raise ValueError(
                f"the divergence has a closed form for at most two hidden layers; this MLP has {len(matrices) - 1}. "
                "Use Exact or Hutchinson instead."
            )


def trace_with(product: Array, slopes: list[Array]) -> Array:
    """The trace, from what `product_of` gave and the slopes s_l."""
    match slopes:
        case []:
            return product
        case [s1]:
            return s1 @ product
        case _:
            s1, s2 = slopes
            return s2 @ (s1 @ product.T)
