"""A user's table files: what is read from them, and what is said of those that cannot be used."""

import numpy as np
import pytest

from ffjord import memory
from ffjord.data.points import write_rows
from ffjord.errors import InputError
from ffjord.table import open_table, text
from ffjord.table.choose import choose


def written(tmp_path, content: str | bytes, name: str = "t.csv"):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def chosen(tmp_path, content: str | bytes, name: str = "t.csv", **options):
    return choose(open_table(written(tmp_path, content, name)), **options)


def refused(tmp_path, content: str | bytes, words: str, name: str = "t.csv", **options) -> None:
    """Checks that a table is refused by a message with the file's name and these words."""
    with pytest.raises(InputError, match=words) as caught:
        chosen(tmp_path, content, name, **options)
    assert str(tmp_path / name) in str(caught.value)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", " ", "|", ", ", "  ", " ; "])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("names", [("a", "b", "c"), None])
def test_delimiter_and_header_are_found(tmp_path, delimiter, end, names):
    lines = [delimiter.join(row) for row in ([names] if names else []) + [("1", "2.5", "-3e2"), ("4", ".5", "6")]]
    found = chosen(tmp_path, end.join(lines) + end)
    assert found.x.tolist() == [[1, 2.5, -300], [4, 0.5, 6]]
    assert found.table.names == (names or ("x1", "x2", "x3"))
    assert found.table.named == bool(names)
    assert found.places.tolist() == ([2, 3] if names else [1, 2])
    assert found.notices == []


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbfa,b\n1,2\n3,4\n",
        b"\n  \n a , b\n1, 2\n   \n 3,4\n\n",
        b'"a","b"\n"1","2"\n"3","4"\n',
        b"# a,b\n1,2\n3,4\n",
        b"#a b\n  1   2 \n  3   4\n",
        b"a\tb\n1\t2\n3\t4",
    ],
)
def test_csv_in_its_many_forms(tmp_path, content):
    found = chosen(tmp_path, content)
    assert found.table.names == ("a", "b")
    assert found.x.tolist() == [[1, 2], [3, 4]]


def test_commas_in_cells_do_not_make_them_the_delimiter(tmp_path):
    found = chosen(tmp_path, 'name;"size, in m";x\n"Doe, J";1;2\n"Roe, R";3;5\n')
    assert found.table.names == ("name", "size, in m", "x")
    assert found.x.tolist() == [[1, 2], [3, 5]]
    assert found.notices == ["column 'name' is left out: it holds text, such as 'Doe, J'."]


def test_a_column_without_a_delimiter(tmp_path):
    assert chosen(tmp_path, "height\n1\n2\n").x.tolist() == [[1], [2]]


def test_blocks_make_no_difference(tmp_path, monkeypatch):
    lines = [f"{i},{i * i}" for i in range(25)]
    lines[13], lines[17] = "NA,169", "cat,289"
    monkeypatch.setattr(text, "_BLOCK", 4)
    refused(tmp_path, "\n".join(lines), r"line 18, column 1: 'cat' is not a number, but 23 other cells.*\(1 are not\)")
    lines[17] = "17,289"
    found = chosen(tmp_path, "\n".join(lines), drop_missing=True)
    assert found.x.tolist() == [[i, i * i] for i in range(25) if i != 13]


def test_what_is_left_out_is_said(tmp_path):
    content = "id,sex,one,none,x\n1,m,5,,0.1\n2,f,5,,0.2\n3,f,5,NA,0.4\n"
    found = chosen(tmp_path, content)
    assert [found.table.names[j] for j in found.roles.columns] == ["id", "x"]
    assert sorted(found.notices) == [
        "column 'none' is left out: it is empty.",
        "column 'one' is left out: it has one value only, 5.",
        "column 'sex' is left out: it holds text, such as 'm'.",
    ]
    for name, reason in (("sex", "holds text, such as 'm'"), ("one", "one value only, 5"), ("none", "is empty")):
        refused(tmp_path, content, f"column '{name}' cannot be used: it .*{reason}", columns=[name, "x"])
        refused(tmp_path, content, f"column '{name}' cannot be used", condition_on=[name])


