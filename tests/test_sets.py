"""The paper's tables: small files in the publishers' formats against the recipes written out plainly."""

import dataclasses
import gzip
import os
import sys
import zipfile
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from ffjord.data import bsds300, gas, hepmass, lines, miniboone, power, sets
from ffjord.data.gaussian import gaussian_log_likelihood
from ffjord.data.split import Split
from ffjord.errors import InputError
from tests.old_pandas import old_frame


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Sets are looked for in empty places, and every test reads its own."""
    monkeypatch.delenv(sets.VARIABLE, raising=False)
    monkeypatch.setattr(sets.platformdirs, "user_cache_path", lambda name: tmp_path / "cache" / name)
    sets.load.cache_clear()


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(lines, "_BYTES", 200)


def same(split: Split, train, validation, test) -> None:
    """Checks the three parts, which must have rows."""
    for part, rows in zip(split, (train, validation, test), strict=True):
        assert len(part)
        assert part.dtype == np.float32
        np.testing.assert_allclose(part, rows, rtol=1e-6, atol=1e-6)


def cut(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """MAF's splits from the end."""
    n_test = int(0.1 * len(rows))
    rest = rows[:-n_test]
    n_validation = int(0.1 * len(rest))
    return rest[:-n_validation], rest[-n_validation:], rows[-n_test:]


def by_train_and_validation(rows: np.ndarray) -> tuple[np.ndarray, ...]:
    train, validation, test = cut(rows)
    both = np.concatenate([train, validation])
    return tuple((part - both.mean(axis=0)) / both.std(axis=0) for part in (train, validation, test))


# POWER

HEADER = (
    "Date;Time;Global_active_power;Global_reactive_power;Voltage;Global_intensity;"
    "Sub_metering_1;Sub_metering_2;Sub_metering_3\n"
)


def power_text(rows: np.ndarray, missing: set[int]) -> str:
    """A text in the publisher's format; `missing`: after which rows there is one without values."""
    text = HEADER
    for i, (p, q, v, c, *subs, minute) in enumerate(rows):
        time = f"{int(minute) // 60:02}:{int(minute) % 60:02}:00"
        text += f"16/12/2006;{time};{p:.3f};{q:.3f};{v:.3f};{c:.3f};{';'.join(f'{s:.3f}' for s in subs)}\n"
        if i in missing:
            text += f"16/12/2006;{time};?;?;?;?;?;?;\n"
    return text


@pytest.fixture
def power_rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    rows = np.round(rng.gamma(2.0, size=(40, 8)) * [1, 1, 100, 5, 10, 10, 10, 0], 3)
    rows[:, 7] = np.arange(1420, 1460) % 1440  # past midnight
    return rows


def maf_power(data: np.ndarray) -> tuple[np.ndarray, ...]:
    rng = np.random.RandomState(42)
    data = data.copy()
    rng.shuffle(data)
    data = np.delete(np.delete(data, 3, axis=1), 1, axis=1)
    n = len(data)
    voltage, active, meters = 0.01 * rng.rand(n, 1), 0.001 * rng.rand(n, 1), rng.rand(n, 3)
    return by_train_and_validation(data + np.hstack([active, voltage, meters, np.zeros((n, 1))]))


