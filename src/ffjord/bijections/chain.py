"""One bijection after another."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from ffjord.bijections.base import AbstractBijection, Transformed, combine
from ffjord.bijections.cnf import continuous_parts
from ffjord.compilation import compiled

_ROWS = 1024
"""More than so many rows are taken through parts in calibration only for those who ask for more."""


class Chain(AbstractBijection):
    """x = g_K(… g_1(z)): `parts` are listed from the base to the data."""

    parts: tuple[AbstractBijection, ...]

    def __init__(self, parts: Sequence[AbstractBijection]):
        if not parts:
            raise ValueError("a Chain needs at least one part; got none.")
        self.parts = tuple(parts)

    def forward(
        self,
        z: Float[Array, "n *event"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        steps = [
            lambda value, part=part, key=key: part.forward(value, condition=condition, train=train, key=key)
            for part, key in zip(self.parts, self._keys(key), strict=True)
        ]
        return _apply(steps, z)

    def inverse(
        self,
        x: Float[Array, "n *event"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        steps = [
            lambda value, part=part, key=key: part.inverse(value, condition=condition, train=train, key=key)
            for part, key in zip(reversed(self.parts), self._keys(key), strict=True)
        ]
        return _apply(steps, x)

    def until(self, fraction: Float[Array, ""]) -> "Chain":
        """Each of K continuous parts takes its K-th of the fraction; the other parts always act in full."""
        counts = [len(continuous_parts(part)) for part in self.parts]
        parts, position = [], 0
        for part, count in zip(self.parts, counts, strict=True):
            parts.append(part.until(jnp.clip((fraction * sum(counts) - position) / max(1, count), 0.0, 1.0)))
            position += count
        return Chain(parts)

    def rows_to_calibrate(self) -> int:
        return max(part.rows_to_calibrate() for part in self.parts)

    def calibrate(
        self, x: Float[Array, "n *event"], *, condition: Shaped[Array, "n ..."] | None = None, key: PRNGKeyArray
    ) -> "Chain":
        """Part by part from the data: each sees the image that the calibrated ones before it give."""
        parts = list(self.parts)
        keys = jax.random.split(key, len(parts))
        last = min((i for i, part in enumerate(parts) if part.rows_to_calibrate()), default=len(parts))
        for i, part_key in zip(range(len(parts) - 1, last - 1, -1), keys, strict=False):
            parts[i] = parts[i].calibrate(x, condition=condition, key=part_key)
            if i > last:
                rows = max(_ROWS, *(part.rows_to_calibrate() for part in parts[:i]))
                x, condition = x[:rows], None if condition is None else condition[:rows]
                x = _image(parts[i], x, condition, part_key)
        return Chain(parts)

    def absorb(self, observed: Any) -> "Chain":
        """`observed` comes from `inverse`, which meets the parts in reverse order."""
        return Chain([part.absorb(seen) for part, seen in zip(self.parts, reversed(observed), strict=True)])

    def _keys(self, key: PRNGKeyArray | None) -> list[PRNGKeyArray | None]:
        return [None] * len(self.parts) if key is None else list(jax.random.split(key, len(self.parts)))


@compiled
def _image(part: AbstractBijection, x: Array, condition: Array | None, key: PRNGKeyArray) -> Array:
    return part.inverse(x, condition=condition, train=True, key=key).value


def _apply(steps: list[Any], value: Array) -> Transformed:
    log_det, reports = jnp.zeros(value.shape[0], value.dtype), []
    for step in steps:
        transformed = step(value)
        value, log_det = transformed.value, log_det + transformed.log_det
        reports.append(transformed.report)
    return Transformed(value, log_det, combine(reports))
