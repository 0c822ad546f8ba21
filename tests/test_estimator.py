"""The scikit-learn estimator: scikit-learn's own checks, exact units, independence of neighbours, files."""

import json

import jax
import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import make_moons
from sklearn.exceptions import NotFittedError
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KernelDensity
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PowerTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

import ffjord.columns
import ffjord.estimator
from ffjord.errors import InputError, TrainingError
from ffjord.estimator import FFJORD

SCALE, SHIFT = np.array([1000.0, 1e-3]), np.array([1e5, -7.0])


def tiny(**params) -> FFJORD:
    """An estimator that compiles and trains in seconds; it learns next to nothing."""
    return FFJORD(**{"hidden": (4,), "steps": 2, "batch_size": 8, "method": "euler", "random_state": 0} | params)


def table(n: int = 30) -> np.ndarray:
    """n rows of three columns, with few enough bits that shifts and scales by powers of two round nothing."""
    return np.round(np.random.default_rng(0).normal(size=(n, 3)) * 2**10) / 2**10


def moons(n: int, seed: int) -> np.ndarray:
    return make_moons(n, noise=0.1, random_state=seed)[0] * SCALE + SHIFT


@pytest.fixture(scope="module")
def trained() -> FFJORD:
    """A quick fit, with the default numerics, of moons in odd units."""
    return FFJORD(hidden=(32, 32), steps=200, random_state=0).fit(moons(1000, 0))


@pytest.fixture(scope="module")
def fitted() -> FFJORD:
    return tiny().fit(table())


@pytest.fixture
def columns(monkeypatch):
    """Makes scikit-learn see column names, as it does in a data frame, without a library of data frames."""

    def name(*names: str) -> None:
        monkeypatch.setattr("sklearn.utils.validation._get_feature_names", lambda X: np.array(names, dtype=object))

    return name


# Conventions.


@pytest.mark.usefixtures("unchecked")
@parametrize_with_checks([tiny()])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def test_in_pipeline_and_model_selection():
    x = table()
    pipeline = make_pipeline(PowerTransformer(), tiny()).fit(x)
    assert pipeline.score_samples(x).shape == (30,)
    assert np.all(np.isfinite(cross_val_score(tiny(), x, cv=3)))
    search = GridSearchCV(tiny(), {"end_time": [0.5, 1.0]}, cv=2).fit(x)
    assert search.best_score_ == max(search.cv_results_["mean_test_score"])
    assert np.isfinite(search.best_estimator_.score(x))


def test_attributes(trained):
    steps = [row["step"] for row in trained.history_]
    assert steps == [50, 100, 150, 200] == list(range(50, trained.n_steps_ + 1, 50))
    assert trained.best_validation_loss_ == min(row["validation_loss"] for row in trained.history_)
    assert trained.n_features_in_ == 2
    assert trained.flow_.event_shape == (2,)
    assert trained.model_config_.hidden == (32, 32)


def test_score_is_the_mean(trained):
    x = moons(16, 1)
    scores = trained.score_samples(x)
    assert scores.dtype == np.float64
    assert trained.score(x) == np.mean(scores)


def test_prints_plain_lines(capsys):
    tiny(verbose=1).fit(table())
    assert capsys.readouterr().out.startswith("step 2 of 2: loss ")
    tiny().fit(table())
    assert capsys.readouterr().out == ""


# The density, in the data's own units.


def test_density_integrates_to_one(trained):
    x = np.linspace(-3.0, 4.0, 200)
    y = np.linspace(-2.5, 3.0, 160)
    grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2) * SCALE + SHIFT
    cell = (x[1] - x[0]) * (y[1] - y[0]) * np.prod(SCALE)
    assert np.sum(np.exp(trained.score_samples(grid))) * cell == pytest.approx(1, abs=2e-3)


def test_learns_more_than_a_gaussian(trained):
    gaussian = GaussianMixture(1, reg_covar=0).fit(moons(1000, 0))
    assert trained.score(moons(2000, 1)) > gaussian.score(moons(2000, 1)) + 0.3


