"""Curves of bearable length from trainings of any length."""

import math
from dataclasses import dataclass, field
from typing import NamedTuple, TypeGuard


class Curve(NamedTuple):
    """A metric over the steps of a training: the mean over each bin, its least and its greatest number."""

    step: list[int]
    seconds: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]


@dataclass
class _Bin:
    step: int = 0
    """The last step in it, and when that was done."""
    seconds: float = 0.0
    sums: dict[str, list[float | int]] = field(default_factory=dict)
    """By the metric's name: how many numbers, their sum, the least and the greatest."""

    def add(self, name: str, count: float | int, total: float | int, low: float | int, high: float | int) -> None:
        old = self.sums.get(name)
        if old is None:
            self.sums[name] = [count, total, low, high]
        else:
            old[:] = [old[0] + count, old[1] + total, min(old[2], low), max(old[3], high)]


class Bins:
    """Metrics that come step by step, in at most `most` bins: when there are more, neighbours become one.

    As long as there are fewer steps, a bin is a step, and a curve has its numbers as they came.
    """

    def __init__(self, most: int = 600):
        self.most, self.width = most, 1
        self._bins: dict[int, _Bin] = {}

    def add(self, step: int, seconds: float | int, values: dict[str, float | int]) -> None:
        """Adds the metrics of a step."""
        place = self._bins.setdefault((step - 1) // self.width, _Bin())
        place.step, place.seconds = max(place.step, step), max(place.seconds, seconds)
        for name, value in values.items():
            place.add(name, 1, value, value, value)
        while len(self._bins) > self.most:
            self._halve()

    def curve(self, name: str) -> Curve | None:
        """A metric's curve, or None where it has not one number."""
        found = [(bin.step, bin.seconds, *bin.sums[name]) for _, bin in sorted(self._bins.items()) if name in bin.sums]
        if not found:
            return None
        step, seconds, count, total, low, high = (list(part) for part in zip(*found, strict=True))
        return Curve(step, seconds, [s / n for s, n in zip(total, count, strict=True)], low, high)

    def seconds(self) -> Curve | None:
        """The time of training at the end of every bin."""
        bins = [bin for _, bin in sorted(self._bins.items())]
        times = [bin.seconds for bin in bins]
        return Curve([bin.step for bin in bins], times, times, times, times) if bins else None

    def _halve(self) -> None:
        self.width *= 2
        old, self._bins = self._bins, {}
        for number, bin in old.items():
            place = self._bins.setdefault(number // 2, _Bin())
            place.step, place.seconds = max(place.step, bin.step), max(place.seconds, bin.seconds)
            for name, sums in bin.sums.items():
                place.add(name, *sums)


def finite(value: object) -> TypeGuard[float | int]:
    """Whether a metric is a number that can be drawn."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
