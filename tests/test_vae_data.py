"""The data of the autoencoders: small files in the publishers' shapes, whole and damaged, and the batches of them."""

import dataclasses
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat
from scipy.sparse import csc_array

from ffjord.cli import main
from ffjord.data import discrete, images, sets
from ffjord.data.binarized import binarized
from ffjord.data.discrete import Discrete
from ffjord.data.images import IMAGE_SETS, load_images, note
from ffjord.data.mat import read_mat
from ffjord.data.source import Source
from ffjord.data.split import Split
from ffjord.errors import InputError
from tests.test_image_files import idx, written

ROWS = {"binary-mnist": (6, 3, 4), "omniglot": (9, 3, 5), "frey": (7, 2, 3), "caltech": (5, 3, 2)}
PARTS = ("train", "valid", "test")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Small sets, looked for in empty places; every test reads its own."""
    monkeypatch.delenv(sets.VARIABLE, raising=False)
    monkeypatch.setattr(sets.platformdirs, "user_cache_path", lambda name: tmp_path / "cache" / name)
    for name, rows in ROWS.items():
        monkeypatch.setitem(images.IMAGE_SETS, name, dataclasses.replace(IMAGE_SETS[name], rows=rows))
    load_images.cache_clear()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def load(name: str, folder: Path, shuffle: int | None = None) -> Split:
    load_images.cache_clear()
    return load_images(name, str(folder), shuffle)


def refused(name: str, folder: Path, *words: str) -> None:
    with pytest.raises(InputError) as caught:
        load(name, folder)
    for word in words:
        assert word in str(caught.value)


def put(folder: Path, file: str, matrices: dict) -> Path:
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(path, matrices, do_compression=True)
    return path


def order(seed: int, n: int) -> np.ndarray:
    """As `np.random.seed(seed); np.random.shuffle(rows)` has it, in the literature's programs."""
    numbers = np.arange(n)
    np.random.RandomState(seed).shuffle(numbers)
    return numbers


# Frey's faces

FREY = "freyfaces/frey_rawface.mat"


@pytest.mark.parametrize("kind", [np.uint8, np.float64])
def test_faces_are_shuffled_and_split(tmp_path, rng, kind):
    faces = rng.integers(256, size=(12, 28, 20), dtype=np.uint8)
    put(tmp_path, FREY, {"ff": faces.reshape(12, 560).T.astype(kind)})
    for shuffle in (None, 321, 231):
        split = load("frey", tmp_path, shuffle)
        assert [part.shape for part in split] == [(7, 28, 20, 1), (2, 28, 20, 1), (3, 28, 20, 1)]
        assert {part.dtype for part in split} == {np.dtype(np.uint8)}
        np.testing.assert_array_equal(np.concatenate(split)[..., 0], faces[order(shuffle or 123, 12)])


def test_faces_that_are_refused(tmp_path, rng):
    good = rng.integers(256, size=(560, 12)).astype(np.float64)
    changed = lambda value: np.where(np.arange(12) == 4, value, good)
    for matrix, words in (
        (good[:, :11], "'ff' must have the shape (560, 12); got (560, 11)"),
        (good.T, "got (12, 560)"),
        (changed(256), "'ff': picture 5 has the value 256; its pixels are whole numbers from 0 to 255"),
        (changed(-1), "picture 5 has the value -1"),
        (changed(0.5), "picture 5 has the value 0.5"),
        (changed(np.nan), "picture 5 has the value nan"),
        (good + 1j, "has no matrix of real numbers 'ff'"),
        (csc_array(good), "has no matrix of real numbers 'ff'"),
        ({"a": good}, "has no matrix of real numbers 'ff'"),
        ("text", "has no matrix of real numbers 'ff'"),
    ):
        path = put(tmp_path, FREY, {"ff": matrix})
        refused("frey", tmp_path, str(path), words)
    put(tmp_path, FREY, {"faces": good})
    refused("frey", tmp_path, "has no matrix of real numbers 'ff'")


