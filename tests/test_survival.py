"""Runs that are stopped, killed, damaged or fail: they go on exactly, or say clearly why not."""

import dataclasses
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import ffjord.experiments.build as build
import ffjord.training.run as training
from ffjord.bijections import ActNorm, Chain, MovingNorm
from ffjord.cli import main
from ffjord.errors import InputError, Interrupted, StorageError, TrainingError
from ffjord.experiments import DataConfig, Experiment, ModelConfig, SolveConfig, TrainConfig, find
from ffjord.flow import Flow, StandardNormal
from ffjord.runs import Run
from ffjord.training.run import train_run
from tests.test_training import CONFIG, Log, run, square

BUILD_FLOW = build.build_flow
REAL = Experiment(
    "toy/moons",
    data=DataConfig("moons", num_validation=64),
    model=ModelConfig(hidden=(8, 8), norm="moving"),
    solve=SolveConfig(method="midpoint", num_steps=3, divergence="hutchinson"),
    train=TrainConfig(steps=40, batch_size=32, validate_every=8, steps_per_call=2, average=0.9, patience=3),
)
STEPS = 120
SETTINGS = (
    "--batch-size 32 --validate-every 10 --steps-per-call 2 --num-validation 64 --average 0.9 --patience 3".split()
)


def quick_flow(experiment, source) -> Flow:
    """A flow without a solve, which compiles in no time: what matters here is what happens around it."""
    return Flow(
        StandardNormal(source.event_shape), Chain([ActNorm(source.event_shape), MovingNorm(source.event_shape)])
    )


def use_quick_flow(patch) -> None:
    for module in (build, training):
        patch.setattr(module, "build_flow", quick_flow)


@pytest.fixture(scope="module", autouse=True)
def quick():
    """All runs of these tests have the quick flow, here and in other processes; their programs are shared."""
    with pytest.MonkeyPatch.context() as patch:
        use_quick_flow(patch)
        yield


def child(folder: str, words: list[str], real: bool, environment: dict[str, str]) -> None:
    """A program of its own: one command, its output in a file, its compiled programs shared with the others."""
    os.environ |= environment
    os.dup2(os.open(f"{folder}/output", os.O_WRONLY | os.O_APPEND | os.O_CREAT), 1)
    os.dup2(1, 2)
    if not real:
        use_quick_flow(pytest.MonkeyPatch())
    sys.exit(main(words))