def test_samples_have_the_datas_moments(trained):
    x, samples = moons(1000, 0), trained.sample(2000, random_state=0)
    assert samples.shape == (2000, 2)
    assert samples.dtype == np.float64
    assert np.all(np.abs(samples.mean(axis=0) - x.mean(axis=0)) < 0.15 * x.std(axis=0))
    np.testing.assert_allclose(samples.std(axis=0), x.std(axis=0), rtol=0.15)


def test_samples_follow_their_seed(fitted):
    assert fitted.sample().shape == (1, 3)
    same = fitted.sample(5, random_state=3)
    np.testing.assert_array_equal(same, fitted.sample(5, random_state=3))
    np.testing.assert_array_equal(same, fitted.sample(5, random_state=np.random.RandomState(3)))
    assert not np.array_equal(same, fitted.sample(5, random_state=4))
    assert not np.array_equal(fitted.sample(5), fitted.sample(5))
    with pytest.raises(ValueError, match="n_samples must be a whole number and at least 1; got 0"):
        fitted.sample(0)


@pytest.mark.parametrize("power", [-1000, -100, 100, 1000])
def test_units_shift_the_score_exactly(fitted, power):
    x, unit = table(), 2.0**power
    other = tiny().fit(x * unit)
    difference = other.score_samples(x * unit) - fitted.score_samples(x)
    np.testing.assert_allclose(difference, -3 * power * np.log(2), rtol=1e-15, atol=1e-13)
    np.testing.assert_array_equal(other.sample(4, random_state=0), unit * fitted.sample(4, random_state=0))


def test_columns_far_from_zero_lose_nothing(fitted):
    x = table()
    other = tiny().fit(x + 1e8)
    np.testing.assert_allclose(other.score_samples(x + 1e8), fitted.score_samples(x), atol=2e-6)


def test_neighbours_do_not_matter(trained):
    x = moons(1000, 2)
    together = trained.score_samples(x)
    far = SHIFT + SCALE * np.random.default_rng(0).normal(size=(14, 2)) * np.logspace(1, 6, 14)[:, None]
    for i in np.argsort(together)[[0, 10, 500, 999]]:
        alone = trained.score_samples(x[i : i + 1])[0]
        among_far = trained.score_samples(np.concatenate([far, x[i : i + 1]]))[-1]
        assert abs(alone - together[i]) < 1e-4
        assert abs(among_far - together[i]) < 1e-4


def test_out_of_float32s_range_the_density_is_zero(trained):
    near = moons(1, 2)
    scores = trained.score_samples(np.concatenate([near, [[1e200, 0.0], [0.0, -1e25]]]))
    assert scores[0] == pytest.approx(trained.score_samples(near)[0], abs=1e-4)
    assert np.all(scores[1:] == -np.inf)


# Reproducibility.


def test_random_state_determines_the_fit(fitted):
    x = table()
    expected = fitted.score_samples(x)
    np.testing.assert_array_equal(clone(fitted).fit(x).score_samples(x), expected)
    np.testing.assert_array_equal(tiny(random_state=np.random.RandomState(0)).fit(x).score_samples(x), expected)
    assert not np.array_equal(tiny(random_state=1).fit(x).score_samples(x), expected)


def test_refit_forgets():
    x = table()
    estimator = tiny().fit(x[:, :2] * 100)
    np.testing.assert_array_equal(estimator.fit(x).score_samples(x), tiny().fit(x).score_samples(x))
    assert len(estimator.history_) == 1


def test_a_second_fit_compiles_nothing(fitted):
    began = []
    jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: began.append(event))
    tiny(random_state=5).fit(table() * 3).score_samples(table())
    assert not [event for event in began if "backend_compile" in event]


def test_failed_training_leaves_the_old_fit(fitted, monkeypatch):
    estimator, x = clone(fitted).fit(table()), table()
    expected = estimator.score_samples(x)
    monkeypatch.setattr(ffjord.estimator, "_validation_loss", lambda *args: float("inf"))
    with pytest.raises(TrainingError, match="smaller learning_rate"):
        estimator.fit(x * 5)
    np.testing.assert_array_equal(estimator.score_samples(x), expected)
    with pytest.raises(TrainingError, match="smaller learning_rate"):
        tiny().fit(x)


# Input.


