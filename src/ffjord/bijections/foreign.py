"""The one door to flowjax: any of its bijections as one of ours.

flowjax's maps act on one sample and keep what is masked or constrained in paramax's wrappers, which they open
themselves when they are called. Its `transform` is our `forward`: base → data.
"""

from typing import Any

import flowjax.bijections
import jax
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from ffjord.bijections.base import AbstractBijection, Report, Transformed


class FromFlowjax(AbstractBijection):
    """A bijection of flowjax, for every row of a batch.

    **Arguments:**

    - `bijection`: the map; if it has a `cond_shape`, it is given the conditions, and otherwise they pass.
    """

    bijection: flowjax.bijections.AbstractBijection

    def forward(
        self,
        z: Float[Array, "n *event"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        return self._rows(self.bijection.transform_and_log_det, z, condition)

    def inverse(
        self,
        x: Float[Array, "n *event"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        return self._rows(self.bijection.inverse_and_log_det, x, condition)

    def _rows(self, direction: Any, rows: Array, condition: Array | None) -> Transformed:
        given = () if self.bijection.cond_shape is None else (condition,)
        value, log_det = jax.vmap(direction)(rows, *given)
        return Transformed(value, log_det, Report.nothing())
