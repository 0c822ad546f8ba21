"""Many maps of one structure, compiled once."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from ffjord.bijections.base import AbstractBijection, Report, Transformed


class Repeated(AbstractBijection):
    """x = g_K(… g_1(z)), where every g_k has the same structure and numbers of its own.

    A hundred layers compile as quickly as one: their numbers are stacked, and a loop runs over them. A few layers with
    convolutions are better in a `Chain`: in a loop, XLA computes those four times slower on CPUs. The layers are maps
    without a time: `until` leaves them as they are.

    **Arguments:**

    - `build`: makes a layer from a key.
    - `count`: K.
    """

    layers: AbstractBijection
    """All layers as one, whose arrays have a leading axis: from the base to the data."""

    def __init__(self, build: Callable[[PRNGKeyArray], AbstractBijection], count: int, *, key: PRNGKeyArray):
        if count < 1:
            raise ValueError(f"count must be at least 1; got {count}.")
        self.layers = eqx.filter_vmap(build)(jax.random.split(key, count))

    def forward(
        self,
        z: Float[Array, "n *event"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        step = lambda layer, z, key: layer.forward(z, condition=condition, train=train, key=key)
        return self._apply(step, z, key, reverse=False)

    def inverse(
        self,
        x: Float[Array, "n *event"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        step = lambda layer, x, key: layer.inverse(x, condition=condition, train=train, key=key)
        return self._apply(step, x, key, reverse=True)

    def rows_to_calibrate(self) -> int:
        return self.layers.rows_to_calibrate()

    def calibrate(
        self, x: Float[Array, "n *event"], *, condition: Shaped[Array, "n ..."] | None = None, key: PRNGKeyArray
    ) -> "Repeated":
        """Layer by layer from the data: each sees the image that the calibrated ones before it give."""

        def step(layer: AbstractBijection, x: Array, key: PRNGKeyArray) -> tuple[Array, AbstractBijection]:
            layer = layer.calibrate(x, condition=condition, key=key)
            return layer.inverse(x, condition=condition, train=True, key=key).value, layer

        _, arrays = self._scan(step, x, key, reverse=True)
        return self._with(eqx.combine(arrays, self.layers))

    def absorb(self, observed: Any) -> "Repeated":
        return self._with(eqx.filter_vmap(lambda layer, seen: layer.absorb(seen))(self.layers, observed))

    def _with(self, layers: AbstractBijection) -> "Repeated":
        return eqx.tree_at(lambda r: r.layers, self, layers)

    def _apply(
        self, step: Callable[..., Transformed], value: Array, key: PRNGKeyArray | None, *, reverse: bool
    ) -> Transformed:
        def one(layer: AbstractBijection, carry: tuple[Array, Array], key: PRNGKeyArray | None) -> tuple[Any, Report]:
            out = step(layer, carry[0], key)
            return (out.value, carry[1] + out.log_det), out.report

        start = value, jnp.zeros(value.shape[0], value.dtype)
        (value, log_det), reports = self._scan(one, start, key, reverse=reverse)
        return Transformed(value, log_det, _total(reports))

    def _scan(self, step: Callable[..., Any], carry: Any, key: PRNGKeyArray | None, *, reverse: bool) -> Any:
        """Runs (layer, carry, key) -> (carry, output) over the layers; stacks the outputs' arrays in layer order."""
        arrays, static = eqx.partition(self.layers, eqx.is_array)
        count = len(jax.tree.leaves(arrays)[0])
        keys = None if key is None else jax.random.split(key, count)

        def body(carry: Any, item: Any) -> Any:
            carry, out = step(eqx.combine(item[0], static), carry, item[1])
            return carry, eqx.filter(out, eqx.is_array)

        return jax.lax.scan(body, carry, (arrays, keys), reverse=reverse)


def _total(reports: Report) -> Report:
    """The report of all layers, from stacked ones."""
    add = lambda counts: jnp.sum(counts, axis=0, dtype=counts.dtype)
    penalties = {name: add(values) for name, values in reports.penalties.items()}
    worst = jnp.max(reports.outcome, axis=0)
    return Report(add(reports.nfe), add(reports.accepted), add(reports.rejected), worst, penalties, reports.observed)
