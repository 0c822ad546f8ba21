"""Elementwise affine maps: standardisation of the data, and normalisation between flows."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from ffjord.bijections.base import AbstractBijection, Report, Transformed
from ffjord.parameters import Buffer


class Standardize(AbstractBijection):
    """x = mean + scale * z, with `mean` and `scale` set from data: the flow sees data of unit scale.

    Densities stay in the data's own units, because the log-determinant is part of the map.
    """

    mean: Buffer
    scale: Buffer

    def __init__(self, mean: Float[Array | np.ndarray, "*event"], scale: Float[Array | np.ndarray, "*event"]):
        self.mean, self.scale = Buffer(jnp.asarray(mean)), Buffer(jnp.asarray(scale))

    def forward(
        self,
        z: Float[Array, "n *event"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        return _scale_and_shift(z, jnp.log(self.scale.value), self.mean.value)

    def inverse(
        self,
        x: Float[Array, "n *event"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        return _unshift_and_unscale(x, jnp.log(self.scale.value), self.mean.value)


class ActNorm(AbstractBijection):
    """x = exp(log_scale) * z + shift, trained, starting from the first batch's mean and standard deviation."""

    log_scale: Float[Array, "*event"]
    shift: Float[Array, "*event"]

    def __init__(self, event_shape: tuple[int, ...]):
        self.log_scale, self.shift = jnp.zeros(event_shape), jnp.zeros(event_shape)

    def forward(
        self,
        z: Float[Array, "n *event"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        return _scale_and_shift(z, self.log_scale, self.shift)

    def inverse(
        self,
        x: Float[Array, "n *event"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        return _unshift_and_unscale(x, self.log_scale, self.shift)

    def rows_to_calibrate(self) -> int:
        return 1

    def calibrate(
        self, x: Float[Array, "n *event"], *, condition: Shaped[Array, "n ..."] | None = None, key: PRNGKeyArray
    ) -> "ActNorm":
        log_scale = jnp.log(jnp.std(x, axis=0) + 1e-6)
        return eqx.tree_at(lambda n: (n.log_scale, n.shift), self, (log_scale, jnp.mean(x, axis=0)))


class MovingNorm(AbstractBijection):
    """Batch normalisation by running statistics, in training as in testing, as the authors had it.

        z = exp(log_scale) * (x - mean) / sqrt(variance + 1e-4) + shift

    `mean` and `variance` are running averages of the batches seen in training (each batch moves them by `lag`). They
    are constants to the gradient, so that the map is a bijection whose determinant is known at every moment.
    """

    mean: Buffer
    variance: Buffer
    log_scale: Float[Array, "*event"]
    shift: Float[Array, "*event"]
    lag: float = eqx.field(static=True)

    def __init__(self, event_shape: tuple[int, ...], *, lag: float = 0.1):
        if not 0 < lag <= 1:
            raise ValueError(f"lag must be in (0, 1]; got {lag}.")
        self.mean, self.variance = Buffer(jnp.zeros(event_shape)), Buffer(jnp.ones(event_shape))
        self.log_scale, self.shift = jnp.zeros(event_shape), jnp.zeros(event_shape)
        self.lag = lag

    def forward(
        self,
        z: Float[Array, "n *event"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        return _scale_and_shift(z - self.shift, self._log_spread(), self.mean.value)

    def inverse(
        self,
        x: Float[Array, "n *event"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        out = _unshift_and_unscale(x, self._log_spread(), self.mean.value)
        observed = (jnp.mean(x, axis=0), jnp.var(x, axis=0)) if train else None
        report = eqx.tree_at(lambda r: r.observed, out.report, observed, is_leaf=lambda leaf: leaf is None)
        return Transformed(out.value + self.shift, out.log_det, report)

    def rows_to_calibrate(self) -> int:
        return 1

    def calibrate(
        self, x: Float[Array, "n *event"], *, condition: Shaped[Array, "n ..."] | None = None, key: PRNGKeyArray
    ) -> "MovingNorm":
        return self._with_statistics(jnp.mean(x, axis=0), jnp.var(x, axis=0))

    def absorb(self, observed: Any) -> "MovingNorm":
        if observed is None:
            return self
        mean, variance = observed
        towards = lambda old, new: old + self.lag * (new - old)
        return self._with_statistics(towards(self.mean.value, mean), towards(self.variance.value, variance))

    def _log_spread(self) -> Array:
        return 0.5 * jnp.log(self.variance.value + 1e-4) - self.log_scale

    def _with_statistics(self, mean: Array, variance: Array) -> "MovingNorm":
        return eqx.tree_at(lambda n: (n.mean.array, n.variance.array), self, (mean, variance))


def _scale_and_shift(z: Array, log_scale: Array, shift: Array) -> Transformed:
    log_det = jnp.broadcast_to(jnp.sum(log_scale), z.shape[:1])
    return Transformed(jnp.exp(log_scale) * z + shift, log_det, Report.nothing())


def _unshift_and_unscale(x: Array, log_scale: Array, shift: Array) -> Transformed:
    log_det = jnp.broadcast_to(-jnp.sum(log_scale), x.shape[:1])
    return Transformed(jnp.exp(-log_scale) * (x - shift), log_det, Report.nothing())