@pytest.mark.parametrize("n", [2, 3, 9, 11])
def test_few_rows(n):
    assert np.all(np.isfinite(tiny().fit(table()[:n]).score_samples(table())))


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (table()[:1], ValueError, "Found array with 1 sample.* minimum of 2 is required"),
        (np.zeros((0, 3)), ValueError, "Found array with 0 sample"),
        (np.zeros((5, 0)), ValueError, "Found array with 0 feature"),
        (table()[0], ValueError, "Expected 2D array"),
        (np.where(table() > 1, np.nan, table()), ValueError, "contains NaN"),
        (np.where(table() > 1, np.inf, table()), ValueError, "contains infinity"),
        ([["a", "b"], ["c", "d"]], ValueError, "could not convert string to float"),
        (csr_array(table()), TypeError, "Sparse data was passed"),
        (table() * [1, 0, 1] + 0.1, ValueError, r"constant columns \(1\).*no density"),
        (np.ma.masked_array(table(), table() > 1), InputError, "masked entries, which are missing values"),
        (np.array([[1, 2], [3, 10**400]], dtype=object), InputError, "too large for float64"),
        (np.array([[0.0], [1e308]]), ValueError, "beyond ±1e.306"),
        (np.full((5, 2), 1e300), ValueError, r"constant columns \(0, 1\)"),
    ],
)
def test_unusable_tables(x, error, message):
    with pytest.raises(error, match=message):
        tiny().fit(x)


def test_a_mask_that_hides_nothing_changes_nothing(fitted):
    x = np.ma.masked_array(table(), False)
    np.testing.assert_array_equal(fitted.score_samples(x), fitted.score_samples(table()))
    x[3, 1] = np.ma.masked
    with pytest.raises(InputError, match="masked entries"):
        fitted.score_samples(x)


def test_constant_columns_are_named(columns):
    columns("height", "one")
    with pytest.raises(ValueError, match=r"\('one'\)"):
        tiny().fit([[1.0, 1.0], [2.0, 1.0]])


def test_scoring_needs_the_same_columns(fitted):
    with pytest.raises(ValueError, match="X has 2 features, but FFJORD is expecting 3"):
        fitted.score_samples(table()[:, :2])
    with pytest.raises(ValueError, match="contains NaN"):
        fitted.score_samples(np.full((2, 3), np.nan))


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int64, np.uint8, bool, object, str])
def test_scores_of_every_type_of_number(fitted, kind):
    rows = (np.arange(12) % 2).reshape(4, 3)
    np.testing.assert_array_equal(fitted.score_samples(rows.astype(kind)), fitted.score_samples(rows.astype(float)))


def test_large_tables_are_standardised_chunk_by_chunk(fitted, monkeypatch):
    rows = np.resize(table(), (5000, 3)).astype(np.float32)
    lengths, standardized = [], ffjord.columns.standardized
    monkeypatch.setattr(ffjord.columns, "standardized", lambda x, *_: lengths.append(len(x)) or standardized(x, *_))
    scores = fitted.score_samples(rows)
    assert lengths == [2048, 2048, 904]
    np.testing.assert_array_equal(scores[:30], scores[4500:4530])


def test_verbose_scoring_tells_how_far_it_is(fitted, monkeypatch, capsys):
    clock = iter(range(0, 1000, 11))
    monkeypatch.setattr("ffjord.progress.time.monotonic", lambda: next(clock))
    loud = clone(fitted).set_params(verbose=1).fit(table())
    capsys.readouterr()
    loud.score_samples(table())
    assert capsys.readouterr().err == "scoring: 30 of 30, 0 s left\n"
    fitted.score_samples(table())
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("use", [lambda e: e.score_samples(table()), lambda e: e.sample(), lambda e: e.save("x.npz")])
def test_unfitted(use):
    with pytest.raises(NotFittedError):
        use(tiny())


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "params",
    [
        {"hidden": "large"},
        {"hidden": 64},
        {"hidden": b"64"},
        {"hidden": {}},
        {"hidden": (0,)},
        {"layer": "no"},
        {"nonlinearity": "no"},
        {"flows": 0},
        {"end_time": 0.0},
        {"steps": 0},
        {"batch_size": 0},
        {"learning_rate": -1.0},
        {"weight_decay": -1.0},
        {"average": 1.0},
        {"validation_fraction": 0.0},
        {"validation_fraction": 1.0},
        {"patience": 0},
        {"method": "no"},
        {"divergence": "no"},
        {"test_rtol": 0.0},
        {"max_minutes": 0},
        {"max_minutes": "1"},
        {"steps": 2.5},
        {"end_time": 10**400},
        {"learning_rate": float("nan")},
        {"nonlinearity": ["tanh"]},
    ],
)
def test_senseless_parameters(params):
    (name,) = params
    with pytest.raises(ValueError, match=name.removeprefix("test_")):
        tiny(**params).fit(table())


