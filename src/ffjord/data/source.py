"""Where training gets its batches: every batch is a function of (seed, step), so that a run can go on exactly."""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from ffjord.data.toys import Draw

_TRAIN, _VALIDATION, _TEST, _SHUFFLE, _JITTER = range(5)
_BLOCK = 100_000


class Conditioned(NamedTuple):
    """Points with their conditions, of p(x | c)."""

    x: Any
    condition: Any

    @classmethod
    def of(cls, batch: Any) -> "Conditioned":
        """A batch as points and conditions, which are None where it is points alone."""
        return batch if isinstance(batch, cls) else cls(batch, None)


class Held(NamedTuple):
    """Rows that are held out, with their conditions and weights where they have any."""

    x: Any
    condition: Any = None
    weight: Any = None

    @classmethod
    def of(cls, rows: Any) -> "Held":
        """Held-out rows with what belongs to them, which is None where they are points alone."""
        return rows if isinstance(rows, cls) else cls(rows)

    def first(self, limit: int | None) -> "Held":
        return Held(*(None if part is None else part[:limit] for part in self))


@runtime_checkable
class Source(Protocol):
    """Training batches by step, and fixed validation and test sets."""

    @property
    def event_shape(self) -> tuple[int, ...]: ...

    def batches(self, step: int, count: int) -> np.ndarray | Conditioned:
        """The batches of steps `step` … `step + count - 1`, shape (count, batch, *event), float32."""
        ...

    def validation(self) -> np.ndarray | Held: ...

    @property
    def num_test(self) -> int: ...

    def test_blocks(self, limit: int | None = None) -> Iterator[np.ndarray | Held]:
        """The test points, or the first so many, in blocks that need not be in memory all at once."""
        ...

    def test(self, limit: int | None = None) -> np.ndarray | Held: ...


