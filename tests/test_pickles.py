"""Tables that pandas has pickled, and dicts of arrays: read without pandas, and without executing anything."""

import base64
import os
import pickle
import zlib

import numpy as np
import pytest

from ffjord.data.pickles import read_dict, read_frame
from ffjord.errors import InputError
from tests.old_pandas import old_frame

# A table of the columns below as real pandas wrote it: to_pickle of a shuffled frame, packed by zlib, in base64.
PICKLES = {
    "pandas 1.5.3, protocol 2": (
        "eNqdVP9vFEUUv7v2TroioqIoFUXEegU5KPKlCHWlUKAsveqIuCJl3d2bdjfs7d3bnUspckkx9K6NJIqiRrAhDdSGRBCl+AMGN5n3"
        "h+nM3h2kfvnF2WTnzc7nvX2f95k3kym7bPoFM8zZpYDmRgOzSJUDJjMPxhYkus9DsgqprN6eSCSM4lgAbUs8XJ/RwDe9MFc0fXOM"
        "BqHS75Xs00ONlQLtLbjhuVb4CK8YFb/s2qc9aljSQYG07VeK5YlG3GLFY64ZBOaEYgTULvkhCyo2UyDTQCkiZrwLj2mJKVhmG3ap"
        "QO1Qob40FOjQkyJjCxQ9I2bPZK7fA4/XYDmBJ+qwgsCTWS2ptWuZGqxshiywibLwfEpPCY/RXnh6ZroOzxBYldXa4mh74dl8Pn/k"
        "TzHil5Zg8Jw17XToG8U2fs7nBvhveBcf8Bsqv8K/bz0pnMRvzuDNrp5leJFHx1ds5r/yWfwZ7/JonP/Br63ZgrO4qOIC/s5v4i/4"
        "1RDeVvn9weWpTbyOP/KoT8Hv+PVyHy7yqP8TnMcv1+NVvKcexrmzq/jtQzjPo4f4b9Wju/jMPgn76ZE5yaNPY+jcWbyhtvzm+H0V"
        "F/EBXpb5iWXEf8AL6/idwJEL/HrIWqnvxsvi+yW8dU7dcQqvqHidz/OrMQzvqE0yfAFruMCjTsFlQ4afx1s8WnuisAevDeMsj7pP"
        "8i/wM7yXxYsqrHaEEs8TeIHBGss2DKviCrl9w1BCz7WFBp1Cm7SWrMOLBNZqqTq8ROBlJ+1knFjudY7Q8BUC66WGSanhq05DNrcX"
        "NkjZXiPQJWRz/inY69aMEGyrwEq8HMnm3J5YOtqac7o5Q1am3U1gI4NNltOpJeTf6/AGgc0yxxyBLTXYOgI92b/1SIGeoWHOMkOq"
        "GD4dNwblFwW2/TesiXizCtsbvVcQTQk7WgXYKQuwi0CvLEB6CnY36Q/3wluS/h4Ce1un9hz0LS2CyuBta2YE1EbkY26RwjuxOUSZ"
        "A/t0SXxAWP1xTNID+xvGNjhAGQxYMdYXFwQczFdqcIjAYeffuYjGooFrCzps5/Ymp8EqHMk6D6lokspRAkOSSmYK8k7X/xZoWAr0"
        "LoH3GBDLiZN7n8AxWoMPCBxv3GGiyeFDvaNZ0vjGAz1eG0XKzLjOH43ACV1GNRkLQvi4Cifja8QY9cyxEEaqcEpfLbc9rzQeGoVK"
        "WRxbk1HDMy3qhWBMhxUr9xdpVeeP"
    ),
    "pandas 2.2.3, protocol 2": (
        "eNqdVP9zE0UUT9Im0hMRBUWoKCKWFCTQClKEelIoUI6kuCKeSDnvLtveDZdL3t1mSpHOFMcmdGRGVNQR7DAZqB1mBFEKP+BgZvb9"
        "Ybp7SdDq8At7M7dv7733eV8+93YqYZdMP2+GGbsY0MxoYBaost9k5oFIglj3eYhPQiKtt8diMaMwFkDbIg/XZzTwTS/MFEzfHKNB"
        "qAx4Rft0tnFSoL1lbniuFf5jrxhlv+Tapz1qWNJBgaTtlwuliQZuoewx1wwCc0IxAmoX/ZAFZZspkGpYKQIz0sJTWmwaltiGXcxT"
        "O1SoLwUFOvS4yNgCRU+J3TOZ6/fA0xVYSuCZKiwj8Gxai2vtWqoCy5uQeTZREp7P6QnhMdoHz89cqMIKAivTWluEtgdeyOVyh/8S"
        "K3ppMQYvWjNOh75JqPFLXhvk9/EuPuQ31HH+J7+2ZivO4oI68CnO4aX1eBXvqUd28pm98jzF6/wn/GIdvxM4WOP1Lfx3Pou/8nms"
        "4LzQXeE/tp4ETuE8/sFv4m/4TRZvq4ewdnYlv30Q53j9s0ioncUbKn6btZbru/Ayr3eKyBtS/Dze4nX87gze7OpZghcF7IOhpYnN"
        "vIo//0v+Xm3h1fgDlX+Nt86pO07hFXXtifxuvDaMs7x+fFkzQbzL6/0K/sCvl/pxgdcfFfSLigv4EC/LYLIgvM7n+NWoQryjdp/k"
        "X+HneC+NF1VY5QgmXiKwmsEayzYMq+wKun3DUELPtQUHnYKbpBavwssE1mqJKrxC4FUn6aSciO51juDwNQLrJYdxyeHrToM2tw82"
        "SNreINAlaHP+T9jGiLBtwlbayxVv7u2xxautuSebO6Rl2t0ENjHYbDmdWkxGr8KbBLbIHDMEtlZg2wj0pP8zI3l6hoYZywypYvh0"
        "3BiSXxTofbxZ0+KtSdjemL28GErY0WrA27IBOwn0yQYkp2FXs/zhPnhHlr+bwJ7WX3sO+hc3QWXwrjUzAmoD+ZhboPBeJGYpc2Cv"
        "LgsfFNJAhEl6YF9D6IX9lMGgFdn64oKAA7lyBQ4SOOT0OiLXobTzKMXDMkWNwBGZYmoask7XEzc+Jxs/TOAog/ctJwpKCHxAK3CM"
        "wIeNu0kMLxzXO5qtim4y+Cg6GwXKzKh/+gh8rEtUk7EghBOT8El0PRijnjkWwslJGNFXSbXnFcdDI18uid/RZNTwTIt6IZy6EJat"
        "zN967NjK"
    ),
    "pandas 3.1.1, protocol 5": (
        "eNqlVF1IFFEU3l13N/8yqbB/iwhZidYsxKJk8C/TaVewiAhtvDN7d2dwdnaZH3RNKR9cFS5EdBP6I6IieonooQcfGonoJR+irKCQ"
        "WMokyEpUCELq3tnZ1Oit+3DOnbnnnPvd73z3nvVcHHA7rIG8caCEgIZRTh3QwSEVRCG+gEv7cC/2ITcXjagYFadj/EJMhX5J0aGq"
        "AFnzR4ECIlAlufk1ckzoCKS/SToqsjM4WeK1xRSMVnGGEpeEDhlyPM2hwWsUIxpP+DmrPJlDVRIwyuPCaizKG+GwVdI3PJpG7Hh2"
        "o/7h7MItpvPR9Y1lE3NMTfvk8+3v5pkjlUPV7ZOj5tUn2+6rYsrc9eDatztPp8zLl+hwjU79vDvzIvCVOZzqXnuvYdI8TWyq+yPz"
        "MsAXntg/bm4qm9jh7Zs2X3V9LinPHjNHGvNdOwc+2f41Y6WlRpjz0z1Mxam3zJaToQPvmyfM4wV0p1mzKvfNzXjVnJnG8YWZWxgn"
        "lVLmh9tXCKLvTGnrucfzvjEGI491YOJDeiJO6Uau8D48NDiAW7CPzULOgzgYDDb9IsMyrEPHPOtmvUmMnLVYJ2EomzckWZcUwqlH"
        "kyWBlmGdrId10iqsi1oxTyzwDe+2eXPZ3ml7WwF/RpbtPbbH4mrkkpbgEov+gcpJUYkbKCaxmHWQ7yUAkriNqGj9cvmEYBfU/DzQ"
        "IEa5nAI7uUb6j+AXHciTmVvyCxFJEn0sExNQVZAgp97McfFE16KcgnXVdKUGCB0wRDldaadlEvKO6qqkRKwost601TvjDlo0OTJr"
        "dZl+eOMJXYwpuOHMjzQZScp50VKhRg1Cv1Wb6J9ToRBTNF01BJ0epBCtIHvbO7GOflzr5HGaRtKjfova5mUt7/mr5Qwhd4iy5z4m"
        "kSuJ3AGoixhl1VPraimnZg+GJCqJeeRW6L0NGhSmuFesIOyJlf/X/BLW259pbGu6MrRYcHOEJfJe0OaErfcC5XBRqAOrW21Ej0DX"
        "yavQS2jkwjKIWNN1QJZjnRoXMuJErUCHnAx4SJ6EQc3g/b8BncTD7A=="
    ),
}
TABLE = {
    "Time": [2, 1, 4, 0, 3, 5],
    "Meth": [0.041, 1.304, 1.366, -0.132, -0.544, -0.743],
    "Eth": [-2.325, 0.947, -0.665, 0.64, -0.316, -0.922],
    "R1": [-0.219, -0.704, 0.352, 0.105, 0.412, -0.458],
    "R2": [-1.246, -1.265, 0.903, -0.536, 1.043, 0.22],
}


