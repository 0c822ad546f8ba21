"""Scores and samples of many rows: the same as all at once, in chunks of one shape."""

import io
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import ffjord.scoring
from ffjord.cli import main
from ffjord.errors import SolveError
from ffjord.experiments.config import ModelConfig, SolveConfig
from ffjord.flow import Flow
from ffjord.models import ffjord as build_ffjord
from ffjord.progress import rows_bar
from ffjord.runs import load_pretrained
from ffjord.scoring import Moments, sample_blocks, score, score_blocks

SMALL = 16
SIZES = [1, SMALL - 1, SMALL, SMALL + 1, 3 * SMALL, 3 * SMALL + 5]


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(ffjord.scoring, "CHUNK", SMALL)


@pytest.fixture(scope="module")
def compilations():
    """A list that grows by one at every compilation."""
    began = []
    note = lambda event, *_, **__: began.append(event) if "backend_compile" in event else None
    jax.monitoring.register_event_duration_secs_listener(note)
    return began


@pytest.fixture(scope="module")
def flow() -> Flow:
    numerics = SolveConfig(method="midpoint", num_steps=2)
    return build_ffjord(2, ModelConfig(hidden=(4,)), numerics, key=jax.random.key(0))


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(max(SIZES), 2)).astype(np.float32)


@pytest.fixture(scope="module")
def expected(flow, rows) -> np.ndarray:
    return np.asarray(flow.log_prob(rows))


@pytest.mark.usefixtures("small_chunks")
def test_every_row_is_scored_in_its_place_by_one_program(flow, rows, expected, compilations):
    score(flow, rows[:1])
    before = len(compilations)
    for n in SIZES:
        np.testing.assert_allclose(score(flow, rows[:n]).log_prob, expected[:n], rtol=1e-6, atol=1e-6)
    assert len(compilations) == before


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("size", [1, 7, SMALL, 40, 1000])
def test_blocks_of_any_length_become_chunks(flow, rows, expected, size):
    told = []
    blocks = (rows[start : start + size] for start in range(0, len(rows), size))
    pieces = [*score_blocks(flow, blocks, len(rows), progress=lambda *now: told.append(now))]
    assert [len(piece.log_prob) for piece in pieces] == [SMALL, SMALL, SMALL, 5]
    assert told == [(16, 53), (32, 53), (48, 53), (53, 53)]
    np.testing.assert_allclose(np.concatenate([piece.log_prob for piece in pieces]), expected, rtol=1e-6, atol=1e-6)
    assert {piece.nfe for piece in pieces} == {4.0}


@pytest.mark.usefixtures("small_chunks")
def test_only_a_chunk_is_held_at_a_time(flow, rows):
    taken = []
    blocks = (taken.append(start) or rows[start : start + SMALL] for start in range(0, 48, SMALL))
    pieces = score_blocks(flow, blocks, 48)
    next(pieces)
    assert len(taken) == 1


def test_no_rows_are_refused(flow):
    with pytest.raises(ValueError, match="at least one row"):
        score(flow, np.empty((0, 2)))


@pytest.mark.usefixtures("small_chunks")
def test_a_failed_solve_names_its_rows():
    numerics = SolveConfig(max_steps=1)
    stuck = build_ffjord(2, ModelConfig(hidden=(4,)), numerics, key=jax.random.key(0))
    with pytest.raises(SolveError, match=r"rows 0 to 15: .*step limit"):
        score(stuck, np.zeros((20, 2)))


@pytest.mark.usefixtures("small_chunks")
def test_samples_come_in_chunks_of_one_program(flow, compilations):
    many = np.concatenate([*sample_blocks(flow, 53, key=jax.random.key(0))])
    before = len(compilations)
    assert many.shape == (53, 2)
    assert len(np.unique(many, axis=0)) == 53
    for n in SIZES:
        np.testing.assert_array_equal(np.concatenate([*sample_blocks(flow, n, key=jax.random.key(0))]), many[:n])
    assert len(compilations) == before