class FreshSamples:
    """A source that draws new points for every batch; validation and test points come from streams of their own."""

    def __init__(self, draw: Draw, *, batch_size: int, seed: int, num_validation: int = 4096, num_test: int = 100_000):
        self.draw, self.batch_size, self.seed = draw, batch_size, seed
        self.num_validation, self._num_test = num_validation, num_test

    @property
    def num_test(self) -> int:
        return self._num_test

    @property
    def event_shape(self) -> tuple[int, ...]:
        return self._points(1, _TRAIN, 0).shape[1:]

    def batches(self, step: int, count: int) -> np.ndarray:
        return np.stack([self._points(self.batch_size, _TRAIN, step + i) for i in range(count)])

    def validation(self) -> np.ndarray:
        return self._points(self.num_validation, _VALIDATION, 0)

    def test(self, limit: int | None = None) -> np.ndarray:
        return np.concatenate([*self.test_blocks(limit)])

    def test_blocks(self, limit: int | None = None) -> Iterator[np.ndarray]:
        wanted = self.num_test if limit is None else min(limit, self.num_test)
        for start in range(0, wanted, _BLOCK):
            yield self._points(min(_BLOCK, self.num_test - start), _TEST, start // _BLOCK)[: wanted - start]

    def _points(self, n: int, stream: int, index: int) -> np.ndarray:
        rng = np.random.default_rng([self.seed, stream, index])
        return self.draw(n, rng).astype(np.float32)


class LateRows:
    """Rows that are read when they are first needed: a trained model can be used where its data are not.

    `num_test`: how many test rows there are, where that is known before they are read.
    """

    def __init__(
        self,
        event_shape: tuple[int, ...],
        read: Callable[[], Source],
        *,
        condition_size: int = 0,
        num_test: int | None = None,
    ):
        self._event_shape, self._read, self.condition_size = event_shape, read, condition_size
        self._num_test = num_test

    @functools.cached_property
    def rows(self) -> Source:
        return self._read()

    @property
    def event_shape(self) -> tuple[int, ...]:
        return self._event_shape

    def batches(self, step: int, count: int) -> np.ndarray | Conditioned:
        return self.rows.batches(step, count)

    def validation(self) -> np.ndarray | Held:
        return self.rows.validation()

    def test(self, limit: int | None = None) -> np.ndarray | Held:
        return self.rows.test(limit)

    def test_blocks(self, limit: int | None = None) -> Iterator[np.ndarray | Held]:
        return self.rows.test_blocks(limit)

    @property
    def num_test(self) -> int:
        return self.rows.num_test if self._num_test is None else self._num_test


class Rows:
    """A source over the rows of arrays in memory, shuffled anew every epoch; a batch may span two epochs.

    With `condition`, a row for every training row, batches are `Conditioned`; validation and test rows then come as
    `Held`. With `weight`, a positive number for every training row, rows are drawn in proportion to it instead of in
    turns. With `jitter`, uniform noise in [0, jitter) is added to each column of a training batch, fresh ones every
    time: what dequantises whole numbers.
    """

    def __init__(
        self,
        train: np.ndarray,
        validation: np.ndarray | Held,
        test: np.ndarray | Held,
        *,
        batch_size: int,
        seed: int,
        condition: np.ndarray | None = None,
        weight: np.ndarray | None = None,
        jitter: np.ndarray | None = None,
    ):
        self.train, self._validation, self._test = train, validation, test
        self.batch_size, self.seed, self.condition, self.jitter = batch_size, seed, condition, jitter
        self._kept: tuple[int, np.ndarray] = (-1, np.empty(0))
        self._cumulative = None if weight is None else np.cumsum(weight, dtype=np.float64)

    @property
    def event_shape(self) -> tuple[int, ...]:
        return self.train.shape[1:]

    def batches(self, step: int, count: int) -> np.ndarray | Conditioned:
        weights = self._cumulative
        chosen = self._in_turns(step, count) if weights is None else self._by_weight(weights, step, count)
        x = self.train[chosen]
        if self.jitter is not None:
            x = x + self.jitter * np.stack([self._noise(step + i) for i in range(count)])
        return x if self.condition is None else Conditioned(x, self.condition[chosen])

    @property
    def condition_size(self) -> int:
        return 0 if self.condition is None else self.condition.shape[1]

    def validation(self) -> np.ndarray | Held:
        return self._validation

    def test(self, limit: int | None = None) -> np.ndarray | Held:
        return self._test.first(limit) if isinstance(self._test, Held) else self._test[:limit]

    def test_blocks(self, limit: int | None = None) -> Iterator[np.ndarray | Held]:
        yield self.test(limit)

    @property
    def num_test(self) -> int:
        return len(Held.of(self._test).x)

    def _in_turns(self, step: int, count: int) -> np.ndarray:
        """Numbers of the rows of some steps, each row once in an epoch."""
        start, stop = step * self.batch_size, (step + count) * self.batch_size
        n = len(self.train)
        epochs = range(start // n, (stop - 1) // n + 1)
        order = np.concatenate([self._order(epoch) for epoch in epochs])
        offset = epochs.start * n
        return order[start - offset : stop - offset].reshape(count, self.batch_size)

    def _by_weight(self, cumulative: np.ndarray, step: int, count: int) -> np.ndarray:
        """Numbers of the rows of some steps, each drawn with probability in proportion to its weight."""
        streams = [np.random.default_rng([self.seed, _SHUFFLE, step + i]) for i in range(count)]
        heights = np.stack([rng.random(self.batch_size) for rng in streams]) * cumulative[-1]
        return np.minimum(np.searchsorted(cumulative, heights, side="right"), len(cumulative) - 1)

    def _noise(self, step: int) -> np.ndarray:
        rng = np.random.default_rng([self.seed, _JITTER, step])
        return rng.random((self.batch_size, *self.event_shape), dtype=np.float32)

    def _order(self, epoch: int) -> np.ndarray:
        """The order of an epoch's rows; the last one is kept, because a million take long to shuffle."""
        if self._kept[0] != epoch:
            self._kept = (epoch, np.random.default_rng([self.seed, _SHUFFLE, epoch]).permutation(len(self.train)))
        return self._kept[1]