@pytest.mark.parametrize(("words", "kept"), [(["b"], [1]), (["3", "a"], [2, 0]), (["1", "2"], [0, 1])])
def test_columns_by_name_or_number(tmp_path, words, kept):
    rows = np.arange(12.0).reshape(4, 3)
    content = "a,b,c\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)
    assert chosen(tmp_path, content, columns=words).x.tolist() == rows[:, kept].tolist()


def test_unused_columns_may_hold_anything(tmp_path):
    content = "a,b,c\n1,2,\n3,dog,inf\n5,6,7\n"
    assert chosen(tmp_path, content, columns=["a"]).x.tolist() == [[1], [3], [5]]


def test_a_name_comes_before_a_number(tmp_path):
    assert chosen(tmp_path, "a,b\n1,2\n3,4\n", columns=["2"]).x.tolist() == [[2], [4]]
    np.savez(tmp_path / "t.npz", **{"2": np.array([1.0, 3]), "b": np.array([2.0, 4])})
    assert choose(open_table(tmp_path / "t.npz"), columns=["2"]).x.tolist() == [[1], [3]]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"columns": ["hight"]}, "--columns hight.*no such column. Did you mean height.*by number 1 … 3"),
        ({"columns": ["0"]}, "--columns 0.*no such column"),
        ({"columns": ["4"]}, "--columns 4.*no such column"),
        ({"condition_on": ["z"]}, "--condition-on z.*no such column"),
        ({"weights": "z"}, "--weights z.*no such column"),
        ({"columns": ["a", "1"]}, "--columns names column 'a' .*twice"),
    ],
)
def test_a_column_that_is_not_there(tmp_path, options, words):
    refused(tmp_path, "a,height,w\n1,2,3\n2,3,4\n", words, **options)


def test_a_column_has_one_use(tmp_path):
    table = open_table(written(tmp_path, "a,b\n1,2\n3,4\n"))
    for options in ({"columns": ["a"], "weights": "a"}, {"columns": ["a"], "condition_on": ["1"]}):
        with pytest.raises(InputError, match="both name column 'a'"):
            choose(table, **options)


@pytest.mark.parametrize("mark", ["", "NA", "NaN", "?", "null", "n/a", "None", "  "])
def test_missing_values_are_refused_or_dropped(tmp_path, mark):
    content = f"a,b,c\n1,2,x\n3,{mark},y\n{mark},{mark},z\n7,9,?\n"
    refused(
        tmp_path, content, r"missing values \(1 in column 'a', 2 in column 'b'\), the first in line 3; .*2 of 4 rows"
    )
    found = chosen(tmp_path, content, drop_missing=True)
    assert found.x.tolist() == [[1, 2], [7, 9]]
    assert found.places.tolist() == [2, 5]
    assert "2 of 4 rows are left out, because they have missing values" in found.notices[-1]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is empty"),
        ("\n  \n", "is empty"),
        ("a,b\n", "no rows"),
        ("a,b\n1,2\n3\n", "line 3: expected 2 cells, as in line 1, separated by commas; got 1"),
        ("1;2\n\n3;4;5\n6;7\n", "line 3: expected 2 cells, as in line 1, separated by semicolons; got 3"),
        ("a,b\n1,2\n3,cat\n5,6\n", "line 3, column 'b': 'cat' is not a number, but 2 other cells"),
        ("1,2\n3,4\n5,dog\n", "line 3, column 2: 'dog' is not a number"),
        ("id,2019,2020\n1,2,3\n4,5,6\n", "line 1, column 1: 'id' is not a number.*is a header"),
        ("a,b,a\n1,2,3\n", "columns 1 and 3 have the same name, 'a'"),
        ("a,b\n1,2\n3,inf\n", "line 3, column 'b' holds an infinite number"),
        ("a,b\n1,-1e999\n3,4\n", "line 2, column 'b' holds an infinite number"),
        ("a,b\nx,y\nz,w\n", "no column of numbers.*column 'a' holds text, such as 'x'; column 'b'"),
        ("a,b\n1,2\n1,2\n", "no column of numbers.*column 'a' has one value only, 1"),
        ("a;b\n1,5;2,5\n2,5;3,5\n", "line 2, column 'a': '1,5' has a comma; write numbers with a decimal point"),
        ('a,b\n1,"2,5"\n3,"4,5"\n', "line 2, column 'b': '2,5' has a comma"),
        ('a,b\n1,2\n3,"4\n5,6\n', "line 3: expected 2 cells|line 3, column 'b'"),
        (b"a,b\n1,2\n3,\xff\n", "line 3 is not text in UTF-8"),
        ("a,b\n1,2\n".encode("utf-16"), "line 1 is not text in UTF-8"),
        ("a" * 2**21, "line 1 has more than"),
    ],
)
def test_a_bad_text_is_named(tmp_path, content, words):
    refused(tmp_path, content, words)