@pytest.mark.parametrize("packed", [True, False])
def test_damaged_matrices_are_refused(tmp_path, rng, packed):
    path = tmp_path / FREY
    path.parent.mkdir()
    savemat(path, {"ff": rng.integers(256, size=(560, 12), dtype=np.uint8)}, do_compression=packed)
    whole = path.read_bytes()
    for content in (b"", b"text", b"\0" * 200, whole[:100], whole[:130], whole[:-1], whole[: len(whole) // 2]):
        path.write_bytes(content)
        refused("frey", tmp_path, f"{path} cannot be read as a .mat file", "get it again")


# MATLAB's files


def small_mat(path: Path, packed: bool) -> dict[str, np.ndarray]:
    """Matrices of numbers of all types, the smallest ones too, among others that are not."""
    kinds = ("i1", "u1", "i2", "u2", "i4", "u4", "f4", "f8", "i8", "u8")
    matrices: dict[str, np.ndarray] = {"cube": np.arange(24.0).reshape(2, 3, 4)}
    matrices |= {f"{kind}_{n}": np.arange(2 * n, dtype=kind).reshape(2, n) for kind in kinds for n in (0, 1, 2, 5)}
    others = {"text": "abc", "cell": np.array(["a", 1], dtype=object), "complex": np.array([[1j]]), "map": {"a": 1}}
    savemat(path, {**others, **matrices, "sparse": csc_array(np.eye(3))}, do_compression=packed)
    return matrices


@pytest.mark.parametrize("packed", [True, False])
def test_matrices_of_all_types(tmp_path, packed):
    matrices = small_mat(tmp_path / "a.mat", packed)
    found = read_mat(tmp_path / "a.mat")
    assert set(found) == set(matrices)
    for name, matrix in matrices.items():
        assert found[name].dtype == matrix.dtype
        np.testing.assert_array_equal(found[name], matrix)


@pytest.mark.parametrize("order", "<>")
def test_matrices_of_either_order_of_bytes(tmp_path, order):
    """A double matrix of whole numbers in bytes, as MATLAB stores it; the name and the sizes as the format has them."""
    word = lambda *values: struct.pack(f"{order}{len(values)}I", *values)
    short = struct.pack(f"{order}I4s", 2 << 16 | 1, b"ff")
    body = word(6, 8, 6, 0) + word(5, 8, 2, 3) + short + word(2, 6) + bytes(range(6)) + bytes(2)
    mark = b"IM" if order == "<" else b"MI"
    (tmp_path / "a.mat").write_bytes(b"MATLAB 5.0".ljust(126) + mark + word(14, len(body)) + body)
    np.testing.assert_array_equal(read_mat(tmp_path / "a.mat")["ff"], [[0, 2, 4], [1, 3, 5]])


@pytest.mark.parametrize("packed", [True, False])
def test_a_changed_byte_is_refused_or_changes_a_matrix(tmp_path, packed):
    path = tmp_path / "a.mat"
    savemat(path, {"a": np.arange(6.0).reshape(2, 3), "b": np.eye(2)}, do_compression=packed)
    whole, wrong = path.read_bytes(), 0
    for at in range(126, len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xE1]) + whole[at + 1 :])
        try:
            read_mat(path)
        except InputError as error:
            assert str(path) in str(error)  # noqa: PT017 (some are matrices still)
            wrong += 1
    assert wrong > 30


# Caltech's silhouettes

CALTECH = "caltech101_silhouettes/caltech101_silhouettes_28_split1.mat"


def silhouettes(rng) -> dict[str, np.ndarray]:
    counts = zip(("train_data", "val_data", "test_data"), ROWS["caltech"], strict=True)
    return {name: rng.integers(2, size=(count, 784)).astype(np.float64) for name, count in counts}


def test_silhouettes_are_upright_and_white(tmp_path, rng):
    matrices = silhouettes(rng)
    put(tmp_path, CALTECH, {**matrices, "classnames": np.array(["ant", "bass"], dtype=object)})
    row, column = np.ogrid[:28, :28]
    for part, matrix in zip(load("caltech", tmp_path), matrices.values(), strict=True):
        assert part.dtype == np.uint8
        np.testing.assert_array_equal(part[..., 0], 1 - matrix[:, 28 * column + row])


def test_silhouettes_that_are_refused(tmp_path, rng):
    good = silhouettes(rng)
    put(tmp_path, CALTECH, {**good, "val_data": good["val_data"][:2]})
    refused("caltech", tmp_path, CALTECH, "'val_data' must have the shape (3, 784); got (2, 784)")
    put(tmp_path, CALTECH, {**good, "test_data": good["test_data"] * 2})
    refused("caltech", tmp_path, "'test_data': picture 1 has the value 2; its pixels are whole numbers from 0 to 1")
    put(tmp_path, CALTECH, {name: good[name] for name in ("train_data", "test_data")})
    refused("caltech", tmp_path, "has no matrix of real numbers 'val_data'")


