"""Flow matching: training without solving.

A point z of the base and a point x of the data are joined by a path z_s, s from 0 to 1. The velocity field that takes
the whole base to the data is, at every point and time, the mean of the velocities of the paths that pass there; and the
least squares fit to the velocities of single paths is that mean. So the dynamics learns the flow at the price of one
evaluation a sample, and the flow is scored by its exact likelihood as ever.

Lipman et al., Flow matching for generative modeling, 2023; Albergo and Vanden-Eijnden, Building normalizing flows with
stochastic interpolants, 2023; Tong et al., Improving and generalizing flow-based generative models with minibatch
optimal transport, 2023.
"""

import dataclasses
from typing import Any, get_args

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ffjord.bijections import CNF, Chain, continuous_parts
from ffjord.bijections.base import AbstractBijection
from ffjord.choices import CouplingName, InterpolantName, TimesName
from ffjord.data.source import Conditioned
from ffjord.flow import Flow
from ffjord.objectives import Progress
from ffjord.solve import OK

_FINEST = 0.02
"""δ of late times."""


@dataclasses.dataclass(frozen=True)
class FlowMatching:
    """E |T f(T s, z_s) - dz_s/ds|² / D, over pairs of base and data and over s.

    - straight:        z_s = (1 - s) z + s x,                       dz_s/ds = x - z
    - trigonometric:   z_s = cos(πs/2) z + sin(πs/2) x,             dz_s/ds = π/2 (cos(πs/2) x - sin(πs/2) z)

    **Arguments:**

    - `coupling`: pairs at random, or the assignment of base points to data with the least total squared distance
        (within groups of a batch, see `optimal_assignment`), whose paths cross less; not for conditional densities,
        whose conditions it would leak into the base.
    - `times`: s uniform and independent; stratified (one in each n-th of [0, 1]: uniform, with less variance);
        logit-normal (mostly in the middle, where the velocities vary most); or late, see `draw_times`.
    """

    coupling: CouplingName = "independent"
    interpolant: InterpolantName = "straight"
    times: TimesName = "stratified"

    def __post_init__(self):
        for name, words in (("coupling", CouplingName), ("interpolant", InterpolantName), ("times", TimesName)):
            if getattr(self, name) not in get_args(words):
                raise ValueError(f"{name} must be one of {', '.join(get_args(words))}; got {getattr(self, name)!r}.")

    def __call__(self, flow: Flow, batch: Any, key: PRNGKeyArray) -> tuple[Float[Array, ""], Progress]:
        x, condition = Conditioned.of(batch)
        if self.coupling == "optimal" and condition is not None:
            raise ValueError("coupling must be independent where there are conditions; got optimal.")
        key_base, key_times, key_parts = jax.random.split(key, 3)
        z = flow.base.sample(len(x), dtype=x.dtype, key=key_base)
        cnf, z, x, observed = _ends_of_path(flow.bijection, z, x, key_parts)
        if self.coupling == "optimal":
            z = z[optimal_assignment(x, z)]
        s = draw_times(self.times, len(x), x.dtype, key=key_times)
        point, velocity = interpolate(self.interpolant, z, x, s)
        f = lambda s, z, c: cnf.dynamics(cnf.end_time * s, z, *(() if c is None else (c,)))
        wrong = cnf.end_time * jax.vmap(f)(s, point, condition) - velocity
        metrics = {"nfe": jnp.ones(()), "outcome": jnp.asarray(OK)}
        return jnp.mean(wrong**2), Progress(metrics, observed)


def interpolate(
    kind: InterpolantName, z: Float[Array, "n *event"], x: Float[Array, "n *event"], s: Float[Array, " n"]
) -> tuple[Float[Array, "n *event"], Float[Array, "n *event"]]:
    """Where the path from z to x is at s, and how fast it goes."""
    s = s.reshape(-1, *[1] * (x.ndim - 1))
    if kind == "straight":
        return (1 - s) * z + s * x, x - z
    quarter = jnp.pi / 2
    cos, sin = jnp.cos(quarter * s), jnp.sin(quarter * s)
    return cos * z + sin * x, quarter * (cos * x - sin * z)


