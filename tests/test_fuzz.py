"""Odd input of every kind: it works and gives finite numbers, or is refused in words of our own.

The default run takes the same examples every time. `make fuzz` (FFJORD_FUZZ=2000 in the environment) takes that many
new ones for each test, with more widths and the default solver.
"""

import contextlib
import dataclasses
import io
import linecache
import os
import tempfile
import traceback
import warnings
from pathlib import Path

import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.sparse import csr_array

from ffjord.arrays import save_arrays
from ffjord.cli import main
from ffjord.errors import InputError, SolveError
from ffjord.estimator import FFJORD
from ffjord.experiments import find
from ffjord.experiments.build import build_flow
from ffjord.experiments.config import ModelConfig, SolveConfig
from ffjord.runs import Run

EXAMPLES = int(os.environ.get("FFJORD_FUZZ", "0"))
WIDTHS = (1, 2, 3, 5) if EXAMPLES else (1, 3)
METHOD = "dopri5" if EXAMPLES else "euler"
KINDS = ["f2", "f4", "f8", ">f8", "longdouble", "i1", "i8", "u8", "?", "O", "U", "c16", "M8[s]", "m8[s]", "S"]
LAYOUTS = ["C", "F", "strided", "reversed", "frozen", "list", "jax", "matrix", "masked", "nothing masked", "sparse"]


