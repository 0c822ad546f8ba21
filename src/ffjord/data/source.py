"""Where training gets its batches: every batch is a function of (seed, step), so that a run can go on exactly."""

from typing import Protocol, runtime_checkable

import numpy as np

from ffjord.data.toys import Draw

_TRAIN, _VALIDATION, _TEST, _SHUFFLE = range(4)


@runtime_checkable
class Source(Protocol):
    """Training batches by step, and fixed validation and test sets."""

    @property
    def event_shape(self) -> tuple[int, ...]: ...

    def batches(self, step: int, count: int) -> np.ndarray:
        """The batches of steps `step` … `step + count - 1`, shape (count, batch, *event), float32."""
        ...

    def validation(self) -> np.ndarray: ...

    def test(self, limit: int | None = None) -> np.ndarray: ...


class FreshSamples:
    """A source that draws new points for every batch; validation and test points come from streams of their own."""

    def __init__(self, draw: Draw, *, batch_size: int, seed: int, num_validation: int = 4096, num_test: int = 100_000):
        self.draw, self.batch_size, self.seed = draw, batch_size, seed
        self.num_validation, self.num_test = num_validation, num_test

    @property
    def event_shape(self) -> tuple[int, ...]:
        return self._points(1, _TRAIN, 0).shape[1:]

    def batches(self, step: int, count: int) -> np.ndarray:
        return np.stack([self._points(self.batch_size, _TRAIN, step + i) for i in range(count)])

    def validation(self) -> np.ndarray:
        return self._points(self.num_validation, _VALIDATION, 0)

    def test(self, limit: int | None = None) -> np.ndarray:
        return self._points(self.num_test, _TEST, 0)[:limit]

    def _points(self, n: int, stream: int, index: int) -> np.ndarray:
        rng = np.random.default_rng([self.seed, stream, index])
        return self.draw(n, rng).astype(np.float32)


class Rows:
    """A source over the rows of arrays in memory, shuffled anew every epoch; a batch may span two epochs."""

    def __init__(self, train: np.ndarray, validation: np.ndarray, test: np.ndarray, *, batch_size: int, seed: int):
        self.train, self._validation, self._test = train, validation, test
        self.batch_size, self.seed = batch_size, seed

    @property
    def event_shape(self) -> tuple[int, ...]:
        return self.train.shape[1:]

    def batches(self, step: int, count: int) -> np.ndarray:
        start, stop = step * self.batch_size, (step + count) * self.batch_size
        n = len(self.train)
        epochs = range(start // n, (stop - 1) // n + 1)
        order = np.concatenate([self._order(epoch) for epoch in epochs])
        offset = epochs.start * n
        picked = self.train[order[start - offset : stop - offset]]
        return picked.reshape(count, self.batch_size, *self.event_shape)

    def validation(self) -> np.ndarray:
        return self._validation

    def test(self, limit: int | None = None) -> np.ndarray:
        return self._test[:limit]

    def _order(self, epoch: int) -> np.ndarray:
        return np.random.default_rng([self.seed, _SHUFFLE, epoch]).permutation(len(self.train))