@pytest.mark.parametrize("form", ["txt", "zip", "npy"])
@pytest.mark.usefixtures("small_blocks")
def test_power(tmp_path, power_rows, form):
    text = power_text(power_rows, missing={0, 3, 4, 39})
    (tmp_path / "power.txt").write_text(text)
    with zipfile.ZipFile(tmp_path / "power.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("household_power_consumption.txt", text)
    np.save(tmp_path / "power.npy", power_rows)
    read = power.from_maf if form == "npy" else power.from_publisher
    same(read(tmp_path / f"power.{form}"), *maf_power(power_rows))


def test_power_adds_only_what_was_rounded_away(power_rows):
    many = np.tile(power_rows, (50, 1))
    split = power.prepared(many)
    values = [len(np.unique(column)) for column in np.concatenate(split).T]
    assert min(values[:5]) > 1000
    assert values[5] == 40  # the minute has no noise


def test_power_files_that_are_refused(tmp_path, power_rows):
    text, path = power_text(power_rows, missing={2}), tmp_path / "power.txt"
    for wrong, words in (
        (text.replace("Voltage", "Current"), "first line must be 'Date;Time"),
        (HEADER, "has no rows"),
        (text.replace(";00:1", ";a0:1", 1), "line [0-9]+: .*Download the file again"),
        ("\n".join([*text.splitlines()[:5], "16/12/2006;17:24:00;1.0;2.0"]), "line 6: "),
        ("\n".join([*text.splitlines()[:5], "16/12/2006;17:24:00;1;2;x;4;5;6;7"]), "line 6: .*'x'"),
    ):
        path.write_text(wrong)
        with pytest.raises(InputError, match=words) as caught:
            power.from_publisher(path)
        assert str(path) in str(caught.value)


def test_a_damaged_archive_is_refused(tmp_path, power_rows):
    path = tmp_path / "power.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("household_power_consumption.txt", power_text(power_rows, missing=set()))
    whole = path.read_bytes()
    damaged = whole[:300] + bytes(50) + whole[350:]
    for content in (b"", whole[:500], damaged):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"power\.zip cannot be read"):
            power.from_publisher(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other.txt", "")
    with pytest.raises(InputError, match="household_power_consumption"):
        power.from_publisher(path)


# GAS


def gas_rows(n: int) -> np.ndarray:
    """Six sensors of which 0, 2 and 3 are nearly one, and 4 is nearly -1 times 5."""
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(n, 6))
    rows[:, 2] = rows[:, 0] + 0.05 * rows[:, 2]
    rows[:, 3] = 3 * rows[:, 0] + 0.2 * rows[:, 3]
    rows[:, 4] = -rows[:, 5] + 0.01 * rows[:, 4]
    return rows * 10 + 100


def maf_gas(rows: np.ndarray) -> tuple[np.ndarray, ...]:
    while np.any((alike := (np.corrcoef(rows.T) > 0.98).sum(axis=1)) > 1):
        rows = np.delete(rows, np.where(alike > 1)[0][0], axis=1)
    return cut((rows - rows.mean(axis=0)) / rows.std(axis=0, ddof=1))


def test_gas_of_maf(tmp_path):
    rows = gas_rows(50)
    names = ["Time", "Meth", "Eth", *(f"R{i}" for i in range(6))]
    columns = np.concatenate([np.arange(150).reshape(50, 3), rows], axis=1).T
    path = tmp_path / "ethylene_CO.pickle"
    path.write_bytes(old_frame(dict(zip(names, columns, strict=True)), python2=True))
    split = gas.from_maf(path)
    same(split, *maf_gas(rows))
    assert split.test.shape == (5, 4)  # of 0, 2 and 3 the last is left; a negative correlation does not count
    path.write_bytes(old_frame(dict(zip(["Time", "CO", *names[2:]], columns, strict=True))))
    with pytest.raises(InputError, match="must have the columns Meth; it has Time, CO, Eth"):
        gas.from_maf(path)


@pytest.mark.usefixtures("small_blocks")
def test_gas_of_the_publisher(tmp_path):
    sensors = np.round(np.concatenate([gas_rows(203), np.random.default_rng(2).normal(size=(203, 10))], axis=1), 2)
    rows = np.concatenate([np.arange(609).reshape(203, 3), sensors], axis=1)
    path = tmp_path / "ethylene_CO.txt"
    body = "\n".join("  ".join(f"{x:.2f}" for x in row) for row in rows)
    path.write_text(f"Time (seconds), CO conc (ppm), Ethylene conc (ppm), sensor readings (16 channels)\n{body}\n\n")
    drawn = np.random.RandomState(42).permutation(203)[:51]
    same(gas.from_publisher(path), *maf_gas(sensors[drawn]))
    path.write_text(body)
    with pytest.raises(InputError, match="first line must be a header"):
        gas.from_publisher(path)
    path.write_text("Time\n" + body + "\n1 2 3\n")
    with pytest.raises(InputError, match="line 205: expected 19 numbers; got 3"):
        gas.from_publisher(path)


# HEPMASS


def hepmass_text(rows: np.ndarray, header: list[str]) -> str:
    return ",".join(header) + "\n" + "\n".join(",".join(f"{x:.18e}" for x in row) for row in rows) + "\n"


@pytest.fixture
def hepmass_rows(monkeypatch) -> tuple[np.ndarray, np.ndarray]:
    """80 and 40 rows with labels and four columns, of which the second is discrete; the test has one column more."""
    monkeypatch.setattr(hepmass, "_TRAIN_LINES", 60)
    monkeypatch.setattr(hepmass, "_TEST_LINES", 30)
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(120, 6))
    rows[:, 0] = rng.integers(2, size=120)
    rows[:, 2] = rng.integers(3, size=120)
    smallest = np.argsort(rows[:, 3])[:8]
    rows[smallest[:2], 3] = rows[smallest[0], 3]  # a smallest value that occurs twice is no reason to drop a column
    return rows[:80, :-1], rows[80:]