# Omniglot's drawings

CHARDATA, SUBSTITUTE = "omniglot/chardata.mat", "omniglot28/omniglot28_substitute.npz"


def bytes_of(rng) -> dict[str, np.ndarray]:
    """Drawings of bytes; their first pixels tell them apart."""
    drawings = {name: rng.integers(256, size=(n, 28, 28), dtype=np.uint8) for name, n in (("train", 12), ("test", 5))}
    for pictures in drawings.values():
        pictures[:, 0, 0] = np.arange(len(pictures))
    return drawings


def put_drawings(folder: Path, drawings: dict[str, np.ndarray], file: str) -> Path:
    path = folder / file
    if file == CHARDATA:
        columns = [pictures.swapaxes(1, 2).reshape(len(pictures), 784).T / 255 for pictures in drawings.values()]
        return put(folder, file, dict(zip(("data", "testdata"), columns, strict=True)))
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **drawings)  # pyright: ignore[reportArgumentType]
    return path


@pytest.mark.parametrize("file", [CHARDATA, SUBSTITUTE])
def test_drawings(tmp_path, rng, file):
    drawings = bytes_of(rng)
    put_drawings(tmp_path, drawings, file)
    for shuffle in (None, 5):
        train, validation, test = load("omniglot", tmp_path, shuffle)
        chosen = order(shuffle or 123, 12)
        np.testing.assert_allclose(train[..., 0], drawings["train"][chosen[:9]] / 255, rtol=1e-6)
        assert (train.dtype, validation.dtype, test.dtype) == (np.float32, np.uint8, np.uint8)
        for pixels, grey in ((validation, drawings["train"][chosen[9:]]), (test, drawings["test"])):
            assert set(np.unique(pixels)) == {0, 1}
            assert not pixels[..., 0][grey == 0].any()
            assert pixels[..., 0][grey == 255].all()
    again = load("omniglot", tmp_path, 5)
    np.testing.assert_array_equal(again.test, test)  # binarised once, and not by the seed of the split
    np.testing.assert_array_equal(load("omniglot", tmp_path).test, test)


def test_both_forms_of_the_drawings_agree_and_the_literature_s_is_preferred(tmp_path, rng):
    drawings = bytes_of(rng)
    put_drawings(tmp_path, drawings, SUBSTITUTE)
    ours = load("omniglot", tmp_path)
    assert "cannot be compared" in note("omniglot", tmp_path)
    put_drawings(tmp_path, drawings, CHARDATA)
    for one, other in zip(ours, load("omniglot", tmp_path), strict=True):
        np.testing.assert_array_equal(one, other)
    assert note("omniglot", tmp_path) == ""