def written(tmp_path, content: bytes):
    path = tmp_path / "table.pickle"
    path.write_bytes(content)
    return path


def refused(tmp_path, content: bytes, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        read_frame(written(tmp_path, content))
    assert str(tmp_path / "table.pickle") in str(caught.value)


@pytest.mark.parametrize("version", PICKLES)
def test_tables_of_real_pandas(tmp_path, version):
    columns = read_frame(written(tmp_path, zlib.decompress(base64.b64decode(PICKLES[version]))))
    assert {name: column.tolist() for name, column in columns.items()} == TABLE
    assert list(columns) == list(TABLE)


@pytest.mark.parametrize("python2", [False, True])
def test_tables_of_the_pandas_that_maf_used(tmp_path, python2):
    rng = np.random.default_rng(0)
    table = {"b": rng.normal(size=4), "a": np.arange(4), "c": rng.normal(size=4), "d": rng.normal(size=4)}
    columns = read_frame(written(tmp_path, old_frame(table, python2=python2)))
    assert list(columns) == list(table)
    for name, column in table.items():
        np.testing.assert_array_equal(columns[name], column)


def test_big_endian_and_fortran_order(tmp_path):
    table = {"a": np.arange(3, dtype=">f4"), "b": np.arange(3, 6, dtype=">f4")}
    columns = read_frame(written(tmp_path, old_frame(table)))
    assert [column.tolist() for column in columns.values()] == [[0, 1, 2], [3, 4, 5]]


class Evil:
    """Pickles to a call of a function."""

    def __init__(self, function, *args):
        self.call = (function, args)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    ("function", "named"),
    [(os.system, "system"), (eval, "eval"), (getattr, "getattr"), (__import__, "__import__"), (open, "open")],
)
def test_calls_are_refused_and_not_made(tmp_path, protocol, function, named):
    made = tmp_path / "made"
    arguments = {
        "system": (f"touch {made}",),
        "eval": (f"open({str(made)!r}, 'w')",),
        "getattr": ("text", "upper"),
        "__import__": ("os",),
        "open": (str(made), "w"),
    }[named]
    evil = pickle.dumps(Evil(function, *arguments), protocol=protocol)
    refused(tmp_path, evil, rf"wants to call \w+\.{named}, .* nothing of it was executed")
    assert not made.exists()


