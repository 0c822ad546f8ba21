"""Pictures in the files of their publishers: small files in their formats, whole and damaged."""

import dataclasses
import gzip
import io
import os
import pickle
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from ffjord.data import images, sets
from ffjord.data.idx import read_idx
from ffjord.data.images import IMAGE_SETS, load_images
from ffjord.data.tables import digits
from ffjord.errors import InputError
from tests.test_pickles import Evil

ROWS = {"mnist": (7, 2, 4), "cifar10": (7, 3, 4)}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Small sets, looked for in empty places; every test reads its own."""
    monkeypatch.delenv(sets.VARIABLE, raising=False)
    monkeypatch.setattr(sets.platformdirs, "user_cache_path", lambda name: tmp_path / "cache" / name)
    for name, rows in ROWS.items():
        monkeypatch.setitem(images.IMAGE_SETS, name, dataclasses.replace(IMAGE_SETS[name], rows=rows))
    load_images.cache_clear()


def load(name: str, folder: Path):
    load_images.cache_clear()
    return load_images(name, str(folder))


def refused(name: str, folder: Path, *words: str) -> None:
    with pytest.raises(InputError) as caught:
        load(name, folder)
    for word in words:
        assert word in str(caught.value)


# The idx format


def idx(values: np.ndarray) -> bytes:
    return bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def written(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("shape", [(5,), (300, 2), (2, 3, 4), (1, 2, 1, 3)])
def test_idx_files_of_any_rank(tmp_path, suffix, shape):
    values = np.random.default_rng(0).integers(256, size=shape, dtype=np.uint8)
    found = read_idx(written(tmp_path / f"file{suffix}", idx(values)))
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, values)


GOOD = idx(np.arange(24, dtype=np.uint8).reshape(2, 3, 4))


@pytest.mark.parametrize(
    ("content", "rank", "words"),
    [
        (b"\x89PNG" + GOOD[4:], None, "must be 0x00000803 for images; got 0x89504E47"),
        (GOOD, 1, "must be 0x00000801; got 0x00000803"),
        (b"\0\0\x08\x01" + GOOD[4:], 3, "must be 0x00000803; got 0x00000801"),
        (b"\0\0\x08\0" + GOOD[4:], None, "got 0x00000800"),
        (b"\0\0\x08\xff" + bytes(2000), None, "got 0x000008FF"),
        (b"\0\0\x0a\x03" + GOOD[4:], None, "got 0x00000A03"),
        (b"\0\0\x0c\x03" + GOOD[4:], None, "elements of type int32 (0x0C); only uint8 (0x08) is read"),
        (b"", None, "a magic number has 4 bytes; got 0"),
        (GOOD[:9], None, "the header has 16 bytes; got 9"),
        (GOOD[:-1], None, "is cut off: sizes of (2, 3, 4) need 40 bytes; got 39"),
        (GOOD + b"ab", None, "has bytes after its end: sizes of (2, 3, 4) need 40 bytes; got 42"),
        (GOOD[:4] + b"\xff" * 12, None, f"need {16 + (2**32 - 1) ** 3:,} bytes; got 16"),
        (GOOD[:4] + bytes(4) + b"\xff" * 8, None, "holds no elements: its sizes are (0, 4294967295, 4294967295)"),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx_files_that_are_refused(tmp_path, suffix, content, rank, words):
    path = written(tmp_path / f"file{suffix}", content)
    with pytest.raises(InputError) as caught:
        read_idx(path, rank)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_packed_idx_files_that_are_damaged(tmp_path):
    path, packed = tmp_path / "file.gz", gzip.compress(GOOD)
    middle, checksum = len(packed) // 2, len(packed) - 8
    flipped = lambda i: packed[:i] + bytes([packed[i] ^ 1]) + packed[i + 1 :]
    for content in (packed[:-1], packed[:middle], flipped(0), flipped(middle), flipped(checksum), GOOD):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"file\.gz cannot be read: it is damaged"):
            read_idx(path)


# MNIST


def put_mnist(folder: Path, suffix: str = ".gz", train: int = 9, test: int = 4, size=(28, 28)) -> tuple:
    rng = np.random.default_rng(0)
    parts = [rng.integers(256, size=(count, *size), dtype=np.uint8) for count in (train, test)]
    for name, values in zip(("train", "t10k"), parts, strict=True):
        written(folder / "mnist" / f"{name}-images-idx3-ubyte{suffix}", idx(values))
    return tuple(parts)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_mnist(tmp_path, suffix):
    train, test = put_mnist(tmp_path, suffix)
    split = load("mnist", tmp_path)
    assert [part.shape for part in split] == [(7, 28, 28, 1), (2, 28, 28, 1), (4, 28, 28, 1)]
    np.testing.assert_array_equal(split.train[..., 0], train[:7])
    np.testing.assert_array_equal(split.validation[..., 0], train[7:])
    np.testing.assert_array_equal(split.test[..., 0], test)
    assert load_images("mnist", str(tmp_path)) is split  # kept, not read again


def test_mnist_files_that_are_refused(tmp_path):
    put_mnist(tmp_path / "few", train=8)
    refused("mnist", tmp_path / "few", "train-images-idx3-ubyte.gz", "must be (9, 28, 28); got (8, 28, 28)")
    put_mnist(tmp_path / "test", test=5)
    refused("mnist", tmp_path / "test", "t10k-images-idx3-ubyte.gz", "must be (4, 28, 28); got (5, 28, 28)")
    put_mnist(tmp_path / "large", size=(32, 32))
    refused("mnist", tmp_path / "large", "must be (9, 28, 28); got (9, 32, 32)")
    written(tmp_path / "few" / "mnist" / "train-images-idx3-ubyte.gz", idx(np.zeros(9, np.uint8)))
    refused("mnist", tmp_path / "few", "must be 0x00000803; got 0x00000801")
    put_mnist(tmp_path / "alone")
    (tmp_path / "alone" / "mnist" / "t10k-images-idx3-ubyte.gz").unlink()
    refused("mnist", tmp_path / "alone", "neither t10k-images-idx3-ubyte.gz nor t10k-images-idx3-ubyte", "needs both")


# CIFAR-10

BATCHES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]


@pytest.fixture
def records() -> dict[str, np.ndarray]:
    """A label and 3,072 values a row; two rows a batch for training, four for testing."""
    rng = np.random.default_rng(0)
    batches = {name: rng.integers(256, size=(4 if "test" in name else 2, 3073), dtype=np.uint8) for name in BATCHES}
    for rows in batches.values():
        rows[:, 0] %= 10
    return batches


def python2(values: np.ndarray, labels: list[int]) -> bytes:
    """The batch as Python 2 and its NumPy pickled it, opcode by opcode."""
    n, raw = len(values), values.tobytes()
    return (
        b"\x80\x02}q\x01(U\x0bbatch_labelq\x02U\x15training batch 1 of 5q\x03U\x06labelsq\x04]q\x05("
        + b"".join(b"K" + bytes([label]) for label in labels)
        + b"eU\x04dataq\x06cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85U\x01b\x87Rq\t("
        + b"K\x01K"
        + bytes([n])
        + b"M\x00\x0c\x86cnumpy\ndtype\nq\nU\x02u1K\x00K\x01\x87Rq\x0b(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xff"
        + b"K\x00tb\x89T"
        + struct.pack("<i", len(raw))
        + raw
        + b"tbU\tfilenamesq\x0c]q\r("
        + b"U\x05a.png" * n
        + b"eu."
    )


def files(records: dict[str, np.ndarray], version: str) -> dict[str, bytes]:
    if version == "bin":
        return {f"{name}.bin": rows.tobytes() for name, rows in records.items()}
    return {name: python2(rows[:, 1:], rows[:, 0].tolist()) for name, rows in records.items()}


def put_cifar(folder: Path, contents: dict[str, bytes], version: str, form: str) -> Path:
    """Where the files are: in an archive, in their folder, or in the set's folder."""
    home = folder / "cifar10"
    home.mkdir(parents=True)
    inner = f"cifar-10-batches-{version}"
    if form == "archive":
        path = home / f"cifar-10-{'binary' if version == 'bin' else 'python'}.tar.gz"
        with tarfile.open(path, "w:gz", compresslevel=0) as archive:
            for name in [*contents][::-1]:  # the publisher's have another order too
                info = tarfile.TarInfo(f"{inner}/{name}")
                info.size = len(contents[name])
                archive.addfile(info, io.BytesIO(contents[name]))
        return path
    for name, content in contents.items():
        written(home / (inner if form == "folder" else "") / name, content)
    return home / inner if form == "folder" else home / next(iter(contents))


