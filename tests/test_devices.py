"""Work shared by devices and by processes: the same figures, and clear words when a peer is missing."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ffjord.cli import main
from ffjord.runs import Run
from tests.test_survival import SETTINGS, finish, lines, record, wait_for
from tests.test_survival import folder as folder
from tests.test_survival import programs as programs
from tests.test_survival import start as start

REAL = (
    "--hidden 8 8 --method midpoint --num-steps 3 --divergence hutchinson --norm moving --schedule constant "
    "--num-test 100"
).split() + SETTINGS


@pytest.fixture
def coordinator() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture(scope="module")
def alone(folder) -> Path:
    """Twenty steps in one process, then ten more."""
    path = folder / "alone"
    assert main(["train", "toy/moons", "--out", str(path), "--steps", "20", *REAL]) == 0
    assert main(["resume", str(path), "--steps", "30"]) == 0
    return path


def assert_close(one: Path, other: Path, *, steps: int = 30) -> None:
    """The same metrics of so many steps, but for the order of sums in float32."""
    rows = [[row for row in record(path) if row["step"] <= steps and "event" not in row] for path in (one, other)]
    for a, b in zip(*rows, strict=True):
        assert a.keys() == b.keys()
        for name in a:
            assert a[name] == pytest.approx(b[name], rel=2e-5, abs=2e-6), (a["step"], name)


def pair(start, coordinator, *words, real=True):
    """Two processes of one command."""
    join = ["--coordinator", coordinator, "--num-processes", "2", "--peer-minutes", "1"]
    return [start(*words, *join, "--process-id", i, real=real) for i in range(2)]


def test_two_processes_are_as_good_as_one_and_one_goes_on(alone, folder, start, coordinator, capsys):
    path = folder / "pair"
    (folder / "output").write_text("")
    for process in pair(start, coordinator, "train", "toy/moons", "--out", path, "--steps", 20, *REAL):
        assert finish(process) == 0, (folder / "output").read_text()
    assert (folder / "output").read_text().count("best validation loss") == 1, "one process speaks"
    assert main(["resume", str(path), "--steps", "30"]) == 0
    assert_close(alone, path)
    with np.load(alone / "weights.npz") as a, np.load(path / "weights.npz") as b:
        for name in a.files:
            np.testing.assert_allclose(a[name], b[name], rtol=1e-3, atol=1e-5)


def test_two_processes_evaluate_and_score_as_one(alone, folder, start, coordinator):
    points, scores = folder / "points.npy", folder / "scores.npy"
    np.save(points, np.random.default_rng(0).normal(size=(45, 2)))
    for process in pair(start, coordinator, "score", alone, points, "--out", scores):
        assert finish(process) == 0, (folder / "output").read_text()
    np.testing.assert_allclose(np.load(scores), Run.open(alone).flow().log_prob(np.load(points)), rtol=1e-5)


def test_local_devices_share_the_batch(alone, folder, start):
    path = folder / "devices"
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    assert finish(start("train", "toy/moons", "--out", path, "--steps", 20, *REAL, real=True, environment=flags)) == 0
    assert_close(alone, path, steps=20)
    (folder / "output").write_text("")
    odd = start("train", "toy/moons", "--out", folder / "odd", *REAL, "--batch-size", 33, environment=flags)
    assert finish(odd) == 2
    assert "multiple of the 2 devices; got 33" in (folder / "output").read_text()
    assert not (folder / "odd").exists()


SPREAD = """
import sys
import equinox as eqx, jax, numpy as np
import ffjord
from ffjord import devices
from ffjord.parameters import backward_nfe

assert jax.device_count() == 2
x = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)

@eqx.filter_jit
def value_and_grad(flow, x, key):
    def loss(flow):
        density = flow.density(x, train=True, key=key)
        return -density.log_prob.mean(), density
    return eqx.filter_value_and_grad(loss, has_aux=True)(flow)

