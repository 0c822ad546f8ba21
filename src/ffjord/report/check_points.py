"""The points of a run by which its flow is checked."""

from typing import Any

import numpy as np

from ffjord.data.source import Conditioned, Held


def test_points(source: Any, n: int, *, seed: int) -> Conditioned:
    """The first n test points. Where rows have weights: n that are drawn in proportion to them, some more than once."""
    held = Held.of(source.test(n))
    if held.weight is None:
        return Conditioned(held.x, held.condition)
    held = Held.of(source.test())
    weight = np.asarray(held.weight, np.float64)
    chosen = np.random.default_rng(seed % 2**64).choice(len(weight), n, p=weight / weight.sum())
    return Conditioned(held.x[chosen], None if held.condition is None else held.condition[chosen])


def training_points(source: Any, n: int) -> Conditioned:
    """n points of the first training batches, or all training rows if there are fewer."""
    rows = getattr(getattr(source, "rows", source), "train", None)
    n = n if rows is None else min(n, len(rows))
    size = len(Conditioned.of(source.batches(0, 1)).x[0])
    x, condition = Conditioned.of(source.batches(0, -(-n // size)))
    flat = lambda part: None if part is None else part.reshape(-1, *part.shape[2:])[:n]
    return Conditioned(flat(x), flat(condition))