def expected(records: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Every value from its place in the record: 1 + 1024 channel + 32 row + column."""
    row, column, channel = np.ogrid[:32, :32, :3]
    pictures = np.concatenate([rows[:, 1 + 1024 * channel + 32 * row + column] for rows in records.values()])
    return [pictures[:7], pictures[7:10], pictures[10:]]


@pytest.mark.parametrize("version", ["bin", "py"])
@pytest.mark.parametrize("form", ["archive", "folder", "files"])
def test_cifar10(tmp_path, records, version, form):
    put_cifar(tmp_path, files(records, version), version, form)
    split = load("cifar10", tmp_path)
    for part, pictures in zip(split, expected(records), strict=True):
        assert part.dtype == np.uint8
        np.testing.assert_array_equal(part, pictures)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("order", ["C", "F"])
def test_cifar10_pickled_anew(tmp_path, records, protocol, order):
    again = lambda rows: {"labels": rows[:, 0].tolist(), "data": np.array(rows[:, 1:], order=order)}
    contents = {name: pickle.dumps(again(rows), protocol=protocol) for name, rows in records.items()}
    put_cifar(tmp_path, contents, "py", "folder")
    for part, pictures in zip(load("cifar10", tmp_path), expected(records), strict=True):
        np.testing.assert_array_equal(part, pictures)


@pytest.mark.parametrize("form", ["archive", "folder", "files"])
def test_cifar10_batches_that_are_refused(tmp_path, records, form):
    contents = files(records, "bin")
    name, whole = "data_batch_3.bin", contents["data_batch_3.bin"]
    wrong_label = whole[:3073] + bytes([10]) + whole[3074:]
    for i, (content, words) in enumerate(
        (
            (whole[:-1], "its 6,145 bytes are not a multiple of 3073"),
            (wrong_label, "picture 2 has the label 10; they go from 0 to 9"),
            (whole[:3073], "must have 2 pictures; got 1"),
            (b"", "must have 2 pictures; got 0"),
        )
    ):
        put_cifar(tmp_path / str(i), {**contents, name: content}, "bin", form)
        refused("cifar10", tmp_path / str(i), name, words)
    del contents[name], contents["test_batch.bin"]
    path = put_cifar(tmp_path / "missing", contents, "bin", form)
    refused("cifar10", tmp_path / "missing", f"{path}: data_batch_3.bin, test_batch.bin is missing")


@pytest.mark.parametrize("form", ["archive", "folder", "files"])
def test_cifar10_pickles_that_are_refused(tmp_path, records, form):
    contents = files(records, "py")
    values, labels = records["data_batch_3"][:, 1:], [3, 4]
    for i, (batch, words) in enumerate(
        (
            ({"data": values.astype(np.int16), "labels": labels}, "uint8 (n, 3072); got int16 (2, 3072)"),
            ({"data": values[:, :-1], "labels": labels}, "got uint8 (2, 3071)"),
            ({"labels": labels}, "got NoneType"),
            ({"data": values}, "'labels' must be a list"),
            ({"data": values, "labels": ["3", "4"]}, "'labels' must be a list"),
            ({"data": values, "labels": [3]}, "has 2 pictures, but 1 labels"),
            ({"data": values, "labels": [3, -1]}, "picture 2 has the label -1"),
            ({"data": values[:1], "labels": [3]}, "must have 2 pictures; got 1"),
            ([values], "it holds list, not a dict"),
        )
    ):
        put_cifar(tmp_path / str(i), {**contents, "data_batch_3": pickle.dumps(batch)}, "py", form)
        refused("cifar10", tmp_path / str(i), "data_batch_3", words)


@pytest.mark.parametrize("form", ["archive", "folder", "files"])
@pytest.mark.parametrize("hidden", [False, True])
def test_a_pickle_that_calls_is_refused_and_nothing_is_called(tmp_path, records, form, hidden):
    made, evil = tmp_path / "made", Evil(os.system, f"touch {tmp_path / 'made'}")
    contents = files(records, "py")
    contents["data_batch_2"] = pickle.dumps({"data": [evil]} if hidden else evil, protocol=2)
    put_cifar(tmp_path, contents, "py", form)
    refused("cifar10", tmp_path, "data_batch_2", "wants to call posix.system", "nothing of it was executed")
    assert not made.exists()


@pytest.mark.parametrize("version", ["bin", "py"])
def test_damaged_archives_are_refused(tmp_path, records, version):
    path = put_cifar(tmp_path, files(records, version), version, "archive")
    whole = path.read_bytes()
    pixels = whole.index(records["data_batch_4"][0, 1:].tobytes())  # it is not compressed
    flipped = whole[:pixels] + bytes([whole[pixels] ^ 1]) + whole[pixels + 1 :]
    plain = gzip.decompress(whole)
    cut = gzip.compress(plain[: plain.index(records["data_batch_4"][0, 1:].tobytes()) + 9])
    for content in (whole[:-4], whole[: len(whole) // 2], flipped, cut, b"", b"text", gzip.compress(b"text" * 500)):
        path.write_bytes(content)
        refused("cifar10", tmp_path, str(path), "is damaged")


# Where they are


def test_digits_are_those_of_the_table():
    split, table = load_images("digits"), digits()
    assert [part.shape for part in split] == [(1259, 8, 8, 1), (179, 8, 8, 1), (359, 8, 8, 1)]
    assert tuple(map(len, split)) == IMAGE_SETS["digits"].rows
    assert {part.dtype for part in split} == {np.dtype(np.uint8)}
    assert (np.concatenate(split).min(), np.concatenate(split).max()) == (0, IMAGE_SETS["digits"].levels - 1)
    train, validation, test = (part.reshape(-1, 64).astype(float) for part in split)
    offset = train[0] - table.train[0] / table.jitter  # the table's columns are the same numbers, standardised
    np.testing.assert_allclose(table.train / table.jitter + offset, train, atol=1e-4)
    for part, rows in ((validation, table.validation), (test, table.test)):  # and spread over the unit above
        spread = rows / table.jitter + offset - part
        assert -1e-4 < spread.min() < 0.01
        assert 0.99 < spread.max() < 1 + 1e-4


def test_places(tmp_path, monkeypatch, records):
    refused("cifar10", tmp_path / "a", "cifar10/cifar-10-binary.tar.gz", f"{tmp_path / 'a'} (--data-dir)", "the cache")
    refused("mnist", tmp_path / "a", "`ffjord data get mnist` downloads it")
    put_cifar(tmp_path / "variable", files(records, "bin"), "bin", "folder")
    (tmp_path / "variable" / "cifar10").rename(tmp_path / "variable" / "CIFAR10")
    monkeypatch.setenv(sets.VARIABLE, str(tmp_path / "variable"))
    assert len(load("cifar10", tmp_path / "a").train) == 7
    with pytest.raises(InputError, match="no set of pictures 'cifar'; there are digits, mnist, cifar10"):
        load_images("cifar")


def test_pictures_are_read_without_jax():
    code = (
        "import sys; from ffjord.data.images import load_images; load_images('digits'); assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
