"""How the coordinates of a flow are shown: those of a fitted table in its own units."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ffjord.report.grid import Extent
from ffjord.runs import Run


class View(NamedTuple):
    """x = mean + scale z, and the names of the coordinates."""

    names: tuple[str, ...]
    mean: Float[np.ndarray, " d"]
    scale: Float[np.ndarray, " d"]
    named: bool = False
    """Whether the names are the data's own."""

    @property
    def legend(self) -> str:
        """A sentence on which coordinate is where, if they have names."""
        if not self.named:
            return ""
        return f" Across: {self.names[0]}" + (f"; up: {self.names[1]}." if len(self.names) > 1 else ".")

    def points(self, z: Float[np.ndarray, "*n d"]) -> Float[np.ndarray, "*n d"]:
        return self.mean + self.scale * z

    def arrows(self, dz: Float[np.ndarray, "*n d"]) -> Float[np.ndarray, "*n d"]:
        return self.scale * dz

    def density(self, p: Float[np.ndarray, "*cells"]) -> Float[np.ndarray, "*cells"]:
        return p / np.prod(self.scale)

    def extent(self, extent: Extent) -> Extent:
        return Extent(self.points(extent.low), self.points(extent.high))


def view_of(run: Run, dim: int) -> View:
    """A fitted table's names and units; else x1, x2, … as the flow has them."""
    layout = run.layout()
    if layout is not None:
        return View(layout.data.names, np.array(layout.data.mean), np.array(layout.data.scale), layout.named)
    return View(tuple(f"x{i + 1}" for i in range(dim)), np.zeros(dim), np.ones(dim))