# Files.


def test_saved_and_loaded_alike(trained, tmp_path):
    trained.save(tmp_path / "moons.npz")
    loaded, x = FFJORD.load(tmp_path / "moons.npz"), moons(1000, 2)
    np.testing.assert_array_equal(loaded.score_samples(x), trained.score_samples(x))
    np.testing.assert_array_equal(loaded.sample(3, random_state=0), trained.sample(3, random_state=0))
    assert loaded.get_params() == trained.get_params()
    for name in ("n_features_in_", "n_steps_", "best_validation_loss_", "history_", "model_config_", "solve_config_"):
        assert getattr(loaded, name) == getattr(trained, name)
    assert [path.name for path in tmp_path.iterdir()] == ["moons.npz"]


@pytest.mark.usefixtures("unchecked")
def test_a_file_keeps_what_was_fitted(tmp_path, columns):
    columns("a", "b", "é")
    estimator, x = tiny(random_state=np.random.RandomState(0), steps=np.int64(2), hidden=[4]).fit(table()), table()
    estimator.set_params(hidden=(5, 5, 5), method="dopri5").save(str(tmp_path / "file"))
    loaded = FFJORD.load(str(tmp_path / "file"))
    np.testing.assert_array_equal(loaded.score_samples(x), estimator.score_samples(x))
    np.testing.assert_array_equal(loaded.feature_names_in_, ["a", "b", "é"])
    assert loaded.get_params() == estimator.get_params() | {"random_state": None}


def test_damaged_files_are_refused(fitted, tmp_path):
    path, x = tmp_path / "estimator", table()
    fitted.save(path)
    content, expected = path.read_bytes(), fitted.score_samples(x)
    rng = np.random.default_rng(0)
    for k in rng.integers(0, len(content), 30):
        path.write_bytes(content[:k])
        with pytest.raises(InputError, match="damaged"):
            FFJORD.load(path)
    harmless = 0
    for k in rng.integers(0, len(content), 100):
        path.write_bytes(content[:k] + bytes([content[k] ^ (1 << int(rng.integers(8)))]) + content[k + 1 :])
        try:  # some bits of a zip file mean nothing, such as dates
            np.testing.assert_array_equal(FFJORD.load(path).score_samples(x), expected)
            harmless += 1
        except InputError:
            pass
    assert harmless < 50


def test_foreign_files_are_refused(fitted, tmp_path):
    path = tmp_path / "file.npz"
    with pytest.raises(InputError, match="there is no such file"):
        FFJORD.load(path)
    path.write_text("not an archive")
    with pytest.raises(InputError, match="damaged or not"):
        FFJORD.load(path)
    np.save(tmp_path / "array.npy", table())
    with pytest.raises(InputError, match="damaged or not"):
        FFJORD.load(tmp_path / "array.npy")
    np.savez(path, x=table())
    with pytest.raises(InputError, match="not a saved FFJORD"):
        FFJORD.load(path)
    np.savez(path, estimator=np.array({"pickled": 1}, dtype=object))
    with pytest.raises(InputError, match="damaged or not"):
        FFJORD.load(path)
    np.savez(path, estimator=np.array(json.dumps({"format": "ffjord estimator 99"})))
    with pytest.raises(InputError, match="'ffjord estimator 99'; this version reads"):
        FFJORD.load(path)
    np.savez(path, estimator=np.array("[1, 2]"))
    with pytest.raises(InputError, match="not a saved FFJORD"):
        FFJORD.load(path)