@pytest.fixture(scope="module")
def programs():
    """A server that has imported the library and forks children quickly."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["ffjord.cli.train", "ffjord.cli.resume", "ffjord.training.run"])
    return context


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("survival")


@pytest.fixture(scope="module")
def start(programs, folder):
    """Starts `ffjord WORDS` in a process of its own."""

    def launch(*words: object, real: bool = False, environment: dict[str, str] | None = None):
        process = programs.Process(target=child, args=(str(folder), [*map(str, words)], real, environment or {}))
        process.start()
        return process

    return launch


def finish(process) -> int:
    process.join(120)
    assert process.exitcode is not None, "it hangs"
    return process.exitcode


def lines(path: Path) -> int:
    metrics = path / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


def wait_for(condition, process, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not condition() and process.is_alive() and time.monotonic() < until:
        time.sleep(0.002)


def record(path: Path) -> list[dict]:
    """Metrics, without what the clock says."""
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def final_state(path: Path) -> dict[str, np.ndarray]:
    """All arrays of the last checkpoint: weights, optimiser, averages, best model, counters."""
    from ffjord.training.checkpoint import Checkpoints

    checkpoints = Checkpoints(path / "checkpoints")
    arrays = checkpoints._read(checkpoints.steps()[0])
    checkpoints.close()
    return {name: array for name, array in arrays.items() if name != ".seconds"}


def assert_same(one: Path, other: Path) -> None:
    assert record(one) == record(other)
    a, b = final_state(one), final_state(other)
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)
    with np.load(one / "weights.npz") as a, np.load(other / "weights.npz") as b:
        assert all(np.array_equal(a[name], b[name]) for name in a.files)


@pytest.fixture(scope="module")
def straight(start, folder) -> Path:
    """120 steps in one go."""
    path = folder / "straight"
    code = finish(start("train", "toy/moons", "--out", path, "--steps", STEPS, *SETTINGS))
    assert code == 0, (folder / "output").read_text()
    return path


def copy(path: Path, to: Path) -> Path:
    shutil.copytree(path, to)
    return to


def checkpoint_files(path: Path, step: int) -> list[Path]:
    """Files of a checkpoint, the largest first."""
    files = [file for file in (path / "checkpoints" / str(step)).rglob("*") if file.is_file()]
    return sorted(files, key=lambda file: -file.stat().st_size)


def test_twenty_steps_and_twenty_more_are_forty(tmp_path, monkeypatch):
    """With a real flow: noise, averages and statistics included. Stopped by a signal, between two validations."""
    monkeypatch.undo()
    for module in (build, training):
        monkeypatch.setattr(module, "build_flow", BUILD_FLOW)
    one, two = Run.create(tmp_path / "one", REAL), Run.create(tmp_path / "two", REAL)
    train_run(one, one.source(), show=lambda row: None)

    def stop_at_twenty(row):
        if row["step"] == 20 and "loss" in row:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted, match=f"SIGTERM after step 20.*ffjord resume {two.path}") as stopped:
        train_run(two, two.source(), show=stop_at_twenty)
    assert stopped.value.exit_code == 128 + signal.SIGTERM
    assert [row["step"] for row in record(two.path)][-1] == 20
    train_run(two, two.source(), show=lambda row: None)
    assert_same(one.path, two.path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_save_and_say_how_to_go_on(number, straight, folder, start):
    path = folder / f"signal-{number}"
    (folder / "output").write_text("")
    process = start("train", "toy/moons", "--out", path, "--steps", STEPS, *SETTINGS)
    wait_for(lambda: lines(path) > 5, process)
    os.kill(process.pid, number)
    assert finish(process) == 128 + number
    output = (folder / "output").read_text()
    assert f"ffjord resume {path}" in output
    assert "Traceback" not in output
    assert 0 < lines(path) < lines(straight)
    assert finish(start("resume", path)) == 0
    assert_same(straight, path)


@pytest.mark.parametrize("kills", [4, pytest.param(10, marks=pytest.mark.slow)])
def test_kills_in_a_row_change_nothing(kills, straight, folder, start):
    """At random moments, of which many fall into the writing of a checkpoint: one follows the other."""
    path, rng = folder / f"killed-{kills}", random.Random(0)
    Run.create(path, often_saved(Run.open(straight).experiment))
    for _ in range(kills):
        before, more = lines(path), rng.choice([0, 2, 6, 10])
        process = start("resume", path)
        wait_for(lambda before=before, more=more: lines(path) > before + more, process)
        time.sleep(rng.uniform(0, 0.1))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
    assert lines(path) < lines(straight)
    assert finish(start("resume", path)) == 0
    assert record(path)[-1]["step"] == STEPS
    Run.open(path).change(Run.open(straight).experiment)
    assert_same(straight, path)


def often_saved(experiment):
    """The same training, with a checkpoint after every compiled call."""
    return dataclasses.replace(experiment, train=dataclasses.replace(experiment.train, checkpoint_minutes=1e-9))


@pytest.mark.parametrize("damage", ["truncated", "altered", "missing"])
def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_is_taken(damage, straight, folder, tmp_path):
    path = copy(straight, tmp_path / "run")
    newest, before = sorted((int(p.name) for p in (path / "checkpoints").iterdir()), reverse=True)
    file = checkpoint_files(path, newest)[0]
    data = file.read_bytes()
    match damage:
        case "truncated":
            file.write_bytes(data[: len(data) // 2])
        case "altered":
            file.write_bytes(data[:-40] + bytes(byte ^ 255 for byte in data[-40:-30]) + data[-30:])
        case "missing":
            shutil.rmtree(path / "checkpoints" / str(newest) / "default")
    told, run = [], Run.open(path)
    state = train_run(run, run.source(), show=lambda row: None, tell=told.append)
    assert int(state.step) == newest
    assert f"step {newest} is damaged" in told[0]
    assert f"from step {before}" in told[0]
    assert (path / "damaged" / str(newest)).is_dir()
    assert_same(straight, path)


def test_any_altered_byte_of_a_checkpoint_is_noticed(straight, tmp_path):
    """Or makes no difference to what is read."""
    from ffjord.training.checkpoint import Checkpoints

    path, rng = copy(straight, tmp_path / "run"), random.Random(1)
    newest = max(int(p.name) for p in (path / "checkpoints").iterdir())
    whole, noticed = final_state(path), 0
    for file in checkpoint_files(path, newest)[:4] * 5:
        data = bytearray(file.read_bytes())
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        before = file.read_bytes()
        file.write_bytes(data)
        checkpoints = Checkpoints(path / "checkpoints")
        try:
            arrays = checkpoints._read(newest)
        except Exception:
            noticed += 1
        else:
            assert all(np.array_equal(arrays[name], whole[name]) for name in whole)
        checkpoints.close()
        file.write_bytes(before)
    assert noticed >= 5


def test_if_no_checkpoint_is_whole_the_run_is_refused_and_nothing_is_lost(straight, tmp_path):
    path = copy(straight, tmp_path / "run")
    for checkpoint in (path / "checkpoints").iterdir():
        for file in checkpoint_files(path, int(checkpoint.name))[:3]:
            file.write_bytes(b"")
    files = sorted(p for p in path.rglob("*") if p.is_file())
    run = Run.open(path)
    with pytest.raises(InputError, match=r"no checkpoint .* can be read.*step 120"):
        train_run(run, run.source(), show=lambda row: None)
    assert sorted(p for p in path.rglob("*") if p.is_file()) == files


def test_metrics_cut_off_or_garbled_are_mended(straight, tmp_path):
    path = copy(straight, tmp_path / "run")
    (path / "metrics.jsonl").write_bytes((path / "metrics.jsonl").read_bytes() + b'\xff\xfe\n[1]\n{"step": 12')
    run = Run.open(path)
    train_run(run, run.source(), show=lambda row: None)
    assert_same(straight, path)


def test_missing_weights_come_back_from_the_checkpoint(straight, tmp_path):
    path = copy(straight, tmp_path / "run")
    (path / "weights.npz").unlink()
    run = Run.open(path)
    train_run(run, run.source(), show=lambda row: None)
    assert_same(straight, path)


def test_a_run_without_config_is_no_run(straight, tmp_path, capsys):
    path = copy(straight, tmp_path / "run")
    (path / "config.json").unlink()
    assert main(["resume", str(path)]) == 2
    assert "no config.json" in capsys.readouterr().err


def test_two_trainings_in_one_directory_are_one_too_many(straight, tmp_path, capsys):
    run = Run.open(copy(straight, tmp_path / "run"))
    with run.locked():
        assert main(["resume", str(run.path)]) == 2
    assert f"another training is at work in {run.path} (process {os.getpid()}" in capsys.readouterr().err
    with run.locked():
        pass


def test_a_run_that_died_while_it_was_made_is_made_again(tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    for name in ("versions.json", ".config.123", ".lock"):
        (path / name).write_text("")
    assert Run.create(path, find("toy/moons")).path == path
    with pytest.raises(InputError, match="already holds a run"):
        Run.create(path, find("toy/moons"))


def test_a_full_disk_stops_training_and_keeps_the_run(straight, tmp_path):
    """Metrics that go to a device which is always full."""
    path = copy(straight, tmp_path / "run")
    newest = max(int(p.name) for p in (path / "checkpoints").iterdir())
    shutil.rmtree(path / "checkpoints" / str(newest))
    run = Run.open(path)
    (path / "metrics.jsonl").unlink()
    (path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(StorageError, match=rf"No space left.*step \d+ is whole.*ffjord resume {path}"):
        train_run(run, run.source(), show=lambda row: None)
    (path / "metrics.jsonl").unlink()
    assert int(train_run(run, run.source(), show=lambda row: None).step) == STEPS


@pytest.fixture
def small_disk(tmp_path):
    """A file system of a few hundred kilobytes."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", place], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("a file system can be mounted by root only")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_disk_that_fills_up_stops_training_and_room_lets_it_go_on(straight, small_disk, capsys):
    path = small_disk / "run"
    run = Run.create(path, often_saved(Run.open(straight).experiment))
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(250_000))
    with pytest.raises(StorageError, match=rf"No space left on device.*ffjord resume {path}"):
        train_run(run, run.source(), show=lambda row: None)
    ballast.unlink()
    subprocess.run(["mount", "-o", "remount,size=8m", small_disk], check=True)
    assert int(train_run(run, run.source(), show=lambda row: None).step) == STEPS
    run.change(Run.open(straight).experiment)
    assert_same(straight, path)