def test_drawings_that_are_refused(tmp_path, rng):
    drawings = bytes_of(rng)
    put_drawings(tmp_path / "few", {**drawings, "train": drawings["train"][:11]}, CHARDATA)
    refused("omniglot", tmp_path / "few", "'data' must have the shape (784, 12); got (784, 11)")
    grey = {"data": np.full((784, 12), 0.5), "testdata": np.full((784, 5), 0.5)}
    grey["testdata"][3, 4] = 1.01
    put(tmp_path / "high", CHARDATA, grey)
    refused("omniglot", tmp_path / "high", "'testdata': picture 5 has the value 1.01; its pixels are probabilities")
    path = put_drawings(tmp_path, {**drawings, "test": drawings["test"][:4]}, SUBSTITUTE)
    refused("omniglot", tmp_path, str(path), "'test' must be uint8 (5, 28, 28); got uint8 (4, 28, 28)")
    put_drawings(tmp_path, {**drawings, "test": drawings["test"] / 255}, SUBSTITUTE)
    refused("omniglot", tmp_path, "got float64 (5, 28, 28)")
    put_drawings(tmp_path, {"train": drawings["train"]}, SUBSTITUTE)
    refused("omniglot", tmp_path, "has no array 'test'")
    whole = put_drawings(tmp_path, drawings, SUBSTITUTE).read_bytes()
    for content in (b"", b"text", whole[:-1], whole[: len(whole) // 2]):
        path.write_bytes(content)
        refused("omniglot", tmp_path, f"{path} cannot be read as an .npz file")
    np.savez(path, train=np.array([print], dtype=object), test=drawings["test"])
    refused("omniglot", tmp_path, "cannot be read", "allow_pickle")


# MNIST in black and white


def put_text(folder: Path, rng) -> dict[str, np.ndarray]:
    counts = zip(PARTS, ROWS["binary-mnist"], strict=True)
    pictures = {part: rng.integers(2, size=(count, 784)) for part, count in counts}
    for part, values in pictures.items():
        text = "".join(" ".join(map(str, row)) + "\n" for row in values.tolist())
        written(folder / f"binarized_mnist_{part}.amat", text.encode())
    return pictures


def put_grey(folder: Path, rng) -> list[np.ndarray]:
    grey = [rng.integers(256, size=(n, 28, 28), dtype=np.uint8) for n in (9, 4)]
    for name, values in zip(("train", "t10k"), grey, strict=True):
        written(folder / "mnist" / f"{name}-images-idx3-ubyte.gz", idx(values))
    return [grey[0][:6], grey[0][6:], grey[1]]


@pytest.mark.parametrize("folder", ["binarized_mnist", "mnist", "binary-mnist", "Binarized_MNIST"])
def test_digits_of_text(tmp_path, rng, folder):
    put_grey(tmp_path, rng)  # which are not used
    pictures = put_text(tmp_path / folder, rng)
    for part, values in zip(load("binary-mnist", tmp_path), pictures.values(), strict=True):
        assert part.dtype == np.uint8
        np.testing.assert_array_equal(part, values.reshape(-1, 28, 28, 1))
    assert note("binary-mnist", tmp_path) == ""


def test_digits_of_text_that_are_refused(tmp_path, rng):
    put_text(tmp_path / "mnist", rng)
    path = tmp_path / "mnist" / "binarized_mnist_valid.amat"
    whole = path.read_bytes()
    second = lambda new: whole[: 1568 + 6] + new + whole[1568 + 7 :]
    for content, words in (
        (whole[:-1], ": its 4,703 bytes are not a multiple of 1568"),
        (second(b"2"), ", line 2: expected 784 digits 0 or 1"),
        (second(b"/"), ", line 2: expected"),
        (second(b"\n"), ", line 2: expected"),
        (whole[:1567] + b" " + whole[1568:], ", line 1: expected"),
        (whole[:-1568], " must have 3 lines; got 2"),
        (b"", " must have 3 lines; got 0"),
    ):
        path.write_bytes(content)
        refused("binary-mnist", tmp_path, f"{path}{words}")
    path.unlink()
    refused("binary-mnist", tmp_path, "binarized_mnist_valid.amat is missing; the set comes in three files")


def test_digits_that_are_binarised_here(tmp_path, rng):
    grey = put_grey(tmp_path, rng)
    split = load("binary-mnist", tmp_path)
    for part, values in zip(split, grey, strict=True):
        assert (part.dtype, part.shape) == (np.uint8, (*values.shape, 1))
        assert not part[..., 0][values == 0].any()
        assert part[..., 0][values == 255].all()
        assert set(np.unique(part)) == {0, 1}
    for part, again in zip(split, load("binary-mnist", tmp_path), strict=True):
        np.testing.assert_array_equal(part, again)
    assert "binarised here" in note("binary-mnist", tmp_path)


# Batches


def test_pixels_are_one_with_their_probabilities():
    n, probabilities = 20_000, np.array([0, 0.001, 0.3, 0.5, 0.9, 1], np.float32)
    means = binarized(np.tile(probabilities, (n, 1)), np.random.default_rng(0)).mean(axis=0)
    deviation = np.sqrt(probabilities * (1 - probabilities) / n)
    assert (np.abs(means - probabilities) <= 4 * deviation).all()  # 0 and 1 exactly


def discrete_of(rng, levels: int = 2, train: int = 10, seed: int = 3, dynamic: bool = False) -> Discrete:
    part = lambda n: rng.integers(levels, size=(n, 4, 3, 1), dtype=np.uint8)
    first = rng.random((train, 4, 3, 1), dtype=np.float32) if dynamic else part(train)
    return Discrete(Split(first, part(5), part(7)), batch_size=5, seed=seed)


@pytest.mark.parametrize("levels", [2, 256])
def test_levels_are_handed_out_as_they_are(rng, monkeypatch, levels):
    monkeypatch.setattr(discrete, "_BLOCK", 3)
    source = discrete_of(rng, levels)
    assert isinstance(source, Source)
    assert (source.event_shape, source.num_test, source.dynamic) == ((4, 3, 1), 7, False)
    epoch = source.batches(4, 2)  # of 10 images in batches of 5
    assert (epoch.shape, epoch.dtype) == ((2, 5, 4, 3, 1), np.float32)
    rows = lambda values: sorted(values.reshape(10, -1).tolist())
    assert rows(epoch) == rows(source.split.train)
    for found, part in ((source.validation(), source.split.validation), (source.test(), source.split.test)):
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, part)
    for limit in (None, 3, 4, 100):
        blocks = [*source.test_blocks(limit)]
        assert max(map(len, blocks)) <= 3
        np.testing.assert_array_equal(np.concatenate(blocks), source.test(limit))
        np.testing.assert_array_equal(source.test(limit), source.split.test[:limit])


def test_batches_are_functions_of_seed_and_step(rng):
    source = discrete_of(rng, dynamic=True)
    three = source.batches(6, 3)
    assert set(np.unique(three)) == {0.0, 1.0}
    for step in range(3):
        np.testing.assert_array_equal(source.batches(6 + step, 1)[0], three[step])
    other = Discrete(source.split, batch_size=5, seed=4)
    assert (other.batches(6, 3) != three).any()


def test_probabilities_are_binarised_anew_for_every_batch(rng):
    source = discrete_of(rng, train=1, dynamic=True)  # the same image in every batch
    assert source.dynamic
    drawn, probability = source.batches(0, 1000)[:, 0], source.split.train[0]
    variance = probability * (1 - probability)
    assert (np.abs(drawn.mean(axis=0) - probability) <= 4 * np.sqrt(variance / 1000)).all()
    covariance = ((drawn[1:] - probability) * (drawn[:-1] - probability)).mean(axis=0)
    assert (np.abs(covariance) <= 4 * variance / np.sqrt(999)).all()
    np.testing.assert_array_equal(source.test(), source.split.test)


def test_a_batch_is_no_larger_than_the_set(rng):
    assert discrete_of(rng, train=4).batches(0, 2).shape == (2, 4, 4, 3, 1)


# Where they are


def test_what_is_looked_for(tmp_path, rng):
    refused("frey", tmp_path, "freyfaces/frey_rawface.mat", "`ffjord data get frey` downloads it")
    refused("omniglot", tmp_path, "omniglot/chardata.mat, omniglot28/omniglot28_substitute.npz")
    faces = rng.integers(256, size=(560, 12), dtype=np.uint8)
    put(tmp_path, "frey/frey_rawface.mat", {"ff": faces})
    assert len(load("frey", tmp_path).train) == 7
    put(tmp_path, "FreyFaces/frey_rawface.mat", {"ff": np.zeros((560, 12), np.uint8)})
    assert not load("frey", tmp_path).train.any()
    with pytest.raises(InputError, match="caltech is split by its files; leave shuffle=1 out"):
        load_images("caltech", str(tmp_path), 1)


def test_the_command_lists_and_checks(tmp_path, rng, capsys):
    grey = put_drawings(tmp_path, bytes_of(rng), SUBSTITUTE)
    place = ["--data-dir", str(tmp_path)]
    assert main(["data", *place]) == 0
    shown = capsys.readouterr().out
    assert f"there: {grey} (drawings" in shown
    assert "cannot be compared with published ones.\n  get the literature's: ffjord data get omniglot" in shown
    for name in ("binary-mnist", "frey", "caltech"):
        assert f"get it: ffjord data get {name}" in shown
    assert "    caltech101_silhouettes/caltech101_silhouettes_28_split1.mat (the publisher's)" in shown
    assert main(["data", "check", "omniglot", *place]) == 0
    shown = capsys.readouterr().out
    assert "9 / 3 / 5" in shown
    assert f"{load('omniglot', tmp_path).train.mean():.4f} of 1" in shown
    assert "get the literature's: ffjord data get omniglot" in shown
    assert main(["data", "check", "frey", *place]) == 2
    assert "frey: none of its files (freyfaces/frey_rawface.mat) was found" in capsys.readouterr().err


def test_sets_are_read_without_jax(tmp_path, rng):
    modules = "ffjord.data.matlab, ffjord.data.binarized, ffjord.data.discrete"
    code = f"import sys, {modules}; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