def test_a_call_hidden_in_a_table_is_refused(tmp_path):
    made = tmp_path / "made"
    table = {"a": np.array([1.0, Evil(os.system, f"touch {made}")], dtype=object)}
    refused(tmp_path, old_frame(table), "wants to call")
    assert not made.exists()


def test_what_numpy_and_pandas_could_do_is_not_done(tmp_path, monkeypatch):
    """Their functions are named in pickles, and stand-ins are called."""
    called = []
    monkeypatch.setattr(np, "load", called.append)
    content = b"cnumpy\nload\n(S'x'\ntR."
    refused(tmp_path, content, "it holds load, not a DataFrame")
    refused(tmp_path, b"cpandas\nread_pickle\n(S'x'\ntR.", "it holds read_pickle, not a DataFrame")
    assert called == []


def test_damaged_and_foreign_pickles_are_refused(tmp_path):
    good = old_frame({"a": np.arange(3.0), "b": np.arange(3.0)})
    for end in range(0, len(good), 7):
        refused(tmp_path, good[:end], "is not a table pickled by pandas: .")
    refused(tmp_path, pickle.dumps([1, 2]), "it holds list, not a DataFrame")
    refused(tmp_path, b"not a pickle at all", "is not a table")
    refused(tmp_path, old_frame({"a": np.array(["x", None], dtype=object)}), "a column is of type O8, not of numbers")
    refused(tmp_path, old_frame({}), "names")