def draw_times(kind: TimesName, n: int, dtype: Any, *, key: PRNGKeyArray) -> Float[Array, " n"]:
    """n times between 0 and 1.

    Late ones have the density 1 / (c max(1 - s, δ)), c = 1 - log δ, δ = 0.02, and are stratified. An error of the
    velocity at s counts in the likelihood of a straight path about as s/(1 - s) (by the identity of information and
    least squares, with signal-to-noise ratio s²/(1 - s)²), down to where the data have no finer structure.
    """
    if kind == "logit-normal":
        return jax.nn.sigmoid(jax.random.normal(key, (n,), dtype))
    uniform = jax.random.uniform(key, (n,), dtype)
    if kind == "uniform":
        return uniform
    places = jax.random.permutation(jax.random.fold_in(key, 1), n).astype(dtype)
    spread = (places + uniform) / n
    return _late(spread) if kind == "late" else spread


def _late(u: Float[Array, " n"]) -> Float[Array, " n"]:
    """The inverse of the distribution: 1 - s falls exponentially to δ, then linearly to 0."""
    delta = jnp.asarray(_FINEST, u.dtype)
    depth = (1 - jnp.log(delta)) * u
    return 1 - jnp.where(depth < -jnp.log(delta), jnp.exp(-depth), delta * (1 - depth - jnp.log(delta)))


def optimal_assignment(x: Float[Array, "n *event"], z: Float[Array, "n *event"]) -> Int[Array, " n"]:
    """The permutation p with the least Σ_i |x_i - z_p(i)|², within groups of rows: the cost grows with their cube.

    The groups are the largest equal ones of at most 64 rows; all rows are one where that would be fewer than 16.
    """
    n = len(x)
    size = next((size for size in range(64, 15, -1) if n % size == 0), n)
    x, z = (jax.lax.stop_gradient(y).reshape(n // size, size, -1) for y in (x, z))

    def assign(x: Array, z: Array) -> Array:
        rows, columns = optax.assignment.hungarian_algorithm(-x @ z.T)  # squares are the same for every permutation
        return jnp.zeros_like(columns).at[rows].set(columns)

    first = size * jnp.arange(n // size)[:, None]
    return (first + jax.vmap(assign)(x, z)).reshape(n)


def check_matching(flow: Flow) -> None:
    """Refuses a flow that has not exactly one continuous part."""
    count = len(continuous_parts(flow.bijection))
    if count != 1 or not any(isinstance(part, CNF) for part in _parts(flow.bijection)):
        where = "" if count != 1 else " inside of another map"
        raise ValueError(f"flow matching needs a flow with exactly one continuous part; this one has {count}{where}.")


def _ends_of_path(bijection: AbstractBijection, z: Array, x: Array, key: PRNGKeyArray) -> tuple[CNF, Array, Array, Any]:
    """The continuous part, and base and data as it meets them: on the other side of the parts around it.

    These parts (normalisations) do not learn here: what makes the data smaller would make the loss smaller.
    """
    parts = _parts(bijection)
    place = next(i for i, part in enumerate(parts) if isinstance(part, CNF))
    for part in parts[:place]:
        z = part.forward(z, train=True, key=key).value
    observed: list[Any] = []
    for part in parts[:place:-1]:
        out = part.inverse(x, train=True, key=key)
        x = out.value
        observed.append(out.report.observed)
    cnf: Any = parts[place]
    seen = (*observed, *[None] * (place + 1)) if isinstance(bijection, Chain) else None
    return cnf, jax.lax.stop_gradient(z), jax.lax.stop_gradient(x), seen


def _parts(bijection: AbstractBijection) -> tuple[AbstractBijection, ...]:
    return bijection.parts if isinstance(bijection, Chain) else (bijection,)
