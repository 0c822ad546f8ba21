"""Maps of images (height, width, channels): the logit, and maps that act on a part or on a squeezed image.

All of them keep the image's shape, so that the base density of a multi-scale flow is one over images: what is factored
out early stays where it is.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from ffjord.bijections.base import AbstractBijection, Report, Transformed
from ffjord.squeezing import squeezed, unsqueezed


class Logit(AbstractBijection):
    """z = log(y / (1 - y)) with y = α + (1 - 2α) x, which takes pixels in [0, 1] to the whole line (Dinh et al. 2017).

    log |det dz/dx| = Σ log(1 - 2α) - log y - log(1 - y)
    """

    alpha: float = eqx.field(static=True, default=1e-6)

    def __check_init__(self):
        if not 0 < self.alpha < 0.5:
            raise ValueError(f"alpha must be between 0 and 0.5; got {self.alpha}.")

    def forward(
        self,
        z: Float[Array, "n *event"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        x = (jax.nn.sigmoid(z) - self.alpha) / (1 - 2 * self.alpha)
        return Transformed(x, -self._log_det(jax.nn.log_sigmoid(z), jax.nn.log_sigmoid(-z)), Report.nothing())

    def inverse(
        self,
        x: Float[Array, "n *event"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        y = self.alpha + (1 - 2 * self.alpha) * x
        below, above = jnp.log(y), jnp.log1p(-y)
        return Transformed(below - above, self._log_det(below, above), Report.nothing())

    def _log_det(self, below: Array, above: Array) -> Array:
        return jnp.sum(jnp.log1p(-2 * self.alpha) - below - above, axis=tuple(range(1, below.ndim)))


class Squeezed(AbstractBijection):
    """Squeezes the image, applies a map, and undoes the squeezing: the map sees half the side and 4 times the channels.

    Only the pixels' places change, so that the log-determinant is the inner map's.
    """

    inner: AbstractBijection

    def forward(
        self,
        z: Float[Array, "n h w c"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        return _unsqueezed(self.inner.forward(squeezed(z), condition=condition, train=train, key=key))

    def inverse(
        self,
        x: Float[Array, "n h w c"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        return _unsqueezed(self.inner.inverse(squeezed(x), condition=condition, train=train, key=key))

    def until(self, fraction: Float[Array, ""]) -> "Squeezed":
        return Squeezed(self.inner.until(fraction))

    def rows_to_calibrate(self) -> int:
        return self.inner.rows_to_calibrate()

    def calibrate(
        self, x: Float[Array, "n h w c"], *, condition: Shaped[Array, "n ..."] | None = None, key: PRNGKeyArray
    ) -> "Squeezed":
        return Squeezed(self.inner.calibrate(squeezed(x), condition=condition, key=key))

    def absorb(self, observed: Any) -> "Squeezed":
        return Squeezed(self.inner.absorb(observed))


class OnHalf(AbstractBijection):
    """A map of the first half of the channels; the others are factored out: they are part of the base as they are.

    With C channels, the first ⌈C/2⌉ are mapped.
    """

    inner: AbstractBijection

    def forward(
        self,
        z: Float[Array, "n h w c"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        mapped, rest = _halves(z)
        return _with(rest, self.inner.forward(mapped, condition=condition, train=train, key=key))

    def inverse(
        self,
        x: Float[Array, "n h w c"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        mapped, rest = _halves(x)
        return _with(rest, self.inner.inverse(mapped, condition=condition, train=train, key=key))

    def until(self, fraction: Float[Array, ""]) -> "OnHalf":
        return OnHalf(self.inner.until(fraction))

    def rows_to_calibrate(self) -> int:
        return self.inner.rows_to_calibrate()

    def calibrate(
        self, x: Float[Array, "n h w c"], *, condition: Shaped[Array, "n ..."] | None = None, key: PRNGKeyArray
    ) -> "OnHalf":
        return OnHalf(self.inner.calibrate(_halves(x)[0], condition=condition, key=key))

    def absorb(self, observed: Any) -> "OnHalf":
        return OnHalf(self.inner.absorb(observed))


def _unsqueezed(out: Transformed) -> Transformed:
    return Transformed(unsqueezed(out.value), out.log_det, out.report)


def _halves(x: Array) -> tuple[Array, Array]:
    first, second = jnp.split(x, [(x.shape[-1] + 1) // 2], axis=-1)
    return first, second


def _with(rest: Array, out: Transformed) -> Transformed:
    return Transformed(jnp.concatenate([out.value, rest], axis=-1), out.log_det, out.report)
