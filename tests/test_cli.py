"""The command line, as a person uses it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import ffjord
from ffjord.cli import COMMANDS, main
from ffjord.runs import Run

TINY = (
    "--hidden 8 8 --method midpoint --num-steps 3 --steps 8 --batch-size 32 --validate-every 4 --steps-per-call 2 "
    "--num-validation 64 --num-test 200"
).split()


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "moons"
    assert main(["train", "toy/moons", "--out", str(path), *TINY]) == 0
    return path


def fails(capsys, *words: str) -> str:
    """Runs a command that must be refused, with code 2 and one message; returns the message."""
    try:
        code = main(list(words))
    except SystemExit as stopped:
        code = stopped.code
    out, err = capsys.readouterr()
    assert code == 2
    assert "Traceback" not in out + err
    assert out == ""
    return err


def test_help_answers_without_jax():
    probe = """
import contextlib, sys
from ffjord.cli import COMMANDS, main
main(["--help"])
for command in COMMANDS:
    with contextlib.suppress(SystemExit):
        main([command, "--help"])
assert "jax" not in sys.modules
"""
    shown = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    for name in COMMANDS:
        assert name in shown.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([command, "--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert "examples:" in shown
    assert f"ffjord {command}" in shown


def test_python_m_ffjord_is_the_same_program():
    shown = subprocess.run([sys.executable, "-m", "ffjord", "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout == f"ffjord {ffjord.__version__}\n"


def test_list_names_every_toy(capsys):
    assert main(["list"]) == 0
    shown = capsys.readouterr().out
    for name in "swissroll 8gaussians pinwheel circles moons 2spirals checkerboard rings 1d picture".split():
        assert f"toy/{name}" in shown


def test_a_run_directory_holds_what_later_commands_need(run):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in rows if "loss" in row]
    assert [row["step"] for row in steps] == list(range(1, 9))
    assert {"loss", "nfe", "rejected", "seconds", "grad_norm"} <= steps[0].keys()
    assert [row["step"] for row in rows if "validation_loss" in row] == [4, 8]
    config = json.loads((run / "config.json").read_text())
    assert config["model"]["hidden"] == [8, 8]
    assert "jax" in json.loads((run / "versions.json").read_text())
    assert any((run / "checkpoints").iterdir())


def test_evaluate_writes_results_and_limits_points(run, capsys):
    assert main(["evaluate", str(run), "--limit", "50"]) == 0
    assert "test NLL" in capsys.readouterr().out
    results = json.loads((run / "results.json").read_text())
    assert results["points"] == 50
    flow, points = Run.open(run).flow(), Run.open(run).source().test(50)
    log_prob = np.asarray(flow.log_prob(points), np.float64)
    assert np.isclose(results["test_nll"], -log_prob.mean(), atol=1e-5)
    assert np.isclose(results["test_nll_stderr"], log_prob.std(ddof=1) / 50**0.5, atol=1e-5)
    assert results["nfe"] == 6
    assert results["divergence"] == "ClosedForm"


def test_samples_and_scores_agree_with_the_library(run, tmp_path):
    assert main(["sample", str(run), "-n", "20", "--out", str(tmp_path / "x.csv"), "--seed", "1"]) == 0
    assert main(["sample", str(run), "-n", "20", "--out", str(tmp_path / "x.npy"), "--seed", "1"]) == 0
    points = np.load(tmp_path / "x.npy")
    assert np.allclose(np.loadtxt(tmp_path / "x.csv", delimiter=",", skiprows=1), points, rtol=1e-7)
    assert main(["score", str(run), str(tmp_path / "x.csv"), "--out", str(tmp_path / "s.csv")]) == 0
    scores = np.loadtxt(tmp_path / "s.csv", skiprows=1)
    assert np.allclose(scores, Run.open(run).flow().log_prob(points), atol=1e-5)
    assert main(["score", str(run), str(tmp_path / "x.npy"), "--out", str(tmp_path / "s.npy")]) == 0
    assert np.allclose(np.load(tmp_path / "s.npy"), scores, atol=1e-5)


def test_sample_draws_a_picture(run, tmp_path):
    assert main(["sample", str(run), "-n", "50", "--out", str(tmp_path / "x.png")]) == 0
    with Image.open(tmp_path / "x.png") as picture:
        assert min(picture.size) > 100


def test_plot_draws_figure_and_animation(run, capsys):
    assert main(["plot", str(run), "--frames", "2"]) == 0
    for line in capsys.readouterr().out.splitlines():
        assert Path(line).stat().st_size > 1000
    with Image.open(run / "flow.gif") as animation:
        assert animation.n_frames >= 2


def test_training_is_reproducible_and_resuming_a_finished_run_changes_nothing(run, tmp_path):
    again = tmp_path / "again"
    assert main(["train", "toy/moons", "--out", str(again), *TINY]) == 0
    assert (again / "weights.npz").read_bytes() == (run / "weights.npz").read_bytes()
    before = (again / "metrics.jsonl").read_bytes()
    assert main(["resume", str(again)]) == 0
    assert (again / "metrics.jsonl").read_bytes() == before


def test_training_starts_from_the_weights_of_another_run(run, tmp_path, capsys):
    words = ["train", "toy/rings", "--out", str(tmp_path / "b"), *TINY, "--learning-rate", "1e-12"]
    assert main([*words, "--start-from", str(run)]) == 0
    assert f"starting from {run}: " in capsys.readouterr().out
    before, after = (np.load(path / "weights.npz") for path in (run, tmp_path / "b"))
    assert all(np.allclose(before[name], after[name], atol=1e-6) for name in before.files)
    assert main(["resume", str(tmp_path / "b"), "--start-from", str(tmp_path)]) == 2
    assert f"--start-from {tmp_path} is for the start of a training" in " ".join(capsys.readouterr().err.split())
    assert "has begun with adam" in fails(capsys, "resume", str(tmp_path / "b"), "--optimizer", "adamax")


def test_a_run_goes_on_without_the_one_it_started_from(run, tmp_path):
    shutil.copytree(run, tmp_path / "a")
    words = ["--out", str(tmp_path / "b"), *TINY, "--start-from", str(tmp_path / "a")]
    assert main(["train", "toy/rings", *words]) == 0
    shutil.rmtree(tmp_path / "a")
    assert main(["resume", str(tmp_path / "b"), "--steps", "12"]) == 0


def test_weights_that_fit_nowhere_are_refused_before_anything_is_written(run, tmp_path, capsys):
    words = ["train", "toy/rings", "--out", str(tmp_path / "b"), *TINY]
    assert "nowhere" in fails(capsys, *words, "--start-from", "nowhere")
    assert "no weights that fit" in fails(capsys, *words, "--kind", "glow", "--start-from", str(run))
    assert not (tmp_path / "b").exists()


def test_a_picture_becomes_part_of_its_run(tmp_path):
    pixels = np.full((16, 16), 255, np.uint8)
    pixels[4:12, 4:12] = 0
    Image.fromarray(pixels).save(tmp_path / "square.png")
    out = tmp_path / "run"
    assert main(["train", "toy/picture", "--image", str(tmp_path / "square.png"), "--out", str(out), *TINY]) == 0
    (tmp_path / "square.png").unlink()
    assert main(["evaluate", str(out), "--limit", "20"]) == 0


# What cannot be used is refused, before anything is written.


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["frobnicate"], "frobnicate"),
        (["train"], "name an experiment"),
        (["train", "toy/pinwhel"], "toy/pinwheel"),
        (["train", "toy/moons", "--bogus", "1"], "bogus"),
        (["train", "toy/moons", "--steps", "many"], "steps"),
        (["train", "toy/moons", "--steps", "0"], "steps"),
        (["train", "toy/moons", "--hidden", "0"], "hidden"),
        (["train", "toy/moons", "--rtol", "-1"], "rtol"),
        (["train", "toy/moons", "--method", "magic"], "magic"),
        (["train", "toy/moons", "--divergence", "closed-form"], "closed form"),
        (["train", "toy/picture"], "--image"),
        (["train", "toy/picture", "--image", "missing.png"], "missing.png"),
        (["evaluate"], "RUN"),
        (["evaluate", "missing"], "not a run directory"),
        (["evaluate", "pretrained/missing"], "not a run directory"),
        (["evaluate", "pretrained/toy-1d", "--out", "nowhere/results.json"], "no directory"),
        (["resume", "missing"], "not a run directory"),
        (["plot", "missing"], "not a run directory"),
        (["plot", "missing", "--frames", "1"], "--frames"),
        (["sample", "missing", "--out", "x.npy"], "not a run directory"),
        (["sample", "missing", "--out", "x.txt"], ".npy or .csv or .png"),
        (["sample", "missing", "--out", "nowhere/x.npy"], "no directory"),
        (["sample", "missing", "-n", "0", "--out", "x.npy"], "-n"),
        (["sample", "missing", "-n", str(10**18), "--out", "x.npy"], "GB that are free"),
        (["sample", "missing", "-n", str(10**8), "--out", "x.png"], "for a picture"),
        (["sample", "missing", "--seed", str(2**63), "--out", "x.npy"], "--seed"),
        (["sample", "missing", "--out", "x" * 300 + ".npy"], "cannot be written"),
        (["plot", "missing", "--seed", str(2**63)], "--seed"),
        (["score", "missing", "points.csv", "--out", "s.csv"], "not a run directory"),
    ],
)
def test_bad_words_are_refused_with_code_2(words, part, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert part in fails(capsys, *words)
    assert list(tmp_path.iterdir()) == []


def test_nothing_that_exists_is_overwritten(run, tmp_path, capsys):
    before = {path: path.read_bytes() for path in run.glob("*.*") if path.is_file()}
    assert "ffjord resume" in fails(capsys, "train", "toy/moons", "--out", str(run))
    (tmp_path / "notes.txt").write_text("mine")
    assert "not empty" in fails(capsys, "train", "toy/moons", "--out", str(tmp_path))
    (tmp_path / "x.npy").write_bytes(b"precious")
    assert "--overwrite" in fails(capsys, "sample", str(run), "--out", str(tmp_path / "x.npy"))
    assert (tmp_path / "x.npy").read_bytes() == b"precious"
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("damage", ["config", "truncated weights", "foreign weights", "no weights"])
def test_a_damaged_run_is_named(run, damage, tmp_path, capsys):
    broken = tmp_path / "broken"
    shutil.copytree(run, broken)
    match damage:
        case "config":
            (broken / "config.json").write_text("{")
        case "truncated weights":
            data = (broken / "weights.npz").read_bytes()
            (broken / "weights.npz").write_bytes(data[: len(data) // 2])
        case "foreign weights":
            np.savez(broken / "weights.npz", other=np.zeros(3))
        case "no weights":
            (broken / "weights.npz").unlink()
    message = fails(capsys, "evaluate", str(broken))
    assert str(broken) in message


def test_points_of_the_wrong_width_are_refused(run, tmp_path, capsys):
    (tmp_path / "points.csv").write_text("1,2,3\n")
    words = ["score", str(run), str(tmp_path / "points.csv"), "--out", str(tmp_path / "s.csv")]
    assert "expected 2 column" in fails(capsys, *words)
    assert not (tmp_path / "s.csv").exists()


def test_a_solve_that_fails_ends_with_its_message_and_no_number(run, tmp_path, capsys):
    stuck = tmp_path / "stuck"
    shutil.copytree(run, stuck, ignore=shutil.ignore_patterns("results.json"))
    config = json.loads((stuck / "config.json").read_text())
    config["solve"] |= {"method": "dopri5", "max_steps": 1}
    (stuck / "config.json").write_text(json.dumps(config))
    assert main(["evaluate", str(stuck), "--limit", "20"]) == 1
    assert "step limit" in capsys.readouterr().err
    assert not (stuck / "results.json").exists()
