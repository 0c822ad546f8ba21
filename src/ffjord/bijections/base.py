"""What every invertible map promises.

Bijections act on a batch, because a batch may share one ODE solve. `forward` is always base → data, `inverse`
data → base. A map that knows of conditions uses them, the others let them pass. Both directions return the value, the
log-determinant of their own direction, and a report; nothing is stored.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from ffjord.solve import OK


class Report(eqx.Module):
    """What happened inside a bijection. Counts are scalars, or one a sample where samples have their own steps."""

    nfe: Int[Array, "*n"]
    accepted: Int[Array, "*n"]
    rejected: Int[Array, "*n"]
    outcome: Int[Array, "*n"]
    """0 if every solve finished, else a key of `ffjord.solve.MESSAGES`."""
    penalties: dict[str, Array]
    """Integrals along the path, per sample."""
    observed: Any = None
    """What the data looked like on its way through, for `absorb`."""

    @classmethod
    def nothing(cls) -> "Report":
        """The report of a map that solves nothing."""
        zero = jnp.zeros((), jnp.int32)
        return cls(zero, zero, zero, jnp.full((), OK, jnp.int32), {})


class Transformed(eqx.Module):
    """The image of a batch, log |det Jacobian| of the direction taken, and the report."""

    value: Float[Array, "n *event"]
    log_det: Float[Array, " n"]
    report: Report


class AbstractBijection(eqx.Module):
    """An invertible map between the base and the data."""

    @abc.abstractmethod
    def forward(
        self,
        z: Float[Array, "n *event"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        """Base → data, with log |det dx/dz|."""

    @abc.abstractmethod
    def inverse(
        self,
        x: Float[Array, "n *event"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        """Data → base, with log |det dz/dx|."""

    def until(self, fraction: Float[Array, ""]) -> "AbstractBijection":
        """The bijection with its continuous part stopped after a fraction of its time."""
        return self

    def rows_to_calibrate(self) -> int:
        """How many rows `calibrate` should see at least; 1 if a batch of any size will do, 0 if it does nothing."""
        return 0

    def calibrate(
        self, x: Float[Array, "n *event"], *, condition: Shaped[Array, "n ..."] | None = None, key: PRNGKeyArray
    ) -> "AbstractBijection":
        """The map with its initial values set from data."""
        return self

    def absorb(self, observed: Any) -> "AbstractBijection":
        """Takes up what `inverse(..., train=True)` reported as observed."""
        return self


def combine(reports: list[Report]) -> Report:
    """The report of maps applied one after another."""
    penalties: dict[str, Array] = {}
    for report in reports:
        for name, value in report.penalties.items():
            penalties[name] = penalties.get(name, jnp.zeros(())) + value
    add = lambda field: jax.tree.reduce(jnp.add, [getattr(report, field) for report in reports])
    worst = jax.tree.reduce(jnp.maximum, [report.outcome for report in reports])
    observed = tuple(report.observed for report in reports)
    return Report(add("nfe"), add("accepted"), add("rejected"), worst, penalties, observed)