def maf_hepmass(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, ...]:
    train, test = train[:60], test[:30]
    train, test = train[train[:, 0] == 1][:, 1:], test[test[:, 0] == 1][:, 1:-1]
    mean, scale = train.mean(axis=0), train.std(axis=0, ddof=1)
    train, test = (train - mean) / scale, (test - mean) / scale
    kept = [i for i, column in enumerate(train.T) if sorted(Counter(column).items())[0][1] <= 5]
    assert kept == [0, 2, 3]
    n = int(0.1 * len(train))
    return train[:-n][:, kept], train[-n:][:, kept], test[:, kept]


@pytest.mark.parametrize("packed", [False, True])
def test_hepmass(tmp_path, hepmass_rows, packed):
    train, test = hepmass_rows
    names = ["# label", "f0", "f1", "f2", "f3", "mass"]
    for name, rows, header in (("train", train, names[:-1]), ("test", test, names)):
        text, path = hepmass_text(rows, header).encode(), tmp_path / f"1000_{name}.csv"
        if packed:
            path.with_suffix(".csv.gz").write_bytes(gzip.compress(text))
        else:
            path.write_bytes(text)
    path = tmp_path / ("1000_train.csv.gz" if packed else "1000_train.csv")
    same(hepmass.load(path), *maf_hepmass(train, test))


def test_hepmass_files_that_are_refused(tmp_path, hepmass_rows):
    train, test = hepmass_rows
    path, beside = tmp_path / "1000_train.csv", tmp_path / "1000_test.csv"
    path.write_text(hepmass_text(train, ["# label", "a", "b", "c", "d"]))
    with pytest.raises(InputError, match=r"neither 1000_test\.csv nor 1000_test\.csv\.gz is beside it"):
        hepmass.load(path)
    beside.write_text(hepmass_text(test[:, :3], ["# label", "a", "b"]))
    with pytest.raises(InputError, match="has 4 columns and the test file beside it 2"):
        hepmass.load(path)
    beside.write_text(hepmass_text(test * 0, ["# label", *"abcde"]))
    with pytest.raises(InputError, match=r"1000_test\.csv has no rows with the label 1"):
        hepmass.load(path)
    beside.write_text(hepmass_text(test, ["0", *"abcde"]))
    with pytest.raises(InputError, match=r"1000_test\.csv: the first line must be a header"):
        hepmass.load(path)
    (tmp_path / "1000_train.csv.gz").write_bytes(gzip.compress(path.read_bytes())[:-20])
    with pytest.raises(InputError, match=r"csv\.gz cannot be read"):
        hepmass.load(tmp_path / "1000_train.csv.gz")


# MINIBOONE


def miniboone_rows() -> np.ndarray:
    """60 signal rows, two of them failed measurements, with a column (7) that is discrete; then 5 of background."""
    rng = np.random.default_rng(4)
    rows = np.round(rng.normal(size=(65, 50)), 5)
    rows[:, 7] = rng.integers(3, size=65)
    rows[[3, 30]] = -999
    rows[4, 0] = -99
    return rows


def maf_miniboone(rows: np.ndarray) -> np.ndarray:
    rows = rows[~(rows[:, 0] < -100)]
    return rows[:, [sorted(Counter(column).items())[0][1] <= 5 for column in rows.T]]


def miniboone_text(rows: np.ndarray, first: str) -> str:
    return first + "\n" + "\n".join("  " + "  ".join(f"{x:.5e}" for x in row) for row in rows) + "\n"


@pytest.mark.usefixtures("small_blocks")
def test_miniboone(tmp_path):
    rows = miniboone_rows()
    chosen = maf_miniboone(rows[:60])
    assert chosen.shape == (58, 49)
    path = tmp_path / "MiniBooNE_PID.txt"
    path.write_text(miniboone_text(rows, "  60  5"))
    same(miniboone.from_publisher(path), *by_train_and_validation(chosen))
    np.save(tmp_path / "data.npy", chosen)
    same(miniboone.from_maf(tmp_path / "data.npy"), *by_train_and_validation(chosen))


