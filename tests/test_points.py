"""A user's files of points: read block by block, written block by block."""

import numpy as np
import pytest

from ffjord.data import points
from ffjord.data.points import PointsFile, write_rows
from ffjord.errors import InputError


def read(path, columns: int = 2, **options) -> np.ndarray:
    file = PointsFile(path, columns=columns, **options)
    rows = np.concatenate([*file.blocks()])
    assert len(rows) == len(file)
    return rows


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of a few rows, so that small files have many."""
    monkeypatch.setattr(points, "_VALUES", 6)
    monkeypatch.setattr(points, "_CHARACTERS", 10)


@pytest.mark.parametrize(
    "text",
    [
        b"1,2\n3,4.5\n",
        b"1,2\n3,4.5",
        b"x,y\n1,2\n\n3,4.5\n",
        b"x,y\r\n1,2\r\n3,4.5\r\n",
        b"1,2\r3,4.5\r",
        b"\n  \n x , y\n1, 2\n   \n 3,4.5\n\n",
        b"\xef\xbb\xbf1,2\n3,4.5\n",
        b"\xef\xbb\xbfx,y\n1,2\n3,4.5\n",
        b"1,2\n3,45_0e-2\n",
        "größe,höhe\n1,2\n3,4.5\n".encode(),
    ],
)
@pytest.mark.parametrize("characters", [1, 2**19])
def test_csv_in_its_many_forms(tmp_path, text, characters, monkeypatch):
    monkeypatch.setattr(points, "_CHARACTERS", characters)
    (tmp_path / "x.csv").write_bytes(text)
    rows = read(tmp_path / "x.csv")
    assert rows.tolist() == [[1, 2], [3, 4.5]]
    assert rows.dtype == np.float32


@pytest.mark.parametrize("kind", ["<f4", ">f4", "<f8", ">f8", "<f2", "<i4", ">i8", "u1", "?", "longdouble"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.usefixtures("small_blocks")
def test_npy_of_every_type_and_order(tmp_path, kind, order):
    rows = (np.arange(22).reshape(11, 2) % 5).astype(kind)
    np.save(tmp_path / "x.npy", np.asarray(rows, order=order))
    np.testing.assert_array_equal(read(tmp_path / "x.npy"), rows.astype(np.float32))


def test_one_flat_row(tmp_path):
    np.save(tmp_path / "x.npy", np.array([1.0, 2.0]))
    assert read(tmp_path / "x.npy").tolist() == [[1, 2]]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("n", [1, 2, 3, 4, 100])
@pytest.mark.parametrize("name", ["x.csv", "x.npy"])
def test_what_is_written_is_read(tmp_path, n, name):
    rows = np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32)
    blocks = np.array_split(rows, 3)
    write_rows(tmp_path / name, iter(blocks), names=["a", "b", "c"], shape=rows.shape, dtype=np.float32)
    np.testing.assert_array_equal(read(tmp_path / name, columns=3), rows)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["x.csv", "x.npy"])
def test_a_file_that_could_not_be_finished_is_not_there(tmp_path, name):
    def blocks():
        yield np.zeros((2, 1))
        raise InputError("enough")

    with pytest.raises(InputError, match="enough"):
        write_rows(tmp_path / name, blocks(), names=["a"], shape=(4, 1), dtype=np.float32)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no rows"),
        ("x,y\n", "no rows"),
        ("1,2\n3\n", r"line 2: expected 2 column\(s\); got 1"),
        ("1,2\n3,4,5\n", "line 2: expected 2 column.*got 3"),
        ("1,2\n3,cat\n", "line 2: 'cat' is not a number"),
        ("1,2\n\n3,\n", "line 3: '' is not a number"),
        ("1,cat\n3,4\n", "line 1: 'cat' is not a number"),
        (",\n3,4\n", "line 1: '' is not a number"),
        ("x,y\nx,y\n1,2\n", "line 2: 'x' is not a number"),
        ("1,2,3\n", "line 1: expected 2 column"),
        ("1;2\n3;4\n", "line 2: expected 2 column"),
        ("1,2\nnan,0\n", "line 2 holds NaN"),
        ("1,2\ninf,0\n", "line 2 holds NaN"),
        ("1,2\n0,-1e39\n", "line 2 holds .* too large for float32"),
    ],
)
@pytest.mark.parametrize("characters", [1, 2**19])
def test_a_bad_line_is_named(tmp_path, text, words, characters, monkeypatch):
    monkeypatch.setattr(points, "_CHARACTERS", characters)
    path = tmp_path / "points.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        PointsFile(path, columns=2)


def test_a_bad_line_far_down_is_named(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text("x,y\n" + "1,2\n" * 150_000 + "3,dog\n")
    with pytest.raises(InputError, match="line 150002: 'dog'"):
        PointsFile(path, columns=2)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
def test_a_bad_row_is_named(tmp_path, bad):
    rows = np.zeros((20, 2))
    rows[10, 1] = bad
    np.save(tmp_path / "x.npy", rows)
    with pytest.raises(InputError, match="row 11 holds NaN, an infinity or a number too large for float32"):
        PointsFile(tmp_path / "x.npy", columns=2)
    if bad == 1e300:
        np.testing.assert_array_equal(read(tmp_path / "x.npy", dtype=np.float64), rows)


@pytest.mark.parametrize("shape", [(), (5,), (5, 3), (5, 2, 1), (0, 3)])
def test_a_bad_shape_is_named(tmp_path, shape):
    np.save(tmp_path / "x.npy", np.zeros(shape))
    with pytest.raises(InputError, match="expected 2 column") as caught:
        PointsFile(tmp_path / "x.npy", columns=2)
    assert str(shape) in str(caught.value)


def test_other_bad_files_are_named(tmp_path):
    (tmp_path / "latin.csv").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty.npy").write_bytes(b"")
    (tmp_path / "short.npy").write_bytes(b"\x93NUMPY")
    np.save(tmp_path / "rowless.npy", np.zeros((0, 2)))
    np.save(tmp_path / "cut.npy", np.zeros((100, 2)))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "cut.npy").read_bytes()[:-1])
    header = (tmp_path / "cut.npy").read_bytes()[:128]
    (tmp_path / "header.npy").write_bytes(header.replace(b"{", b" ") + bytes(1600))
    np.save(tmp_path / "words.npy", np.array([["a", "b"]]))
    np.save(tmp_path / "complex.npy", np.ones((3, 2), complex))
    np.save(tmp_path / "objects.npy", np.array([[{}, None]], dtype=object), allow_pickle=True)
    with (tmp_path / "archive.npy").open("wb") as file:
        np.savez(file, x=np.zeros((2, 2)))
    (tmp_path / "points.txt").write_text("1,2")
    (tmp_path / "folder.csv").mkdir()
    names = "latin.csv empty.npy short.npy rowless.npy cut.npy words.npy complex.npy objects.npy archive.npy points.txt"
    for name in [*names.split(), "header.npy", "folder.csv", "missing.csv", "x" * 300 + ".csv"]:
        with pytest.raises(InputError, match=name):
            PointsFile(tmp_path / name, columns=2)


@pytest.mark.parametrize("text", ["1,2\n", "1,2\n3,4\n5,6\n"])
def test_a_file_that_changes_between_check_and_reading_is_noticed(tmp_path, text):
    path = tmp_path / "x.csv"
    path.write_text("1,2\n3,4\n")
    file = PointsFile(path, columns=2)
    path.write_text(text)
    with pytest.raises(InputError, match="was changed"):
        list(file.blocks())


@pytest.mark.usefixtures("small_blocks")
def test_checking_tells_how_far_it_is(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((7, 2)))
    told = []
    PointsFile(tmp_path / "x.npy", columns=2, progress=lambda *now: told.append(now))
    assert told == [(3, None), (6, None), (7, None)]