def test_a_bad_line_far_down_is_named(tmp_path):
    refused(tmp_path, "a,b\n" + "1,2\n" * 30_000 + "3,dog\n", "line 30002, column 'b': 'dog'")
    refused(tmp_path, b"a,b\n" + b"1,2\n" * 300_000 + b"3,\xe9\n", "line 300002 is not text in UTF-8")
    refused(tmp_path, "a,b\n" + "1,2\n" * 300_000 + '3,"' + "4\n" * 200_000, "line 300002.*quote")


def test_paths_that_are_no_table(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "t.xlsx").write_text("a")
    cases = {"folder.csv": "is a directory", "no.csv": "no such file", "t.xlsx": "must end in .csv", "x" * 300: "."}
    for name, words in cases.items():
        with pytest.raises(InputError, match=words):
            open_table(tmp_path / name)


def test_an_unreadable_file_is_named(tmp_path, monkeypatch):
    path = written(tmp_path, "a,b\n1,2\n")

    def denied(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(path), "open", denied)
    with pytest.raises(InputError, match=r"t.csv cannot be read \(Permission denied\)"):
        open_table(path)


def test_a_table_larger_than_memory_is_refused_before_it_is_read(tmp_path, monkeypatch):
    path = written(tmp_path, "a,b\n" + "1.25,2.25\n" * 1000)
    monkeypatch.setattr(memory, "available", lambda: 40_000.0)
    monkeypatch.setattr(text.TextTable, "read_columns", lambda *_: pytest.fail("it was read"))
    with pytest.raises(InputError, match=r"about 1,0\d\d rows of 2 columns would need .* GB .*--columns"):
        choose(open_table(path))
    np.save(tmp_path / "t.npy", np.zeros((1000, 2)))
    with pytest.raises(InputError, match="about 1,000 rows of 2 columns would need"):
        choose(open_table(tmp_path / "t.npy"))


def test_fewer_columns_need_less_memory(tmp_path, monkeypatch):
    path = written(tmp_path, "a,b\n" + "".join(f"{i},{i}\n" for i in range(1000)))
    monkeypatch.setattr(memory, "available", lambda: 40_000.0)
    assert choose(open_table(path), columns=["b"]).x.shape == (1000, 1)


def test_memory_is_known_here():
    free = memory.available()
    assert free is None or 1e6 < free < 1e14


@pytest.mark.parametrize("kind", ["<f4", ">f8", "<f2", "<i4", "u1", "?", "longdouble"])
def test_npy_of_every_type(tmp_path, kind):
    rows = (np.arange(22).reshape(11, 2) % 5).astype(kind)
    np.save(tmp_path / "t.npy", rows)
    found = choose(open_table(tmp_path / "t.npy"))
    assert found.x.dtype == np.float64
    np.testing.assert_array_equal(found.x, rows.astype(np.float64))
    assert not found.table.named


def test_npz_of_one_array_or_of_columns(tmp_path):
    rows = np.arange(8.0).reshape(4, 2)
    np.savez(tmp_path / "one.npz", rows=rows)
    np.savez_compressed(tmp_path / "columns.npz", b=rows[:, 0], a=rows[:, 1].astype(int), c=np.array([*"wxyz"]))
    one, columns = (choose(open_table(tmp_path / name)) for name in ("one.npz", "columns.npz"))
    assert one.x.tolist() == columns.x.tolist() == rows.tolist()
    assert (one.table.named, columns.table.named) == (False, True)
    assert columns.table.names == ("b", "a", "c")
    assert columns.notices == ["column 'c' is left out: it holds text, such as 'w'."]