def results(gradient, steps):
    solver = ffjord.Solver(rtol=1e-4, atol=1e-4, gradient=gradient, steps=steps)
    numerics = ffjord.Numerics(ffjord.Hutchinson(), solver)
    cnf = ffjord.CNF(ffjord.MLP(2, (8,), key=jax.random.key(0)), learn_end_time=True, training=numerics)
    flow = ffjord.Flow(ffjord.StandardNormal((2,)), cnf)
    alone = value_and_grad(flow, x, jax.random.key(1))
    with devices.spread():
        flow, key = devices.copied((flow, jax.random.key(1)))
        spread = value_and_grad(flow, devices.split(x), key)
        odd = value_and_grad(flow, devices.copied(x[:5]), key)
    return alone, spread, odd

for kind in sys.argv[1:]:
    gradient, steps = kind.split("-")
    ((loss, density), grad), ((loss2, density2), grad2), odd = results(gradient, steps)
    assert density.report.nfe == density2.report.nfe, (gradient, steps)
    np.testing.assert_allclose(density.log_prob, density2.log_prob, rtol=1e-5)
    assert backward_nfe(grad) == backward_nfe(grad2), (gradient, backward_nfe(grad), backward_nfe(grad2))
    for a, b in zip(jax.tree.leaves(grad), jax.tree.leaves(grad2), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    assert np.isfinite(odd[0][0])
print("the same")
"""


@pytest.mark.parametrize(
    "kinds",
    [
        ("checkpointed-batch",),
        pytest.param(("adjoint-batch", "checkpointed-worst", "direct-batch"), marks=pytest.mark.slow),
    ],
)
def test_solves_on_two_devices_take_the_same_steps_and_have_the_same_gradient(kinds):
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", SPREAD, *kinds], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "the same", done.stderr


@pytest.mark.parametrize("victim", [0, 1])
def test_a_peer_that_dies_is_a_clear_error(victim, folder, start, coordinator):
    path = folder / f"dying-{victim}"
    (folder / "output").write_text("")
    words = ["train", "toy/moons", "--out", path, "--steps", 1_000_000, *SETTINGS, "--patience", 1000_000]
    processes = pair(start, coordinator, *words, real=False)
    wait_for(lambda: lines(path) > 5, processes[0])
    os.kill(processes[victim].pid, signal.SIGKILL)
    assert finish(processes[1 - victim]) == 1
    output = (folder / "output").read_text()
    assert "lost contact with another process" in output
    assert "Traceback" not in output
    experiment = json.loads((path / "config.json").read_text())
    assert experiment["train"]["steps"] == 1_000_000


@pytest.mark.parametrize("number", [0, 1])
def test_a_peer_that_never_comes_is_a_clear_error(number, folder, start, coordinator):
    (folder / "output").write_text("")
    join = ["--coordinator", coordinator, "--num-processes", 2, "--process-id", number, "--peer-minutes", 0.03]
    assert finish(start("train", "toy/moons", "--out", folder / "lonely", *SETTINGS, *join)) == 1
    assert f"not all processes came together within 2 s at {coordinator}" in (folder / "output").read_text()
    assert not (folder / "lonely").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--num-processes", "2"], "need --coordinator"),
        (["--coordinator", "somewhere"], "ADDRESS:PORT"),
        (["--coordinator", "localhost:1"], "--num-processes and --process-id"),
        (["--coordinator", "localhost:1", "--num-processes", "2", "--process-id", "2"], "from 0 to 1; got 2"),
        (["--distributed", "--peer-minutes", "0"], "must be positive"),
        (["--distributed"], "without Slurm"),
    ],
)
def test_senseless_clusters_are_refused(words, message, tmp_path, capsys):
    assert main(["train", "toy/moons", "--out", str(tmp_path / "run"), *words]) == 2
    assert message.lower() in capsys.readouterr().err.lower()
    assert not (tmp_path / "run").exists()
