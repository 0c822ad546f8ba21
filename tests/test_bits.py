"""Bits a dimension and where their errors come from, against densities that are known."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ffjord.bijections import CNF, Chain, Logit, Numerics, Standardize
from ffjord.bits import bits_per_dim, to_bits, to_nats
from ffjord.cli import main
from ffjord.data.pictures import Pictures
from ffjord.data.split import Split
from ffjord.divergence import Exact, Hutchinson
from ffjord.flow import Flow, StandardNormal
from ffjord.scoring import rows_at_once
from ffjord.solve import Solver

SHAPE, KEY = (2, 2, 1), jax.random.key(0)
SOLVER = Solver(method="rk4", num_steps=4)


class Linear:
    """f(t, z) = A z on a flattened image: its trace is known, and so is the variance of its estimate."""

    def __init__(self, matrix):
        self.matrix = matrix

    def __call__(self, t, z):
        return (self.matrix @ z.ravel()).reshape(z.shape)


jax.tree_util.register_pytree_node(Linear, lambda f: ((f.matrix,), None), lambda _, leaves: Linear(*leaves))


def pictures(n=40, levels=8, **kwargs) -> Pictures:
    rng = np.random.default_rng(0)
    images = lambda n: rng.integers(0, levels, (n, *SHAPE)).astype(np.uint8)
    split = Split(images(10), images(10), images(n))
    return Pictures(SHAPE, lambda: split, levels=levels, num_test=n, batch_size=4, seed=0, **kwargs)


def flow(divergence=None) -> Flow:
    scale = Standardize(jnp.zeros(SHAPE), 1.5 * jnp.ones(SHAPE))
    if divergence is None:
        return Flow(StandardNormal(SHAPE), Chain([scale, Logit(0.05)]))
    matrix = 0.3 * jax.random.normal(jax.random.key(3), (4, 4))
    cnf = CNF(Linear(matrix), testing=Numerics(divergence, SOLVER))
    return Flow(StandardNormal(SHAPE), Chain([cnf, scale, Logit(0.05)]))


def test_bits_of_a_uniform_density_are_those_of_the_levels():
    assert to_bits(0.0, 784, 256) == 8.0
    assert to_nats(to_bits(-123.4, 784, 256), 784, 256) == pytest.approx(123.4)


def test_mean_and_standard_error_over_all_images():
    source, model = pictures(), flow()
    found = bits_per_dim(model, source, key=KEY)
    bits = -np.asarray(model.log_prob(source.test()), np.float64) / (4 * np.log(2)) + 3
    assert found.images == 40
    assert found.bits_per_dim == pytest.approx(bits.mean(), rel=1e-6)
    assert found.stderr == pytest.approx(bits.std(ddof=1) / np.sqrt(40), rel=1e-5)
    assert (found.trace_stderr, found.trace_variance, found.noise_stderr) == (0.0, 0.0, None)


def test_draws_are_averaged_for_every_image_and_limit_takes_the_first():
    source, model = pictures(), flow()
    found = bits_per_dim(model, source, limit=20, draws=3, key=KEY)
    of = lambda draw: to_bits(np.asarray(model.log_prob(source.with_draw(draw).test(20)), np.float64), 4, 8)
    each = np.stack([of(draw) for draw in range(3)])
    assert found.bits_per_dim == pytest.approx(each.mean(), rel=1e-6)
    assert found.stderr == pytest.approx(each.mean(axis=0).std(ddof=1) / np.sqrt(20), rel=1e-5)
    assert found.noise_stderr == pytest.approx(np.sqrt(each.var(axis=0, ddof=1).mean() / 60), rel=1e-5)


def test_the_traces_part_is_the_variance_of_the_estimate():
    """Of a linear flow, log p varies by ∫ εᵀAε dt = εᵀAε: 2 (‖B‖² - Σ B_ii²) for random signs, B = (A + Aᵀ)/2."""
    n, model = 256, flow(Hutchinson("rademacher"))
    found = bits_per_dim(model, pictures(n), key=KEY)
    symmetric = np.asarray(0.3 * jax.random.normal(jax.random.key(3), (4, 4)), np.float64)
    symmetric = (symmetric + symmetric.T) / 2
    variance = 2 * (np.sum(symmetric**2) - np.sum(np.diagonal(symmetric) ** 2))
    assert found.trace_variance == pytest.approx(variance / n, rel=0.3)  # from 256 pairs: ±12% at one deviation
    assert found.trace_stderr == pytest.approx(np.sqrt(found.trace_variance) / (4 * np.log(2)), rel=1e-6)
    assert bits_per_dim(flow(Exact()), pictures(n), key=KEY).trace_stderr == 0.0


def test_long_rows_are_scored_few_at_a_time():
    of = lambda *shape: rows_at_once(Flow(StandardNormal(shape), flow().bijection))
    assert (of(63), of(8, 8, 1), of(28, 28, 1), of(32, 32, 3), of(10**6)) == (2048, 2048, 256, 64, 16)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("images") / "digits"
    tiny = "--hidden 2 --method midpoint --num-steps 2 --steps 2 --validate-every 2 --steps-per-call 2 --batch-size 8"
    assert main(["train", "image/digits", "--out", str(path), *tiny.split(), "--num-validation", "8"]) == 0
    return path


def test_evaluate_tells_bits_and_their_errors(run, capsys):
    assert main(["evaluate", str(run), "--limit", "10", "--draws", "2"]) == 0
    assert "bits/dim" in (shown := capsys.readouterr().out)
    assert "2 draws" in shown
    results = json.loads((run / "results.json").read_text())
    assert results["bits_per_dim"] == pytest.approx(to_bits(-results["test_nll"], 64, 17))
    assert 0 < results["trace_stderr"] < results["bits_per_dim_stderr"]
    assert (results["points"], results["draws"]) == (10, 2)


def test_evaluate_with_the_exact_trace_has_no_error_from_it(run, capsys):
    assert main(["evaluate", str(run), "--limit", "4", "--trace", "exact", "--out", str(run / "exact.json")]) == 0
    results = json.loads((run / "exact.json").read_text())
    assert (results["trace_stderr"], results["divergence"]) == (0.0, "Exact")


@pytest.mark.parametrize("words", [["--draws", "0"], ["--tolerance", "0"], ["--tolerance", "nan"]])
def test_evaluate_refuses_what_makes_no_sense(run, words, capsys):
    assert main(["evaluate", str(run), *words]) == 2
    assert words[0] in capsys.readouterr().err


def test_draws_are_for_images_only(capsys):
    assert main(["evaluate", "pretrained/toy-moons", "--draws", "2"]) == 2
    assert "--draws" in capsys.readouterr().err


def test_training_images_is_told_in_bits(tmp_path, capsys):
    words = "--hidden 2 --method midpoint --num-steps 2 --steps 2 --validate-every 2 --steps-per-call 2 --batch-size 8"
    assert main(["train", "image/digits", "--out", str(tmp_path / "run"), *words.split()]) == 0
    best = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])["validation_loss"]
    assert f"best validation loss {to_bits(-best, 64, 17):.4f} bits/dim" in capsys.readouterr().out


def test_a_missing_set_of_images_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("FFJORD_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["train", "image/mnist-fast", "--out", str(tmp_path / "run"), "--data-dir", str(tmp_path)]) == 2
    assert "train-images-idx3-ubyte" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_images_are_scored_from_a_file_and_cannot_be_checked(run, tmp_path, capsys):
    images = np.random.default_rng(0).integers(0, 17, (3, 8, 8, 1)).astype(np.uint8)
    np.save(tmp_path / "images.npy", images)
    assert main(["score", str(run), str(tmp_path / "images.npy"), "--out", str(tmp_path / "scores.npy")]) == 0
    scores = np.load(tmp_path / "scores.npy")
    assert scores.shape == (3,)
    assert np.isfinite(scores).all()
    assert main(["check", str(run)]) == 2
    assert "one of images" in capsys.readouterr().err