def test_a_flag_that_lies_about_an_array_of_objects_does_not_reach_numpy(tmp_path):
    """A dtype's pickled flags could make NumPy take bytes for pointers; the bytes are read here instead."""
    good = old_frame({"a": np.arange(3.0)})
    assert good.count(b"f8") == 1
    refused(tmp_path, good.replace(b"f8", b"O8"), "a column is of type O8")


def test_a_thing_that_holds_itself_is_refused(tmp_path):
    circle: list = []
    circle.append(circle)
    refused(tmp_path, old_frame({"a": np.arange(3.0)}, names=circle), "its columns have no names")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("dtype", ["u1", "<f8", ">i4"])
def test_dicts_of_arrays(protocol, dtype):
    given = {"a": np.arange(6).astype(dtype).reshape(2, 3), "names": ["x", "y"], "n": 3, "text": "z", "none": []}
    found = read_dict(pickle.dumps(given, protocol=protocol), "here")
    assert found.keys() == given.keys()
    assert found["a"].dtype == given["a"].dtype
    np.testing.assert_array_equal(found.pop("a"), given.pop("a"))
    assert found == given


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        ({"a": Evil(os.system, "true")}, r"wants to call posix\.system"),
        ({"a": [[1]]}, "'a' is list, not an array"),
        ({"a": {"b": 1}}, "'a' is dict"),
        ({"a": 0.5}, "'a' is float"),
        ({"a": np.dtype("u1")}, "'a' is dtype"),
        ({"a": np.array([1, None])}, "of type O8"),
        ({1: 2}, "it holds dict, not a dict with texts as keys"),
        (np.arange(3), "it holds _reconstruct, not a dict"),
    ],
)
def test_other_dicts_are_refused(thing, words):
    with pytest.raises(InputError, match=f"here is not a pickled dict of arrays: .*{words}"):
        read_dict(pickle.dumps(thing, protocol=2), "here")


def test_damaged_dicts_are_refused():
    good = pickle.dumps({"a": np.arange(3.0)}, protocol=2)
    for end in range(len(good)):
        with pytest.raises(InputError, match=r"here is not a pickled dict of arrays: ."):
            read_dict(good[:end], "here")
