"""Flow = base density + bijection."""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray, Real, Shaped

from ffjord.bijections.base import AbstractBijection, Report
from ffjord.bijections.cnf import map_continuous_parts
from ffjord.compilation import compiled
from ffjord.divergence import Skipped
from ffjord.errors import SolveError as SolveError
from ffjord.parameters import Buffer
from ffjord.solve import MESSAGES, OK

Condition = Shaped[Array | np.ndarray, "..."] | None
"""What a density p(x | c) is given: a row for every row of x, or one for all; None for a density without conditions."""


class AbstractBase(eqx.Module):
    """A density from which a flow starts: it can be evaluated and sampled."""

    event_shape: eqx.AbstractVar[tuple[int, ...]]

    @abc.abstractmethod
    def log_prob(self, z: Float[Array, "n *event"]) -> Float[Array, " n"]:
        """n log-densities, in nats."""

    @abc.abstractmethod
    def sample(self, n: int, *, dtype: Any, key: PRNGKeyArray) -> Float[Array, "n *event"]:
        """n samples."""


class StandardNormal(AbstractBase):
    """N(0, I), the base density of section 2.2."""

    event_shape: tuple[int, ...] = eqx.field(static=True)

    def log_prob(self, z: Float[Array, "n *event"]) -> Float[Array, " n"]:
        size = np.prod(self.event_shape)
        axes = tuple(range(1, z.ndim))
        return -0.5 * jnp.sum(z**2, axis=axes) - 0.5 * size * np.log(2 * np.pi)

    def sample(self, n: int, *, dtype: Any, key: PRNGKeyArray) -> Float[Array, "n *event"]:
        return jax.random.normal(key, (n, *self.event_shape), dtype)


class Tempered(AbstractBase):
    """T z for z of another base. Of N(0, I), it is N(0, T² I)."""

    base: AbstractBase
    temperature: Buffer
    event_shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, base: AbstractBase, temperature: Float[Array, ""]):
        self.base, self.temperature, self.event_shape = base, Buffer(temperature), base.event_shape

    def log_prob(self, z: Float[Array, "n *event"]) -> Float[Array, " n"]:
        size = np.prod(self.event_shape)
        return self.base.log_prob(z / self.temperature.value) - size * jnp.log(self.temperature.value)

    def sample(self, n: int, *, dtype: Any, key: PRNGKeyArray) -> Float[Array, "n *event"]:
        return self.temperature.value.astype(dtype) * self.base.sample(n, dtype=dtype, key=key)


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

    With `condition_shape` it is a family of densities p(x | c): every method then takes `condition`, a row for every
    row of x, or one for all. The methods take NumPy or JAX arrays and compile themselves. Outside of `jax.jit` a failed
    solve raises `SolveError`; under a transformation it shows as NaN, and in the report's `outcome`.
    """

    base: AbstractBase
    bijection: AbstractBijection
    condition_shape: tuple[int, ...] | None = eqx.field(static=True, default=None)

    @property
    def event_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return self.base.event_shape

    @property
    def dtype(self) -> Any:
        """Floating-point type of the parameters, and so of the results."""
        leaves = jax.tree.leaves(self.bijection)
        return jnp.result_type(*{leaf.dtype for leaf in leaves if eqx.is_inexact_array(leaf)})

    def log_prob(
        self, x: Shaped[Array | np.ndarray, "..."], *, condition: Condition = None, key: PRNGKeyArray | None = None
    ) -> Float[Array, " n"]:
        """n log-densities, in nats and in the data's own units, with the bijection's `testing` numerics."""
        density = self.density(x, condition=condition, key=key)
        raise_if_failed(density.report)
        return density.log_prob

    def density(
        self,
        x: Shaped[Array | np.ndarray, "..."],
        *,
        condition: Condition = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Density:
        """Like `log_prob`, with the base points and the solver's report. Does not raise when a solve fails."""
        x = self._batch(x)
        return _density(self, x, self._conditions(condition, len(x)), key, train)

    def sample(self, n: int, *, condition: Condition = None, key: PRNGKeyArray) -> Float[Array, "n *event"]:
        """n samples, without their densities: up to the solver's tolerance those of `sample_and_log_prob`."""
        return self._draw(_points, n, condition, key).x

    def sample_and_log_prob(self, n: int, *, condition: Condition = None, key: PRNGKeyArray) -> Samples:
        """n samples and their log-densities, from the same solve."""
        return self._draw(_samples, n, condition, key)

    def at(self, time: float | Float[Array, ""]) -> "Flow":
        """The flow stopped at a moment between the base (0) and the data (1)."""
        return self._with(self.bijection.until(jnp.asarray(time, self.dtype)))

    def tempered(self, temperature: float) -> "Flow":
        """The flow from a base stretched by the temperature: below 1, samples come from nearer to the base's middle."""
        if not 0 < temperature < np.inf:
            raise ValueError(f"temperature must be positive and finite; got {temperature}.")
        base = Tempered(self.base, jnp.asarray(temperature, self.dtype))
        return Flow(base, self.bijection, self.condition_shape)

    def path(
        self, n: int, times: Real[Array | np.ndarray, " k"], *, condition: Condition = None, key: PRNGKeyArray
    ) -> Path:
        """z(t) of n samples at the given times in [0, 1], with log p(z(t)) at each."""
        x, log_prob, report = _path(self, n, jnp.asarray(times, self.dtype), self._conditions(condition, n), key)
        raise_if_failed(report)
        return Path(jnp.asarray(times, self.dtype), x, log_prob)

    def rows_to_calibrate(self) -> int:
        """How many rows `calibrate` should see."""
        return self.bijection.rows_to_calibrate()

    def calibrate(self, x: Float[Array, "n *event"], *, condition: Condition = None, key: PRNGKeyArray) -> "Flow":
        """The flow with its normalisations set from data."""
        if not self.bijection.rows_to_calibrate():
            return self
        return self._with(self.bijection.calibrate(x, condition=self._conditions(condition, len(x)), key=key))

    def absorb(self, observed: Any) -> "Flow":
        """The flow with its running statistics moved by what a training batch showed."""
        return self._with(self.bijection.absorb(observed))

    def _with(self, bijection: AbstractBijection) -> "Flow":
        return Flow(self.base, bijection, self.condition_shape)

    def _draw(self, draw: Callable[..., Samples], n: int, condition: Any, key: PRNGKeyArray) -> Samples:
        if n < 1:
            raise ValueError(f"n must be at least 1; got {n}.")
        samples = draw(self, n, self._conditions(condition, n), key)
        raise_if_failed(samples.report)
        return samples

    def _batch(self, x: Any) -> Array:
        """The input as an array of the flow's type, or an error that says what is wrong with it."""
        x = x if isinstance(x, jax.Array | np.ndarray) else np.asarray(x)
        if x.shape[1:] != self.event_shape or x.ndim != len(self.event_shape) + 1:
            raise ValueError(f"x must have shape {_rows_of(self.event_shape)}; got {tuple(x.shape)}.")
        if x.shape[0] == 0:
            raise ValueError("x must have at least one row; got none.")
        return self._numbers("x", x)

    def _conditions(self, condition: Any, n: int) -> Array | None:
        """A condition for each of n rows, or an error that says what is wrong with it."""
        shape = self.condition_shape
        if shape is None:
            if condition is not None:
                raise ValueError("condition was given, but this flow has none (it has no condition_shape).")
            return None
        if condition is None:
            raise ValueError(f"condition is missing: this flow is a density given a condition of shape {shape}.")
        condition = condition if isinstance(condition, jax.Array | np.ndarray) else np.asarray(condition)
        if condition.shape not in (shape, (n, *shape)):
            wanted = f"({', '.join(map(str, (n, *shape)))}), a row for each, or {shape}, one for all"
            raise ValueError(f"condition must have shape {wanted}; got {tuple(condition.shape)}.")
        return jnp.broadcast_to(self._numbers("condition", condition), (n, *shape))

    def _numbers(self, name: str, array: Any) -> Array:
        """The array in the flow's type."""
        if not (jnp.issubdtype(array.dtype, jnp.number) or array.dtype == bool):
            raise ValueError(f"{name} must hold numbers; got an array of type {array.dtype}.")
        with np.errstate(over="ignore"):  # said below, in our own words
            array = jnp.asarray(array, self.dtype)
        if not isinstance(array, Tracer) and not _is_finite(array):
            raise ValueError(f"{name} must be finite; got NaN, infinity or a number too large for {self.dtype}.")
        return array