def test_a_read_only_directory_is_named_and_still_serves_for_reading(straight, small_disk, capsys):
    path = copy(straight, small_disk / "run")
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    assert main(["resume", str(path)]) == 2
    assert main(["train", "toy/moons", "--out", str(small_disk / "new"), *SETTINGS]) == 2
    assert capsys.readouterr().err.count("Read-only file system") == 2
    assert main(["evaluate", str(path), "--limit", "32"]) == 0
    out, err = capsys.readouterr()
    assert "test NLL" in out
    assert "not written" in out + err


class Events(Log):
    def __init__(self):
        super().__init__()
        self.events = []

    def event(self, row):
        self.events.append(row)


def test_failing_steps_go_back_with_a_smaller_step_and_then_give_up():
    broken = lambda model, x, key: (jnp.nan * square(model, x, key)[0], square(model, x, key)[1])
    config = dataclasses.replace(CONFIG, steps=200, max_failures=5, max_rollbacks=2)
    log = Events()
    with pytest.raises(TrainingError, match=r"5 steps in a row failed.*2 times.*tolerances.*kvaerno5") as failed:
        run(config, objective=broken, log=log)
    assert [row["event"] for row in log.events] == ["rollback", "rollback", "gave up"]
    assert [row["step"] for row in log.events] == [5, 10, 15]
    np.testing.assert_allclose([row["rate_scale"] for row in log.events], [1 / 3, 1 / 9, 1 / 27], rtol=1e-6)
    assert all(not row["sound"] for row in log.rows)
    state = failed.value.state
    np.testing.assert_array_equal(state.model.weight, np.ones((2, 2)))
    assert (int(state.skipped), int(state.failures), int(state.rollbacks)) == (15, 0, 0)