def test_moments_agree_with_numpy_far_from_zero():
    values = (1e6 + np.random.default_rng(0).normal(size=1000)).astype(np.float32)
    moments = Moments()
    for block in np.split(values, [1, 3, 500]):
        moments.add(block)
    assert moments.count == 1000
    assert moments.mean == pytest.approx(values.mean(dtype=np.float64), rel=1e-14)
    assert moments.standard_error == pytest.approx(values.std(ddof=1, dtype=np.float64) / 1000**0.5, rel=1e-9)


def test_moments_where_the_density_is_zero():
    moments = Moments()
    for block in ([1.0, 2.0], [-np.inf, 3.0], [4.0], [-np.inf]):
        moments.add(np.array(block))
    assert moments.mean == -np.inf
    assert np.isnan(moments.standard_error)


# The command.


@pytest.fixture
def small_command(monkeypatch):
    monkeypatch.setattr(ffjord.scoring, "CHUNK", SMALL)


def score_file(points: Path, out: Path) -> np.ndarray:
    assert main(["score", "pretrained/toy-1d", str(points), "--out", str(out)]) == 0
    return np.load(out) if out.suffix == ".npy" else np.loadtxt(out, skiprows=1, ndmin=1)


@pytest.mark.usefixtures("small_command")
def test_files_are_scored_as_arrays_are_by_one_program(tmp_path, compilations):
    flow, rows = load_pretrained("toy-1d"), np.linspace(-4, 4, max(SIZES), dtype=np.float32)[:, None]
    expected, before = score(flow, rows).log_prob, None
    for n in SIZES:
        np.save(tmp_path / "x.npy", rows[:n])
        np.savetxt(tmp_path / "x.csv", rows[:n], header="x", comments="")
        for kind in ("npy", "csv"):
            found = score_file(tmp_path / f"x.{kind}", tmp_path / f"{n}.{kind}")
            np.testing.assert_allclose(found, expected[:n], atol=1e-5)
        before = before or len(compilations)
    assert len(compilations) == before
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.usefixtures("small_command")
def test_nothing_is_left_behind_by_what_is_refused(tmp_path, capsys):
    path = tmp_path / "x.csv"
    path.write_text("1\n" * 100 + "two\n")
    assert main(["score", "pretrained/toy-1d", str(path), "--out", str(tmp_path / "s.csv")]) == 2
    assert "line 101: 'two'" in capsys.readouterr().err
    (tmp_path / "s.npy").mkdir()
    assert main(["score", "pretrained/toy-1d", str(path), "--out", str(tmp_path / "s.npy"), "--overwrite"]) == 2
    assert "is a directory" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.npy", "x.csv"]


@pytest.mark.usefixtures("small_command")
def test_nothing_is_left_behind_by_a_solve_that_fails(tmp_path, monkeypatch, capsys):
    def fail_later(flow, blocks, n, **_):
        yield from score_blocks(flow, blocks, n)
        raise SolveError("no more")

    np.save(tmp_path / "x.npy", np.zeros((20, 1)))
    monkeypatch.setattr(ffjord.scoring, "score_blocks", fail_later)
    assert main(["score", "pretrained/toy-1d", str(tmp_path / "x.npy"), "--out", str(tmp_path / "s.csv")]) == 1
    assert "no more" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


# Progress.


def test_plain_lines_now_and_then(capsys, monkeypatch):
    clock = iter([0.0, 4.0, 11.0, 12.0, 13.0, 21.5, 2000.0])
    monkeypatch.setattr("ffjord.progress.time.monotonic", lambda: next(clock))
    with rows_bar("scoring") as progress:
        for done in (1000, 2000, 3000, 4000, 5000):
            progress(done, 10_000)
        progress(6000, None)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "scoring: 2,000 of 10,000, 44 s left",
        "scoring: 5,000 of 10,000, 22 s left",
        "scoring: 6,000",
    ]


def test_a_terminal_gets_a_bar(monkeypatch):
    class Terminal(io.StringIO):
        isatty = lambda self: True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with rows_bar("scoring") as progress:
        progress(2000, None)
        progress(5000, 10_000)
    assert "5000/10000" in terminal.getvalue()