@compiled
def _density(flow: Flow, x: Array, condition: Array | None, key: PRNGKeyArray | None, train: bool) -> Density:
    out = flow.bijection.inverse(x, condition=condition, train=train, key=key)
    return Density(flow.base.log_prob(out.value) + out.log_det, out.value, out.report)


@compiled
def _samples(flow: Flow, n: int, condition: Array | None, key: PRNGKeyArray) -> Samples:
    key_base, key_noise = jax.random.split(key)
    z = flow.base.sample(n, dtype=flow.dtype, key=key_base)
    out = flow.bijection.forward(z, condition=condition, key=key_noise)
    return Samples(out.value, flow.base.log_prob(z) - out.log_det, out.report)


@compiled
def _points(flow: Flow, n: int, condition: Array | None, key: PRNGKeyArray) -> Samples:
    return _samples(flow._with(_without_divergence(flow.bijection)), n, condition, key)


@compiled
def _path(flow: Flow, n: int, times: Array, condition: Array | None, key: PRNGKeyArray) -> Samples:
    return jax.lax.map(lambda time: _samples(flow.at(time), n, condition, key), times)


def _is_finite(array: Array) -> bool:
    with jax.ensure_compile_time_eval():  # also of an array that a function under `jax.jit` has from outside
        return bool(jnp.all(jnp.isfinite(array)))


def _rows_of(shape: tuple[int, ...]) -> str:
    return f"({', '.join(['n', *map(str, shape)])})"


def _without_divergence(bijection: AbstractBijection) -> AbstractBijection:
    """The same map, for points only."""
    return map_continuous_parts(lambda cnf: eqx.tree_at(lambda c: c.testing.divergence, cnf, Skipped()), bijection)


def raise_if_failed(report: Report) -> None:
    """Raises `SolveError` if a solve failed; under a transformation it cannot."""
    if isinstance(report.outcome, Tracer):
        return
    outcomes = np.asarray(report.outcome)
    if np.any(outcomes != OK):
        failed = f" ({np.sum(outcomes != OK)} of {outcomes.size} solves failed)" if outcomes.ndim else ""
        raise SolveError(MESSAGES[int(outcomes.max())] + failed)