def test_bad_arrays_are_named(tmp_path):
    bad = np.arange(10.0).reshape(5, 2)
    bad[3, 1] = np.nan
    np.save(tmp_path / "missing.npy", bad)
    bad[3, 1] = np.inf
    np.save(tmp_path / "infinite.npy", bad)
    np.save(tmp_path / "cube.npy", np.zeros((2, 2, 2)))
    np.save(tmp_path / "words.npy", np.array([["a", "b"]]))
    np.save(tmp_path / "rowless.npy", np.zeros((0, 2)))
    np.save(tmp_path / "objects.npy", np.array([[{}, None]], dtype=object), allow_pickle=True)
    (tmp_path / "cut.npy").write_bytes((tmp_path / "cube.npy").read_bytes()[:-1])
    np.savez(tmp_path / "lengths.npz", a=np.zeros(3), b=np.zeros(4))
    np.savez(tmp_path / "mixed.npz", a=np.zeros(3), b=np.zeros((3, 2)))
    np.savez(tmp_path / "none.npz")
    np.savez(tmp_path / "cube.npz", a=np.zeros((3, 2, 1)))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "mixed.npz").read_bytes()[:-9])
    (tmp_path / "text.npz").write_text("a,b\n")
    cases = {
        "missing.npy": r"1 in column 2\), the first in row 4",
        "infinite.npy": "row 4, column 2 holds an infinite number",
        "cube.npy": r"shape \(2, 2, 2\)",
        "words.npy": "real numbers; got <U1",
        "rowless.npy": "no rows",
        "objects.npy": "cannot be read",
        "cut.npy": "cannot be read",
        "lengths.npz": "'a' has 3 rows and 'b' has 4",
        "mixed.npz": r"one array of two dimensions.*a \(3,\), b \(3, 2\)",
        "none.npz": "no arrays",
        "cube.npz": "two dimensions",
        "cut.npz": "cannot be read",
        "text.npz": "cannot be read",
    }
    for name, words in cases.items():
        with pytest.raises(InputError, match=words) as caught:
            choose(open_table(tmp_path / name))
        assert name in str(caught.value)


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {"a": [1, 2, 3], "b": [0.5, None, 2.5], "c": ["x", "y", "z"], "d": [True, False, True]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    table = open_table(tmp_path / "t.parquet")
    with pytest.raises(InputError, match=r"1 in column 'b'\), the first in row 2"):
        choose(table)
    found = choose(table, drop_missing=True, columns=["b", "a"])
    assert found.x.tolist() == [[0.5, 1], [2.5, 3]]
    assert choose(table, columns=["d"]).x.tolist() == [[1], [0], [1]]
    with pytest.raises(InputError, match="column 'c' cannot be used: it holds text, such as 'a value of type string'"):
        choose(table, columns=["c"])
    (tmp_path / "bad.parquet").write_text("a,b")
    with pytest.raises(InputError, match=r"bad\.parquet cannot be read as \.parquet"):
        open_table(tmp_path / "bad.parquet")


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    (tmp_path / "t.parquet").write_text("PAR1")
    with pytest.raises(InputError, match=r"pip install 'ffjord\[parquet\]'"):
        open_table(tmp_path / "t.parquet")


def test_weights_are_checked(tmp_path):
    content = "a,w\n1,1\n2,0\n3,2.5\n"
    found = chosen(tmp_path, content, weights="w")
    assert found.x.tolist() == [[1], [3]]
    assert found.weights is not None
    assert found.weights.tolist() == [1, 2.5]
    assert found.notices == ["1 rows of weight 0 are left out."]
    refused(tmp_path, content.replace("2,0", "2,-1"), "line 3, column 'w': a weight must not be negative", weights="w")


def test_names_that_are_written_are_read(tmp_path):
    names = ["a", "size, in m", 'a "b"', "ä;b"]
    rows = np.array([[1.5, 2, 3, 1e8 + 0.25], [4, 5, 6, 0.1]])
    write_rows(tmp_path / "t.csv", [rows], names=names, shape=rows.shape, dtype=np.float64)
    found = choose(open_table(tmp_path / "t.csv"))
    assert found.table.names == tuple(names)
    assert found.x.tolist() == rows.tolist()
