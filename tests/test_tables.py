"""The tables that come with scikit-learn: split once, standardised by their training rows, whole numbers spread."""

import numpy as np
import pytest

from ffjord.data import TABLES
from ffjord.experiments import find
from ffjord.experiments.build import build_source


@pytest.mark.parametrize(("name", "n", "dim"), [("digits", 1797, 64), ("breast-cancer", 569, 30)])
def test_every_row_is_in_one_part(name, n, dim):
    table = TABLES[name]()
    parts = (table.train, table.validation, table.test)
    assert sum(map(len, parts)) == n
    assert {part.shape[1] for part in parts} == {dim}
    assert {part.dtype for part in parts} == {np.dtype(np.float32)}
    assert len(np.unique(np.concatenate(parts), axis=0)) > 0.99 * n
    for again, part in zip(TABLES[name]()[:3], parts, strict=True):
        np.testing.assert_array_equal(again, part)


def test_training_columns_are_standardised():
    train = TABLES["breast-cancer"]().train
    np.testing.assert_allclose(train.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(train.std(axis=0), 1, atol=1e-5)


def test_pixels_are_spread_over_the_unit_above_them():
    table = TABLES["digits"]()
    assert table.jitter is not None
    source = build_source(find("table/digits"))
    batches = np.concatenate([*np.asarray(source.batches(0, 40))])
    np.testing.assert_allclose(batches.mean(axis=0), 0, atol=0.1)
    np.testing.assert_allclose(batches.std(axis=0), 1, atol=0.15)
    pixels = table.train / table.jitter  # whole numbers, up to each column's mean
    steps = pixels - pixels.min(axis=0)
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-3)
    spread = table.test / table.jitter - (table.train / table.jitter).min(axis=0)
    assert 0.2 < np.std(spread % 1) < 0.35  # uniform: 0.289
