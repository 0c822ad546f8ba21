"""Reading a user's points."""

import numpy as np
import pytest

from ffjord.data.points import read_points
from ffjord.errors import InputError


def test_csv_with_and_without_header_and_npy_agree(tmp_path):
    (tmp_path / "a.csv").write_text("1,2\n3,4.5\n")
    (tmp_path / "b.csv").write_text("x,y\n1,2\n\n3,4.5\n")
    np.save(tmp_path / "c.npy", np.array([[1, 2], [3, 4.5]], np.float32))
    for name in ("a.csv", "b.csv", "c.npy"):
        assert read_points(tmp_path / name, columns=2).tolist() == [[1, 2], [3, 4.5]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no rows"),
        ("x,y\n", "no rows"),
        ("1,2\n3\n", "line 2: 1 columns"),
        ("1,2\n3,cat\n", "line 2"),
        ("1,2,3\n", "expected 2 column"),
        ("1,2\nnan,0\n", "row 2 holds NaN"),
        ("1,2\ninf,0\n", "row 2 holds NaN"),
    ],
)
def test_a_bad_csv_is_named(tmp_path, text, words):
    path = tmp_path / "points.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        read_points(path, columns=2)


def test_other_bad_files_are_named(tmp_path):
    (tmp_path / "latin.csv").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "short.npy").write_bytes(b"\x93NUMPY")
    np.save(tmp_path / "words.npy", np.array([["a", "b"]]))
    np.save(tmp_path / "objects.npy", np.array([[{}, None]], dtype=object), allow_pickle=True)
    (tmp_path / "points.txt").write_text("1,2")
    for name in ("latin.csv", "short.npy", "words.npy", "objects.npy", "points.txt", "missing.csv"):
        with pytest.raises(InputError, match=name):
            read_points(tmp_path / name, columns=2)