class Gap:
    """Batches of ones, but of zeros in steps 13 to 17."""

    event_shape, num_test = (2,), 4

    def batches(self, step, count):
        return np.stack([np.full((16, 2), float(not 12 <= step + i < 17), np.float32) for i in range(count)])

    def validation(self):
        return np.ones((4, 2), np.float32)

    def test(self, limit=None):
        return np.ones((4, 2), np.float32)

    def test_blocks(self, limit=None):
        yield self.test(limit)


def test_going_back_is_to_the_last_validation_and_training_goes_on_from_there():
    def fails_in_the_gap(model, x, key):
        loss, progress = square(model, x, key)
        return loss * jnp.where(jnp.all(x == 0), jnp.nan, 1.0), progress

    config = dataclasses.replace(CONFIG, steps=30, max_failures=3, steps_per_call=1, validate_every=10)
    log = Events()
    state, _ = run(config, objective=fails_in_the_gap, log=log, source=Gap())
    assert [(row["event"], row["step"]) for row in log.events] == [("rollback", 15)]
    assert (int(state.step), int(state.skipped), int(state.rollbacks)) == (30, 5, 1)
    losses = {row["step"]: row["loss"] for row in log.rows}
    assert losses[18] == losses[11], "the weights of step 10 again"
    assert losses[30] < losses[18]
