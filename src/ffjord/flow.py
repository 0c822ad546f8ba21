"""Flow = base density + bijection."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray, Real, Shaped

from ffjord.bijections.base import AbstractBijection, Report
from ffjord.bijections.cnf import CNF
from ffjord.compilation import compiled
from ffjord.divergence import Skipped
from ffjord.errors import SolveError as SolveError
from ffjord.solve import MESSAGES, OK


class StandardNormal(eqx.Module):
    """N(0, I), the base density of section 2.2."""

    event_shape: tuple[int, ...] = eqx.field(static=True)

    def log_prob(self, z: Float[Array, "n *event"]) -> Float[Array, " n"]:
        size = np.prod(self.event_shape)
        axes = tuple(range(1, z.ndim))
        return -0.5 * jnp.sum(z**2, axis=axes) - 0.5 * size * np.log(2 * np.pi)

    def sample(self, n: int, *, dtype: Any, key: PRNGKeyArray) -> Float[Array, "n *event"]:
        return jax.random.normal(key, (n, *self.event_shape), dtype)


class Density(NamedTuple):
    """log p(x), the point z that generates x, and what the solves report."""

    log_prob: Float[Array, " n"]
    z: Float[Array, "n *event"]
    report: Report


class Samples(NamedTuple):
    """Samples x, their log-densities from the same solve, and what it reports."""

    x: Float[Array, "n *event"]
    log_prob: Float[Array, " n"]
    report: Report


class Path(NamedTuple):
    """Samples on their way from the base (time 0) to the data (time 1), with the log-densities they have there."""

    times: Float[Array, " k"]
    x: Float[Array, "k n *event"]
    log_prob: Float[Array, "k n"]


class Flow(eqx.Module):
    """A density that can be evaluated and sampled.

        log p(x) = log p(z) + log |det dz/dx|,   z = bijection.inverse(x)          (equations 1 and 3)

    The methods take NumPy or JAX arrays and compile themselves. Outside of `jax.jit` a failed solve raises
    `SolveError`; under a transformation it shows as NaN, and in the report's `outcome`.
    """

    base: StandardNormal
    bijection: AbstractBijection

    @property
    def event_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return self.base.event_shape

    @property
    def dtype(self) -> Any:
        """Floating-point type of the parameters, and so of the results."""
        leaves = jax.tree.leaves(self.bijection)
        return jnp.result_type(*{leaf.dtype for leaf in leaves if eqx.is_inexact_array(leaf)})

    def log_prob(self, x: Shaped[Array | np.ndarray, "..."], *, key: PRNGKeyArray | None = None) -> Float[Array, " n"]:
        """n log-densities, in nats and in the data's own units, with the bijection's `testing` numerics."""
        density = _density(self, self._batch(x), key, False)
        _raise_if_failed(density.report)
        return density.log_prob

    def density(
        self, x: Shaped[Array | np.ndarray, "..."], *, train: bool = False, key: PRNGKeyArray | None = None
    ) -> Density:
        """Like `log_prob`, with the base points and the solver's report. Does not raise when a solve fails."""
        return _density(self, self._batch(x), key, train)

    def sample(self, n: int, *, key: PRNGKeyArray) -> Float[Array, "n *event"]:
        """n samples, without their densities: up to the solver's tolerance those of `sample_and_log_prob`."""
        return self._draw(_points, n, key).x

    def sample_and_log_prob(self, n: int, *, key: PRNGKeyArray) -> Samples:
        """n samples and their log-densities, from the same solve."""
        return self._draw(_samples, n, key)

    def at(self, time: float | Float[Array, ""]) -> "Flow":
        """The flow stopped at a moment between the base (0) and the data (1)."""
        return Flow(self.base, self.bijection.until(jnp.asarray(time, self.dtype)))

    def path(self, n: int, times: Real[Array | np.ndarray, " k"], *, key: PRNGKeyArray) -> Path:
        """z(t) of n samples at the given times in [0, 1], with log p(z(t)) at each."""
        x, log_prob, report = _path(self, n, jnp.asarray(times, self.dtype), key)
        _raise_if_failed(report)
        return Path(jnp.asarray(times, self.dtype), x, log_prob)

    def calibrate(self, x: Float[Array, "n *event"], *, key: PRNGKeyArray) -> "Flow":
        """The flow with its normalisations set from a first batch."""
        if not self.bijection.needs_calibration():
            return self
        return Flow(self.base, self.bijection.calibrate(x, key=key)[0])

    def absorb(self, observed: Any) -> "Flow":
        """The flow with its running statistics moved by what a training batch showed."""
        return Flow(self.base, self.bijection.absorb(observed))

    def _draw(self, draw: Callable[..., Samples], n: int, key: PRNGKeyArray) -> Samples:
        if n < 1:
            raise ValueError(f"n must be at least 1; got {n}.")
        samples = draw(self, n, key)
        _raise_if_failed(samples.report)
        return samples

    def _batch(self, x: Any) -> Array:
        """The input as an array of the flow's type, or an error that says what is wrong with it."""
        if not isinstance(x, jax.Array | np.ndarray):
            x = np.asarray(x)
        if x.shape[1:] != self.event_shape or x.ndim != len(self.event_shape) + 1:
            wanted = ", ".join(["n", *map(str, self.event_shape)])
            raise ValueError(f"x must have shape ({wanted}); got {tuple(x.shape)}.")
        if x.shape[0] == 0:
            raise ValueError("x must have at least one row; got none.")
        if not (jnp.issubdtype(x.dtype, jnp.number) or x.dtype == bool):
            raise ValueError(f"x must hold numbers; got an array of type {x.dtype}.")
        with np.errstate(over="ignore"):  # said below, in our own words
            batch = jnp.asarray(x, self.dtype)
        if not isinstance(batch, Tracer) and not bool(jnp.all(jnp.isfinite(batch))):
            raise ValueError(f"x must be finite; got NaN, infinity or a number too large for {self.dtype}.")
        return batch