@pytest.mark.parametrize(
    ("first", "words"),
    [
        ("70 5", "ends after 65 of its 70 signal rows"),
        ("60", "first line must hold the numbers of signal and background rows; got '60'"),
        ("1.0 2.0", "first line must hold the numbers"),
    ],
)
def test_miniboone_files_that_are_refused(tmp_path, first, words):
    path = tmp_path / "MiniBooNE_PID.txt"
    path.write_text(miniboone_text(miniboone_rows(), first))
    with pytest.raises(InputError, match=words):
        miniboone.from_publisher(path)


# BSDS300


@pytest.fixture
def images(tmp_path):
    """25 training and 3 test images of noise, in files of the publisher's names."""
    rng = np.random.default_rng(5)
    for part, count in (("train", 25), ("test", 3)):
        (tmp_path / part).mkdir()
        for i in range(count):
            grey = rng.integers(256, size=(12, 15), dtype=np.uint8)
            Image.fromarray(grey).save(tmp_path / part / f"{i:03}.jpg", quality=100)
    return tmp_path


def test_patches_of_images(images):
    rows = (200, 30, 40)
    split = bsds300.from_images(images, rows)
    assert [part.shape for part in split] == [(n, 63) for n in rows]
    for part, again in zip(split, bsds300.from_images(images, rows), strict=True):
        assert part.dtype == np.float32
        np.testing.assert_array_equal(part, again)
    files = sorted((images / "train").glob("*.jpg"))
    for part, of in zip(split, (files[:5], files[5:], sorted((images / "test").glob("*.jpg"))), strict=True):
        assert {found(row, of) for row in part} == {True}


def found(row: np.ndarray, files) -> bool:
    """Whether a row is a patch of one of these images, up to the noise within a grey value."""
    grey = np.append(row, -row.sum())  # the patch less its mean
    for file in files:
        with Image.open(file) as image:
            pixels = np.asarray(image.convert("L"), np.float64)
        windows = np.lib.stride_tricks.sliding_window_view(pixels, (8, 8)).reshape(-1, 64)
        noise = grey * 256 - windows
        if (np.ptp(noise, axis=1) < 1).any():  # equal to the window plus a constant and numbers in [0, 1)
            return True
    return False


def test_folders_of_images_that_are_refused(images, tmp_path):
    with pytest.raises(InputError, match="found 0 and 0 files"):
        bsds300.from_images(tmp_path / "nowhere")
    (images / "test" / "001.jpg").write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"001\.jpg is not a picture that can be read"):
        bsds300.from_images(images, (10, 10, 40))
    Image.new("L", (7, 30)).save(images / "test" / "001.jpg")
    with pytest.raises(InputError, match=r"001\.jpg has 30 × 7 pixels; a patch needs 8 × 8"):
        bsds300.from_images(images, (10, 10, 40))


def test_patches_of_maf(tmp_path, monkeypatch):
    path = tmp_path / "BSDS300.hdf5"
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(InputError, match=r"BSDS300\.hdf5 needs the library h5py: pip install 'ffjord\[hdf5\]'"):
        bsds300.from_maf(path)


