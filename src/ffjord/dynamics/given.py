"""Dynamics that depend on a condition, with the condition given."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Float


class Given(eqx.Module):
    """f(t, z) = dynamics(t, z, condition): of p(x | c), the flow for one c.

    What the dynamics can do beyond being evaluated (`value_and_divergence`, `value_and_forms`, `encode`, `decode`), it
    can do here.
    """

    dynamics: Any
    condition: Any

    def __call__(self, t: Float[Array, ""], z: Float[Array, "*event"]) -> Float[Array, "*event"]:
        return self.dynamics(t, z, self.condition)

    @property
    def has_closed_form(self) -> bool:
        return getattr(self.dynamics, "has_closed_form", False)

    def value_and_divergence(
        self, t: Float[Array, ""], z: Float[Array, "*event"]
    ) -> tuple[Float[Array, "*event"], Float[Array, ""]]:
        return self.dynamics.value_and_divergence(t, z, self.condition)

    @property
    def has_forms(self) -> bool:
        return getattr(self.dynamics, "has_forms", False)

    def prepare_forms(self, eps: Float[Array, "k *event"]) -> Any:
        return self.dynamics.prepare_forms(eps, self.condition)

    def value_and_forms(
        self, t: Float[Array, ""], z: Float[Array, "*event"], prepared: Any
    ) -> tuple[Float[Array, "*event"], Float[Array, " k"]]:
        return self.dynamics.value_and_forms(t, z, prepared, self.condition)

    def encode(self, t: Float[Array, ""], z: Float[Array, "*event"]) -> Float[Array, "*waist"]:
        return self.dynamics.encode(t, z, self.condition)

    def decode(self, t: Float[Array, ""], h: Float[Array, "*waist"]) -> Float[Array, "*event"]:
        return self.dynamics.decode(t, h)