def test_a_file_with_other_weights_is_refused(fitted, tmp_path):
    path = tmp_path / "file.npz"
    fitted.save(path)
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **arrays | {"mean": np.zeros(2)})
    with pytest.raises(InputError, match="does not fit"):
        FFJORD.load(path)
    np.savez(path, **{name: array for name, array in arrays.items() if "weight" not in name})
    with pytest.raises(InputError, match="arrays differ"):
        FFJORD.load(path)


# Quality.


@pytest.mark.slow
def test_default_settings_compete_with_the_classics():
    x, test = moons(2000, 0), moons(4000, 100)
    kernels = GridSearchCV(KernelDensity(), {"bandwidth": np.geomspace(0.03, 0.3, 10)}).fit(x / SCALE)
    kernel_score = np.mean(kernels.best_estimator_.score_samples(test / SCALE)) - np.sum(np.log(SCALE))
    flow_score = FFJORD(random_state=0).fit(x).score(test)
    assert flow_score > GaussianMixture(1, reg_covar=0).fit(x).score(test) + 0.7
    assert flow_score > kernel_score - 0.05


# What "auto" stands for.


@pytest.mark.parametrize(
    ("params", "columns_in", "objective", "dynamics", "hidden", "steps"),
    [
        ({}, 2, "likelihood", "mlp", (64, 64), 1000),
        ({}, 32, "likelihood", "mlp", (128, 128), 1000),
        ({}, 33, "flow-matching", "residual", (132,) * 3, 3000),
        ({}, 100, "flow-matching", "residual", (256,) * 3, 3000),
        ({"flows": 2}, 10, "likelihood", "mlp", (64, 64), 1000),
        ({"matching_steps": 500}, 20, "likelihood", "mlp", (80, 80), 1000),
        ({"regularization": {"kinetic": 0.1}}, 20, "likelihood", "mlp", (80, 80), 1000),
        ({"objective": "flow-matching", "hidden": (32,), "steps": 7}, 2, "flow-matching", "residual", (32,), 7),
        ({"objective": "likelihood", "dynamics": "residual"}, 10, "likelihood", "residual", (128,) * 3, 1000),
    ],
)
def test_auto_follows_the_table_and_the_other_parameters(params, columns_in, objective, dynamics, hidden, steps):
    model, solve, config = FFJORD(**params)._configs(1000, columns_in)
    assert (config.objective, model.dynamics, model.hidden, config.steps) == (objective, dynamics, hidden, steps)
    assert solve.test_divergence == ("closed-form" if dynamics == "mlp" else "exact")


@pytest.mark.slow
def test_the_default_learns_a_table_of_several_columns():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1200, 4)) * [1.0, 10.0, 0.1, 1.0] + np.array([0.0, 5.0, 0.0, -3.0])
    x[:, 3] += x[:, 0] ** 2
    fitted = FFJORD(steps=600, random_state=0).fit(x[:1000])
    assert fitted.model_config_.dynamics == "mlp"
    truth = -0.5 * 4 * np.log(2 * np.pi * np.e)  # the scales cancel but for one factor of 10 and one of 0.1
    assert fitted.score(x[1000:]) > truth - 0.35
    assert fitted.score(x[1000:]) > GaussianMixture(1).fit(x[:1000]).score(x[1000:]) + 0.1


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"objective": "luck"}, "objective must be one of likelihood, flow-matching; got 'luck'"),
        ({"objective": 3}, "objective must be a name; got 3"),
        ({"matching_steps": -1}, "matching_steps must be a whole number and at least 0; got -1"),
        ({"matching_steps": 5, "steps": 5}, "warm_start must be less than steps"),
        ({"regularization": {"luck": 1.0}}, r"regularization must map names \(kinetic, .* to coefficients"),
        ({"regularization": {"kinetic": "much"}}, r"regularization\['kinetic'\] must be a number; got 'much'"),
        ({"regularization": 0.1}, "regularization must map names"),
        ({"objective": "flow-matching", "flows": 2}, "exactly one continuous part; this one has 2"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_bad_objectives_and_regularisation(params, words):
    with pytest.raises(ValueError, match=words):
        FFJORD(**{"hidden": (4,), "steps": 2, "batch_size": 8} | params).fit(table())