def test_patches_of_maf_with_its_library(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "BSDS300.hdf5"
    arrays = {name: np.random.default_rng(6).normal(size=(n, 63)) for n, name in enumerate(Split._fields, 4)}
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
    same(bsds300.from_maf(path), *arrays.values())
    with h5py.File(path, "w") as file:
        file["train"] = arrays["train"]
    with pytest.raises(InputError, match="is not MAF's file"):
        bsds300.from_maf(path)


# What all of them share


def small(monkeypatch, name: str, dim: int, rows: tuple[int, int, int]) -> None:
    monkeypatch.setitem(sets.SETS, name, dataclasses.replace(sets.SETS[name], dim=dim, rows=rows))


def prepared_files(folder, dim: int, parts=("train", "val", "test")) -> None:
    folder.mkdir(parents=True)
    for n, name in enumerate(parts, 3):
        np.save(folder / f"{name}.npy", np.random.default_rng(n).normal(size=(n, dim)))


def test_the_reader_of_every_form_exists():
    for table in sets.SETS.values():
        assert sum(table.rows) > 0
        for form in table.forms:
            module, function = form.reader.split(".")
            assert callable(getattr(sets.import_module(f"ffjord.data.{module}"), function))


@pytest.mark.parametrize("name", ["power", "POWER", "Power"])
def test_sets_are_found_where_they_are_looked_for(tmp_path, monkeypatch, name):
    small(monkeypatch, "power", 2, (3, 4, 5))
    for n, place in enumerate(("given", "variable", "cache/ffjord/data")):
        prepared_files(tmp_path / place / name, 2)
        np.save(tmp_path / place / name / "test.npy", np.full((5, 2), n))
    monkeypatch.setenv(sets.VARIABLE, str(tmp_path / "variable"))
    first = lambda data_dir=None: sets.load("power", data_dir).test[0, 0]
    assert first(str(tmp_path / "given")) == 0
    assert first() == 1
    sets.load.cache_clear()
    monkeypatch.delenv(sets.VARIABLE)
    assert first() == 2
    assert first(str(tmp_path / "nowhere")) == 2


def test_forms_have_an_order(tmp_path, monkeypatch, power_rows):
    small(monkeypatch, "power", 6, tuple(map(len, cut(power_rows))))
    prepared_files(tmp_path / "power", 6)
    np.save(tmp_path / "power" / "data.npy", power_rows)
    same(sets.load("power", str(tmp_path)), *maf_power(power_rows))


def test_a_set_that_is_nowhere(tmp_path):
    with pytest.raises(InputError, match=r"gas: none of its files \(gas/ethylene_CO\.pickle, .*was found") as caught:
        sets.load("gas", str(tmp_path / "x"))
    assert f"{tmp_path / 'x'} (--data-dir)" in str(caught.value)
    assert "ffjord data get gas" in str(caught.value)


def test_rows_and_columns_are_counted(tmp_path, monkeypatch, power_rows):
    (tmp_path / "power").mkdir()
    path = tmp_path / "power" / "data.npy"
    np.save(path, power_rows)
    with pytest.raises(InputError, match=r"train rows of power must have the shape \(1659917, 6\); got \(33, 6\)"):
        sets.load("power", str(tmp_path))
    np.save(path, power_rows[:, :5])
    with pytest.raises(InputError, match=r"rows of 8 numbers; it holds an array of shape \(40, 5\)"):
        sets.load("power", str(tmp_path))
    path.write_bytes(b"no array")
    with pytest.raises(InputError, match="cannot be read as a"):
        sets.load("power", str(tmp_path))
    power_rows[3, 0] = np.nan
    np.save(path, power_rows)
    small(monkeypatch, "power", 6, tuple(map(len, cut(power_rows))))
    with pytest.raises(InputError, match="hold NaN or infinity"):
        sets.load("power", str(tmp_path))


def test_prepared_rows(tmp_path, monkeypatch):
    small(monkeypatch, "gas", 2, (3, 4, 5))
    prepared_files(tmp_path / "gas", 2)
    expected = [np.load(tmp_path / "gas" / f"{part}.npy") for part in ("train", "val", "test")]
    same(sets.load("gas", str(tmp_path)), *expected)
    (tmp_path / "gas" / "val.npy").unlink()
    sets.load.cache_clear()
    with pytest.raises(InputError, match=r"val\.npy is missing"):
        sets.load("gas", str(tmp_path))


def test_the_gaussian_against_its_formula():
    rng = np.random.default_rng(7)
    train = rng.normal(size=(500, 3)) @ rng.normal(size=(3, 3)) + 5
    test = train[:70] + 0.1
    covariance = np.cov(train.T, ddof=0)
    from scipy.stats import multivariate_normal

    expected = multivariate_normal(train.mean(axis=0), covariance).logpdf(test).mean()
    assert gaussian_log_likelihood(train, test) == pytest.approx(expected, rel=1e-10)
    with pytest.raises(InputError, match="depend on one another"):
        gaussian_log_likelihood(np.ones((10, 2)), test[:, :2])


REAL = os.environ.get("FFJORD_DATA")


@pytest.mark.slow
@pytest.mark.skipif(not REAL, reason="FFJORD_DATA does not name a directory of real data")
@pytest.mark.parametrize("name", sets.SETS)
def test_real_data_agree_with_maf(name):
    form, _ = next(sets.found_forms(name, REAL), (None, None))
    if form is None:
        pytest.skip(f"{name} is not in {REAL}")
    split = sets.load(name, REAL)  # counts rows and columns
    if not len(split.train):
        pytest.skip(f"{name} has no training rows in {REAL}")
    assert abs(gaussian_log_likelihood(split.train, split.test) - sets.SETS[name].gaussian) <= form.tolerance
