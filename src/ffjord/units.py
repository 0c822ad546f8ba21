"""What the negative log-likelihoods of a run are shown in."""

import math
from typing import Any, NamedTuple

from ffjord.experiments.config import TrainConfig
from ffjord.runs import Run


class Units(NamedTuple):
    """What a negative log-likelihood is shown in: factor times nats, and a shift."""

    name: str = "nats"
    factor: float = 1.0
    shift: float = 0.0

    def shown(self, nats: float | int) -> float:
        return self.factor * nats + self.shift


def units_of(run: Run) -> Units:
    """Bits a dimension for images of grey levels, else nats; those of a fitted table are of its own units."""
    from ffjord.data.discrete import discrete_set, is_discrete
    from ffjord.data.pictures import image_set, is_image

    if is_image(run.experiment.data.name):
        about = image_set(run.experiment.data.name)
        return Units("bits/dim", 1 / (math.prod(about.shape) * math.log(2)), math.log2(about.levels))
    if is_discrete(run.experiment.data.name):
        about = discrete_set(run.experiment.data.name)
        return Units("bits/dim", 1 / (math.prod(about.shape) * math.log(2))) if about.levels > 2 else Units()
    layout = run.layout()
    return Units() if layout is None else Units(shift=layout.log_scale)


def matching_steps(config: TrainConfig) -> int:
    """How many of the first steps are of flow matching, whose loss is no likelihood."""
    return config.steps if config.objective == "flow-matching" else config.warm_start


def in_units(row: dict[str, Any], units: Units, config: TrainConfig) -> dict[str, Any]:
    """A row of metrics in the data's units. The loss of flow matching is no likelihood, and has none."""
    names = ["best", *(["loss"] if row["step"] > matching_steps(config) else [])]
    return row | {name: units.shown(row[name]) for name in names if name in row}
