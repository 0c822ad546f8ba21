"""From a table to rows for training: split, units, whole numbers, and the yardsticks on the same rows."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import KernelDensity

from ffjord.data.source import Held, Rows
from ffjord.errors import InputError
from ffjord.scoring import Moments
from ffjord.table import open_table
from ffjord.table.choose import choose
from ffjord.table.layout import Layout
from ffjord.table.prepare import prepare
from ffjord.table.spacing import looks_discrete, spacing
from ffjord.yardsticks import yardsticks


def table_of(tmp_path, **columns):
    np.savez(tmp_path / "t.npz", **columns)
    return open_table(tmp_path / "t.npz")


def test_every_row_is_in_one_part_and_units_are_those_of_training_rows(tmp_path):
    x = np.random.default_rng(0).normal(size=(203, 2)) * [1.0, 1e-3] + [1e8, 5.0]
    chosen = choose(table_of(tmp_path, a=x[:, 0], b=x[:, 1]))
    found = prepare(chosen, seed=3)
    assert [len(part.x) for part in found[1:4]] == [163, 20, 20]
    z = np.concatenate([part.x for part in found[1:4]]).astype(np.float64)
    restored = found.layout.restored(z)
    np.testing.assert_allclose(np.sort(restored, axis=0), np.sort(x, axis=0), rtol=1e-12, atol=1e-6)
    np.testing.assert_allclose(found.train.x.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(found.train.x.std(axis=0), 1, atol=1e-6)
    assert abs(found.test.x.mean()) > 1e-3, "statistics of the training rows alone"
    again, other = prepare(chosen, seed=3), prepare(chosen, seed=4)
    np.testing.assert_array_equal(again.test.x, found.test.x)
    assert not np.array_equal(other.test.x, found.test.x)


def test_units_add_the_logarithm_of_their_scale(tmp_path):
    x = np.random.default_rng(0).normal(size=(100, 2))
    layouts = [prepare(choose(table_of(tmp_path, a=x[:, 0] * k, b=x[:, 1])), seed=0).layout for k in (1, 1000)]
    assert layouts[1].log_scale - layouts[0].log_scale == pytest.approx(np.log(1000), abs=1e-12)


def test_too_few_rows_are_refused(tmp_path):
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match=r"t.npz has 19 rows that can be used; 1 columns need at least 20"):
        prepare(choose(table_of(tmp_path, a=rng.random(19))), seed=0)
    wide = {f"c{i}": rng.random(25) for i in range(13)}
    with pytest.raises(InputError, match="25 rows that can be used; 13 columns need at least 26"):
        prepare(choose(table_of(tmp_path, **wide)), seed=0)


@pytest.mark.parametrize("role", ["columns", "condition_on"])
def test_a_column_constant_in_training_rows_is_named(tmp_path, role):
    a, b = np.random.default_rng(0).random(30), np.zeros(30)
    order = np.random.default_rng([0, 0]).permutation(30)
    b[order[0]] = 7  # a test row
    chosen = choose(table_of(tmp_path, a=a, b=b), **{role: ["b"]})
    words = rf"row {order[0] + 1}, column 'b': the column has one value, 0, in all 24 training rows, and another, 7"
    with pytest.raises(InputError, match=words):
        prepare(chosen, seed=0)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([3, 1, 2, 9], 1.0),
        ([0, 10, 30], 10.0),
        ([0.1, 0.2, 0.3, 0.7], 0.1),
        ([0, 1], 1.0),
        ([5, 5], None),
        ([0, 1, 2.5], None),
        (np.random.default_rng(0).random(40), None),
        (1e6 + np.random.default_rng(0).random(4000), None),
    ],
)
def test_spacing_of_values(values, expected):
    found = spacing(np.array(values, np.float64))
    assert found == (expected if expected is None else pytest.approx(expected, rel=1e-12))


def test_what_looks_discrete():
    rng = np.random.default_rng(0)
    assert looks_discrete(rng.integers(5, size=100).astype(float))
    assert looks_discrete(rng.integers(8, size=100) / 4)
    assert not looks_discrete(rng.normal(size=100))
    assert not looks_discrete(np.arange(100.0)), "no value comes twice"
    assert not looks_discrete(np.round(rng.normal(size=1000), 2)), "a measurement with two digits"


def test_dequantised_columns(tmp_path):
    rng = np.random.default_rng(0)
    counts = rng.integers(10, 14, size=500) * 0.5
    table = table_of(tmp_path, a=rng.normal(size=500), k=counts)
    found = prepare(choose(table), seed=0, dequantize=[1])
    layout = found.layout
    assert layout.cell == (0.0, pytest.approx(0.5))
    raw = layout.data.mean[1] + layout.data.scale[1] * found.train.x[:, 1]
    np.testing.assert_allclose(raw, np.round(raw * 2) / 2, atol=1e-6)
    spread = layout.data.mean[1] + layout.data.scale[1] * found.test.x[:, 1]
    assert 0.2 < np.std(spread / 0.5 % 1) < 0.35, "uniform has 0.289"
    assert set(layout.restored(found.test.x.astype(np.float64))[:, 1].tolist()) == {5.0, 5.5, 6.0, 6.5}
    source = Rows(found.train.x, found.validation.x, found.test.x, batch_size=100, seed=0, jitter=found.jitter)
    batches = np.concatenate([*np.asarray(source.batches(0, 40))])
    np.testing.assert_allclose(batches.mean(axis=0), 0, atol=0.05)
    np.testing.assert_allclose(batches.std(axis=0), 1, atol=0.05)
    with pytest.raises(InputError, match=r"--dequantize cannot be used for column 'a'.*not evenly spaced"):
        prepare(choose(table), seed=0, dequantize=[0])


def test_a_layout_is_written_and_read(tmp_path):
    x = np.random.default_rng(0).normal(size=(50, 3))
    chosen = choose(table_of(tmp_path, a=x[:, 0], b=x[:, 1], c=x[:, 2]), condition_on=["b"])
    layout = prepare(chosen, seed=0).layout
    layout.write(tmp_path)
    assert Layout.read(tmp_path) == layout
    (tmp_path / "columns.json").write_text('{"data": {}}')
    with pytest.raises(InputError, match=r"columns.json cannot be read"):
        Layout.read(tmp_path)
    (tmp_path / "columns.json").unlink()
    with pytest.raises(InputError, match=r"columns.json is missing"):
        Layout.read(tmp_path)


def test_columns_are_found_by_name_else_by_position(tmp_path):
    x = np.random.default_rng(0).normal(size=(50, 4))
    fitted = dict(zip("abcd", x.T, strict=True))
    layout = prepare(choose(table_of(tmp_path, **fitted), columns=["d", "a"], condition_on=["c"]), seed=0).layout
    assert layout.find(table_of(tmp_path, c=x[:, 0], z=x[:, 0], a=x[:, 0], d=x[:, 0])) == ([3, 2], [0])
    assert layout.find(table_of(tmp_path, c=x[:, 0]), data=False) == ([], [0])
    with pytest.raises(InputError, match=r"t.npz has no column 'd', which the model was fitted with; it has 'a', 'c'"):
        layout.find(table_of(tmp_path, a=x[:, 0], c=x[:, 0]))
    for width, places in ((4, ([3, 0], [2])), (3, ([0, 1], [2]))):
        np.save(tmp_path / "t.npy", x[:, :width])
        assert layout.find(open_table(tmp_path / "t.npy")) == places
    np.save(tmp_path / "t.npy", x[:, :2])
    with pytest.raises(InputError, match=r"has 2 columns without names; expected 3 \(d, a, c\), or 4"):
        layout.find(open_table(tmp_path / "t.npy"))


# Weights and conditions on their way to training.


def test_rows_are_drawn_by_their_weights():
    train = np.arange(4, dtype=np.float32)[:, None]
    source = Rows(train, train, train, batch_size=500, seed=1, weight=np.array([1.0, 2.0, 5.0, 2.0]))
    drawn = np.asarray(source.batches(0, 20)).ravel().astype(int)
    np.testing.assert_allclose(np.bincount(drawn) / 10_000, [0.1, 0.2, 0.5, 0.2], atol=0.02)
    np.testing.assert_array_equal(source.batches(3, 2)[1], source.batches(4, 1)[0])


def test_held_rows_are_cut_with_what_belongs_to_them():
    held = Held(np.ones((5, 2)), np.ones((5, 1)), np.arange(5.0))
    source = Rows(np.ones((9, 2)), held, held, batch_size=3, seed=0, condition=np.ones((9, 1)))
    assert (source.num_test, source.condition_size) == (5, 1)
    (block,) = source.test_blocks(2)
    assert [len(part) for part in block] == [2, 2, 2]


def test_weighted_moments_are_those_of_repeated_values():
    values, counts = np.array([1.0, 4.0, -2.0, 0.5]), np.array([2, 1, 3, 4])
    moments = Moments()
    for part in ([0], [1, 2], [3]):
        moments.add(values[part], counts[part])
    mean = np.average(values, weights=counts)
    assert moments.mean == pytest.approx(mean, rel=1e-14)
    squares = np.sum(counts**2 * (values - mean) ** 2)
    assert moments.standard_error == pytest.approx((4 / 3 * squares) ** 0.5 / 10, rel=1e-12)


# Yardsticks.


def yards(chosen, **options):
    found = prepare(chosen, seed=0, **options)
    return found, {one.name: one for one in yardsticks(found, seed=0)}


def test_yardsticks_agree_with_scikit_learn(tmp_path):
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(300, 2)), 0.3 * rng.normal(size=(300, 2)) + 3])
    found, rulers = yards(choose(table_of(tmp_path, a=x[:, 0], b=x[:, 1])))
    train, test = (part.x.astype(np.float64) for part in (found.train, found.test))
    gaussian = multivariate_normal(train.mean(axis=0), np.cov(train.T, bias=True)).logpdf(test)
    np.testing.assert_allclose(rulers["one Gaussian"].log_prob, gaussian, rtol=1e-9)
    mixture = rulers["mixture of Gaussians"]
    again = GaussianMixture(mixture.about["components"], random_state=0).fit(train).score_samples(test)
    np.testing.assert_allclose(mixture.log_prob, again, rtol=1e-6)
    assert mixture.about["components"] >= 2
    kernels = rulers["kernel density"]
    again = KernelDensity(bandwidth=kernels.about["bandwidth"], rtol=1e-9).fit(train).score_samples(test)
    np.testing.assert_allclose(kernels.log_prob, again, rtol=1e-6)
    assert gaussian.mean() < kernels.log_prob.mean() < mixture.log_prob.mean()


def test_yardsticks_of_conditional_densities(tmp_path):
    rng = np.random.default_rng(0)
    c = rng.normal(size=3000)
    x = 2 * c + 0.5 * rng.normal(size=3000)
    chosen = choose(table_of(tmp_path, x=x, c=c), condition_on=["c"])
    found, rulers = yards(chosen)
    truth = norm(2 * c, 0.5).logpdf(x).mean()
    for ruler, slack in (("one Gaussian", 0.1), ("mixture of Gaussians", 0.1), ("kernel density", 0.2)):
        assert rulers[ruler].log_prob.mean() - found.layout.log_scale == pytest.approx(truth, abs=slack)


def test_yardsticks_know_weights(tmp_path):
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=900), rng.normal(size=900) + 6])
    weights = np.repeat([1.0, 1e-9], 900)
    found, rulers = yards(choose(table_of(tmp_path, x=x, w=weights), weights="w"))
    truth = norm.logpdf(found.layout.restored(found.test.x.astype(np.float64))[:, 0])
    for ruler in rulers.values():
        log_prob = ruler.log_prob - found.layout.log_scale
        assert np.average(log_prob - truth, weights=found.test.weights) == pytest.approx(0, abs=0.05)
    _, unweighted = yards(choose(table_of(tmp_path, x=x)))
    assert np.average(unweighted["one Gaussian"].log_prob - found.layout.log_scale - truth) > 1


def test_a_singular_covariance_gets_a_ridge(tmp_path):
    x = np.random.default_rng(0).normal(size=200)
    _, rulers = yards(choose(table_of(tmp_path, a=x, b=2 * x)))
    assert rulers["one Gaussian"].about == {"ridge": 1e-6}
    assert np.isfinite(rulers["one Gaussian"].log_prob).all()
