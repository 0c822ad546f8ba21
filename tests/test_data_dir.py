"""Runs on the paper's tables: data that are elsewhere, or not there at all."""

import dataclasses
import json

import numpy as np
import pytest

from ffjord.cli import main
from ffjord.data import sets
from ffjord.experiments import DataConfig, Experiment
from ffjord.experiments.catalog import EXPERIMENTS

TINY = (
    "--hidden 8 --method midpoint --num-steps 3 --steps 4 --batch-size 16 --validate-every 2 --steps-per-call 2 "
    "--test-divergence exact"
).split()


@pytest.fixture(scope="module", autouse=True)
def small_set(tmp_path_factory):
    """An experiment on a set of 40 / 20 / 20 rows of two columns, which is nowhere but where a test puts it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(sets.VARIABLE, raising=False)
        empty = tmp_path_factory.mktemp("cache")
        patch.setattr(sets.platformdirs, "user_cache_path", lambda _: empty)
        patch.setitem(sets.SETS, "gas", dataclasses.replace(sets.SETS["gas"], dim=2, rows=(40, 20, 20)))
        patch.setitem(EXPERIMENTS, "table/small", Experiment("table/small", data=DataConfig(name="gas")))
        yield


@pytest.fixture(autouse=True)
def read_anew():
    sets.load.cache_clear()


def place(folder, parts=("train", "val", "test")) -> str:
    """Puts the set into a data directory."""
    (folder / "gas").mkdir(parents=True)
    for part in parts:
        rows = np.random.default_rng(len(part)).normal(size=(40 if part == "train" else 20, 2))
        np.save(folder / "gas" / f"{part}.npy", rows)
    return str(folder)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A trained run whose data have gone."""
    folder = tmp_path_factory.mktemp("trained")
    sets.load.cache_clear()
    data = place(folder / "data")
    assert main(["train", "table/small", "--out", str(folder / "run"), "--data-dir", data, *TINY]) == 0
    (folder / "data").rename(folder / "moved")
    return folder / "run"


def refused(capsys, *words: str) -> str:
    capsys.readouterr()
    assert main([*words]) == 2
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return err


def test_evaluate_looks_elsewhere_and_leaves_the_run_as_it_is(run, tmp_path, capsys):
    config = (run / "config.json").read_text()
    message = refused(capsys, "evaluate", str(run))
    assert "gas: none of its files" in message
    assert "(--data-dir)" in message
    out = str(tmp_path / "results.json")
    data = place(tmp_path / "data")
    assert main(["evaluate", str(run), "--data-dir", data, "--out", out]) == 0
    assert json.loads((tmp_path / "results.json").read_text())["points"] == 20
    assert (run / "config.json").read_text() == config


def test_evaluate_needs_no_training_rows(run, tmp_path, capsys):
    out = str(tmp_path / "results.json")
    data = place(tmp_path / "data", parts=("val", "test"))
    assert main(["evaluate", str(run), "--data-dir", data, "--out", out]) == 0
    assert json.loads((tmp_path / "results.json").read_text())["points"] == 20


def test_samples_and_scores_need_no_data(run, tmp_path):
    points = tmp_path / "points.csv"
    assert main(["sample", str(run), "-n", "5", "--out", str(points)]) == 0
    assert main(["score", str(run), str(points), "--out", str(tmp_path / "scores.csv")]) == 0
    assert len((tmp_path / "scores.csv").read_text().splitlines()) == 6


def test_training_names_missing_data_before_it_writes(tmp_path, capsys):
    out = tmp_path / "run"
    words = ["train", "table/small", "--out", str(out), *TINY, "--data-dir"]
    assert "none of its files" in refused(capsys, *words, str(tmp_path / "nowhere"))
    assert not out.exists()
    data = place(tmp_path / "data", parts=("val", "test"))
    message = refused(capsys, *words, data)
    assert f"there are no rows to train on: {tmp_path / 'data' / 'gas' / 'train.npy'} is missing" in message
    assert not out.exists()


def test_resume_looks_elsewhere_and_remembers(run, tmp_path, capsys):
    assert "none of its files" in refused(capsys, "resume", str(run), "--steps", "6")
    sets.load.cache_clear()
    data = place(tmp_path / "data")
    assert main(["resume", str(run), "--steps", "6", "--data-dir", data]) == 0
    stored = json.loads((run / "config.json").read_text())
    assert stored["data"]["data_dir"] == data
    assert stored["train"]["steps"] == 6
    assert main(["evaluate", str(run), "--out", str(tmp_path / "results.json")]) == 0