@compiled
def _density(flow: Flow, x: Array, key: PRNGKeyArray | None, train: bool) -> Density:
    out = flow.bijection.inverse(x, train=train, key=key)
    return Density(flow.base.log_prob(out.value) + out.log_det, out.value, out.report)


@compiled
def _samples(flow: Flow, n: int, key: PRNGKeyArray) -> Samples:
    key_base, key_noise = jax.random.split(key)
    z = flow.base.sample(n, dtype=flow.dtype, key=key_base)
    out = flow.bijection.forward(z, key=key_noise)
    return Samples(out.value, flow.base.log_prob(z) - out.log_det, out.report)


@compiled
def _points(flow: Flow, n: int, key: PRNGKeyArray) -> Samples:
    return _samples(Flow(flow.base, _without_divergence(flow.bijection)), n, key)


@compiled
def _path(flow: Flow, n: int, times: Array, key: PRNGKeyArray) -> Samples:
    return jax.lax.map(lambda time: _samples(flow.at(time), n, key), times)


def _without_divergence(bijection: AbstractBijection) -> AbstractBijection:
    """The same map, for points only."""
    is_cnf = lambda node: isinstance(node, CNF)
    skip = lambda node: eqx.tree_at(lambda cnf: cnf.testing.divergence, node, Skipped()) if is_cnf(node) else node
    return jax.tree.map(skip, bijection, is_leaf=is_cnf)


def _raise_if_failed(report: Report) -> None:
    if isinstance(report.outcome, Tracer):
        return
    outcomes = np.asarray(report.outcome)
    if np.any(outcomes != OK):
        failed = f" ({np.sum(outcomes != OK)} of {outcomes.size} solves failed)" if outcomes.ndim else ""
        raise SolveError(MESSAGES[int(outcomes.max())] + failed)