def fuzz(examples: int, **strategies):
    """A test of that many examples: always the same ones, or as many new ones as FFJORD_FUZZ says."""
    chosen = settings(
        max_examples=EXAMPLES or examples,
        derandomize=not EXAMPLES,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    return lambda test: chosen(given(**strategies)(test))


@pytest.fixture(scope="module", autouse=True)
def as_a_user_has_it():
    """Without the tests' run-time type checks, which hide our own errors."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


def assert_our_own(error: BaseException) -> None:
    """An error is ours if a `raise` in this package made it, or scikit-learn's validation of its conventions did."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = "ffjord" in Path(frames[-1].filename).parts
    line = linecache.getline(frames[-1].filename, frames[-1].lineno or 0).strip()
    if isinstance(error, InputError | SolveError) or (
        isinstance(error, ValueError) and ours and line.startswith("raise")
    ):
        event(f"refused by us: {type(error).__name__}")
    elif isinstance(error, ValueError | TypeError) and any("/sklearn/utils/" in frame.filename for frame in frames):
        event(f"refused by scikit-learn: {type(error).__name__}")
    else:
        raise AssertionError(f"a foreign error: {error!r}") from error


@contextlib.contextmanager
def refused_or_not():
    """Lets errors of our own pass, and makes warnings of our numbers errors."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", category=RuntimeWarning, module="ffjord|jax|equinox")
        try:
            yield
        except Exception as error:
            if isinstance(error, AssertionError):
                raise
            assert_our_own(error)


# Tables.


@st.composite
def numbers(draw, width: int, most: int = 9) -> np.ndarray:
    """A table of float64 numbers: random ones of some magnitude, or any that hypothesis thinks of."""
    shape = (draw(st.integers(2, most)), width)
    if draw(st.integers(0, 3)) == 3:
        return draw(hnp.arrays(np.float64, shape, elements=st.floats(width=draw(st.sampled_from([16, 32, 64])))))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    exponents = st.sampled_from([-300, -30, -20, -8, -1, 0, 1, 8, 20, 30, 300])
    scale = 10.0 ** np.array([draw(exponents) for _ in range(width)])
    shift = draw(st.sampled_from([0.0, 1.0, -1e3, 1e8])) * scale
    return rng.normal(size=shape) * scale + shift


@st.composite
def tables(draw, widths: tuple[int, ...]) -> np.ndarray:
    """Such a table, with what real tables have: repeated rows, columns that are constant or follow from another."""
    x = draw(numbers(draw(st.sampled_from(widths))))
    first, last = x[:, 0].copy(), x.shape[1] - 1
    match draw(
        st.sampled_from([""] * 4 + ["duplicates", "all equal", "constant", "collinear", "nearly constant", "gap"])
    ):
        case "duplicates":
            x[1:] = x[draw(st.integers(0, len(x) - 1))]
        case "all equal":
            x[:] = x[0]
        case "constant":
            x[:, last] = x[0, 0]
        case "collinear":
            x[:, last] = first * draw(st.sampled_from([1.0, -2.0, 0.5]))
        case "nearly constant":
            x[:, last] = 1.0
            x[0, last] = np.nextafter(1.0, 2.0)
        case "gap":
            x[draw(st.integers(0, len(x) - 1)), last] = draw(st.sampled_from([np.nan, np.inf, -np.inf, 1e308, -0.0]))
    return x


@st.composite
def odd_tables(draw, widths: tuple[int, ...] = WIDTHS):
    """Such a table, of any type, layout and number of dimensions."""
    x = draw(tables(widths))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = x.astype(draw(st.sampled_from(["f8"] * 12 + KINDS)))
    x = draw(shaped(x))
    if x.dtype == object and x.size and draw(st.booleans()):
        x.flat[0] = draw(st.sampled_from([None, 10**400, "7", "x", {}, [1.0], np.float32(2), True, 1j]))
    return draw(laid_out(x))


@st.composite
def shaped(draw, x: np.ndarray) -> np.ndarray:
    match draw(st.sampled_from([""] * 20 + ["flat", "deep", "none", "one", "widthless"])):
        case "flat":
            return x[:, 0]
        case "deep":
            return x[None]
        case "none":
            return x[:0]
        case "one":
            return x[:1]
        case "widthless":
            return x[:, :0]
        case _:
            return x


@st.composite
def laid_out(draw, x: np.ndarray):
    match draw(st.sampled_from(["C"] * 4 + LAYOUTS)):
        case "F":
            return np.asfortranarray(x)
        case "strided":
            return np.repeat(x, 2, axis=0)[::2]
        case "reversed":
            return x[::-1][::-1, ...][::-1]
        case "frozen":
            x.flags.writeable = False
            return x
        case "list":
            return x.tolist()
        case "jax" if x.dtype.kind in "fiu" and x.dtype.itemsize <= 8 and x.dtype.isnative:
            with np.errstate(over="ignore"):
                return jnp.asarray(x)
        case "matrix" if x.ndim == 2:
            return np.asmatrix(x)
        case "masked":
            return np.ma.masked_array(x, mask=draw(hnp.arrays(bool, x.shape)))
        case "nothing masked":
            return np.ma.masked_array(x, mask=draw(st.sampled_from([False, np.ma.nomask])))
        case "sparse" if x.dtype.kind in "fiu" and x.ndim == 2 and x.dtype.isnative and x.dtype.itemsize in (4, 8):
            return csr_array(x)
        case _:
            return x


def small(**params) -> FFJORD:
    given = {"hidden": (4,), "steps": 2, "batch_size": 1, "method": METHOD, "random_state": 0}
    return FFJORD(**given | params)


@fuzz(120, x=odd_tables())
def test_a_table_is_learned_or_refused(x):
    with refused_or_not():
        model = small().fit(x)
        assert not (np.ma.isMaskedArray(x) and np.ma.is_masked(x)), "masked entries were taken for numbers"
        scores, samples = model.score_samples(x), model.sample(8, random_state=0)
        event("learned")
        assert scores.shape == (np.shape(x)[0],)
        assert np.all(np.isfinite(scores))
        assert samples.shape == (8, model.n_features_in_)
        assert np.all(np.isfinite(samples))
        assert np.isfinite(model.best_validation_loss_)


@pytest.fixture(scope="module")
def fitted() -> FFJORD:
    return small().fit(np.random.default_rng(0).normal(size=(9, 3)))


@fuzz(120, x=odd_tables((3, 3, 3, 3, 2)))
def test_a_table_is_scored_or_refused(fitted, x):
    with refused_or_not():
        scores = fitted.score_samples(x)
        event("scored")
        assert not (np.ma.isMaskedArray(x) and np.ma.is_masked(x)), "masked entries were taken for numbers"
        near = np.max(np.abs(np.asarray(x, np.float64)), axis=1) < 1e15
        assert not np.any(np.isnan(scores))
        assert np.all(np.isfinite(scores[near]))


COUNTS = [-1, 0, 1, 3, 15, 16, True, 2.0, 2.5, "3", None, np.int64(3), np.float32(3), [2], np.array(2), np.array([2])]
SEEDS = [None, 0, 1, -1, 2**31, 2**32 - 1, 2**32, 2**70, 1.5, "x", np.int64(4), np.random.RandomState(0), [1, 2], True]


@fuzz(40, n=st.sampled_from(COUNTS), seed=st.sampled_from(SEEDS))
def test_samples_are_drawn_or_refused(fitted, n, seed):
    with refused_or_not():
        samples = fitted.sample(n, random_state=seed)
        assert samples.shape == (int(n), 3)
        assert np.all(np.isfinite(samples))


@fuzz(20, seed=st.sampled_from(SEEDS))
def test_seeds_of_a_fit_are_used_or_refused(seed):
    with refused_or_not():
        assert np.isfinite(small(random_state=seed).fit(np.eye(9, 3)).best_validation_loss_)


ODD = ["3", "x", -1, -0.5, float("nan"), float("-inf"), [-2], (1, "2"), np.array([2.0, 3.0]), {}, 1j, b"1"]


@fuzz(80, name=st.sampled_from(sorted(set(FFJORD().get_params()) - {"verbose"})), value=st.sampled_from(ODD))
def test_odd_parameters_are_refused(name, value):
    with refused_or_not():
        small(**{name: value}).fit(np.eye(9, 3))
        assert name == "random_state", "an odd parameter was taken"


# Files.


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run of two columns that compiles in a moment; its weights are untrained."""
    experiment = dataclasses.replace(
        find("toy/moons"),
        model=ModelConfig(hidden=(4,)),
        solve=SolveConfig() if EXAMPLES else SolveConfig(method="midpoint", num_steps=2),
    )
    made = Run.create(tmp_path_factory.mktemp("runs") / "run", experiment)
    save_arrays(made.weights, build_flow(experiment, made.source()))
    return made.path


def outcome(*words: str) -> tuple[int, str]:
    """Exit code and messages of a command."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        try:
            code = main([*words])
        except SystemExit as stopped:
            code = stopped.code
    assert code in (0, 1, 2), said.getvalue()
    assert code == 0 or said.getvalue().strip()
    assert "Traceback" not in said.getvalue()
    event(f"exit code {code}")
    return int(code), said.getvalue()


def score_bytes(run: Path, content: bytes, name: str) -> np.ndarray | None:
    """The scores of a file with this content, or None if it is refused, and then nothing is written."""
    with tempfile.TemporaryDirectory() as folder:
        points, out = Path(folder) / name, Path(folder) / "scores.npy"
        points.write_bytes(content)
        code, said = outcome("score", str(run), str(points), "--out", str(out))
        assert out.exists() == (code == 0)
        assert len([*Path(folder).iterdir()]) == 1 + (code == 0), "a temporary file was left"
        if code == 2:
            assert name in said
        return np.load(out) if code == 0 else None


CELLS = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["1", "-2.5", "0", " 3 ", "1e-30", "1e30", "1e-400", "+4", "1_0", ".5", "5."]),
    st.sampled_from(
        ["", " ", "nan", "inf", "1e400", "1e39", "x", '"1"', "0x10", "１", "−1", "1 2", "1e", "\0", "#", "1j"]
    ),
    st.text(max_size=5),
)


@st.composite
def csv_files(draw) -> tuple[bytes, int | None]:
    """A .csv file, and how many rows it has if it is sound."""
    sound, n = draw(st.booleans()), draw(st.integers(0, 14))
    if sound:
        cell = st.floats(-(2.0**99), 2.0**99, width=32).map(repr) | st.integers(-99, 99).map(str)
        lines = [",".join(draw(st.lists(cell, min_size=2, max_size=2))) for _ in range(n)]
    else:
        lines = [",".join(draw(st.lists(CELLS, max_size=3))) for _ in range(n)]
    for _ in range(draw(st.integers(0, 3))):
        lines.insert(draw(st.integers(0, len(lines))), draw(st.sampled_from(["", "  ", "\t"])))
    if draw(st.booleans()):
        lines.insert(0, draw(st.sampled_from(["x,y", "größe,höhe", "a", '"x","y"', "x,y,z"])))
    text = draw(st.sampled_from(["", "\ufeff"])) + draw(st.sampled_from(["\n", "\r\n", "\r"])).join(lines)
    encoding = "utf-8" if sound else draw(st.sampled_from(["utf-8"] * 6 + ["utf-16", "latin-1"]))
    return text.encode(encoding, errors="replace"), n if sound else None


@fuzz(80, file=csv_files())
def test_a_csv_file_is_scored_or_refused(run, file):
    content, rows = file
    scores = score_bytes(run, content, "points.csv")
    if rows is not None:
        assert (len(scores) if scores is not None else 0) == rows, "a row was dropped or refused"
    if scores is not None:
        assert not np.any(np.isnan(scores))
        written = [line for line in content.decode("utf-8-sig").replace("\r", "\n").split("\n") if line.strip()]
        assert len(written) - len(scores) in (0, 1)


@fuzz(60, content=st.binary(max_size=200), name=st.sampled_from(["points.csv", "points.npy"]))
def test_any_bytes_are_scored_or_refused(run, content, name):
    score_bytes(run, content, name)


@st.composite
def npy_files(draw) -> bytes:
    """A .npy file of some type, order and shape, perhaps cut short, lengthened or with some bytes changed."""
    shape = draw(
        st.sampled_from([(3, 2), (9, 2), (16, 2)] * 3 + [(), (2,), (3,), (0, 2), (3, 0), (3, 1), (3, 3), (2, 2, 2)])
    )
    x = np.random.default_rng(0).normal(size=shape) * draw(st.sampled_from([1.0, 1e-30, 1e30, 1.0, 1e60]))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = np.asarray(x).astype(draw(st.sampled_from(["f4"] * 12 + KINDS)))
    file = io.BytesIO()
    np.save(file, np.asarray(x, order=draw(st.sampled_from("CF"))), allow_pickle=True)
    content = bytearray(file.getvalue())
    match draw(st.sampled_from([""] * 5 + ["cut", "longer", "changed", "changed header"])):
        case "cut":
            del content[draw(st.integers(0, len(content) - 1)) :]
        case "longer":
            content += b"more"
        case "changed":
            content[draw(st.integers(0, len(content) - 1))] = draw(st.integers(0, 255))
        case "changed header":
            for _ in range(draw(st.integers(1, 3))):
                content[draw(st.integers(0, 90))] = draw(st.sampled_from(b"0123456789(),'{}:TFfiO<>|x\n \0\xff"))
    return bytes(content)


@fuzz(80, content=npy_files())
def test_a_npy_file_is_scored_or_refused(run, content):
    scores = score_bytes(run, content, "points.npy")
    if scores is not None:
        assert len(scores) == len(np.atleast_2d(np.load(io.BytesIO(content))))
        assert not np.any(np.isnan(scores))


ODD_NUMBERS = ["0", "-1", "1e3", "2.5", "", "x", "nan", "-", "９", *map(str, (2**63, -(2**63), 2**64))]
ODD_NAMES = ["x.CSV", "x.txt", "x", "", ".", "..", ".npy", "folder.csv", "missing/x.npy", "old.csv", "a" * 300 + ".csv"]


def mostly(sound: st.SearchStrategy, odd: list) -> st.SearchStrategy:
    """Three sound values to an odd one."""
    return st.one_of(sound, sound, sound, st.sampled_from(odd))


@fuzz(
    50,
    n=mostly(st.integers(1, 40 if EXAMPLES else 16).map(str), ODD_NUMBERS),
    seed=mostly(st.integers(0, 99).map(str), ODD_NUMBERS),
    out=mostly(st.sampled_from(["x.npy"] * 5 + ["x.csv"] * 5 + ["x.png"] * bool(EXAMPLES)), ODD_NAMES),
    more=mostly(st.just([]), [["--overwrite"], ["--bogus"], ["x"]]),
)
def test_sampling_works_or_is_refused(run, n, seed, out, more):
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        folder = Path(name)
        (folder / "folder.csv").mkdir()
        (folder / "old.csv").write_text("precious")
        code, _ = outcome("sample", str(run), "-n", n, "--seed", seed, "--out", out, *more)
        there = {path.name for path in folder.iterdir()} - {"folder.csv", "old.csv"}
        if code == 0:
            assert there == {out} - {"old.csv"}
            assert (folder / out).stat().st_size > 0
        else:
            assert not there
        if code or not more:
            assert (folder / "old.csv").read_text() == "precious"
        if code == 0 and out.endswith(".npy"):
            assert np.load(folder / out).shape == (int(n), 2)
            assert np.all(np.isfinite(np.load(folder / out)))


@fuzz(
    20,
    path=st.sampled_from(
        ["", ".", "points.csv", "no.npy", "-", "--", "folder.csv", "\n.csv", "~.npy", "\ud800.csv", "a" * 300 + ".csv"]
    ),
)
def test_odd_paths_are_refused(run, path):
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        (Path(name) / "folder.csv").mkdir()
        assert outcome("score", str(run), path, "--out", "s.csv")[0] == 2
        assert outcome("score", path, "points.csv", "--out", "s.csv")[0] == 2
        assert [p.name for p in Path(name).iterdir()] == ["folder.csv"]
