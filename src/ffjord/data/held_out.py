"""A source without training rows."""

from collections.abc import Iterator

import numpy as np

from ffjord.errors import InputError


class HeldOut:
    """Validation and test rows only: enough to test a model; `why` is what is answered to training."""

    def __init__(self, validation: np.ndarray, test: np.ndarray, *, why: str):
        self._validation, self._test, self.why = validation, test, why

    @property
    def event_shape(self) -> tuple[int, ...]:
        return self._test.shape[1:]

    def batches(self, step: int, count: int) -> np.ndarray:
        raise InputError(self.why)

    def validation(self) -> np.ndarray:
        return self._validation

    @property
    def num_test(self) -> int:
        return len(self._test)

    def test(self, limit: int | None = None) -> np.ndarray:
        return self._test[:limit]

    def test_blocks(self, limit: int | None = None) -> Iterator[np.ndarray]:
        yield self.test(limit)
