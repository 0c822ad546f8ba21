"""Autoencoders as experiments: their settings, and what the commands do with them.

Most tests have a small autoencoder, which compiles in no time, in place of the paper's.
"""

import dataclasses
import json
import math
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest
from PIL import Image

from ffjord.arrays import load_arrays
from ffjord.bijections import CNF, Numerics
from ffjord.bijections.amortized import Amortized
from ffjord.cli import main
from ffjord.data.discrete import discrete_set
from ffjord.divergence import ClosedForm, Hutchinson
from ffjord.dynamics.low_rank import LowRankMLP
from ffjord.experiments import build, find
from ffjord.experiments.vae import AUTOENCODERS, COMPARED_AUTOENCODERS
from ffjord.report.autoencoder import figure_of_latent
from ffjord.reproduce import table3
from ffjord.reproduce.recipes import changed
from ffjord.runs import Run
from ffjord.solve import Solver
from ffjord.training.loop import check
from ffjord.vae import VAE, Categorical, Posterior
from ffjord.vae.build import build_vae
from ffjord.vae.scoring import bounds, importance_sampled

BUILD_VAE = build_vae
SETTINGS = "--steps 6 --validate-every 3 --batch-size 16 --steps-per-call 1 --kl-warmup 2".split()


class Net(eqx.Module):
    """One linear layer."""

    linear: eqx.nn.Linear
    shape: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, x):
        return self.linear(x.ravel()).reshape(self.shape)


def small_vae(shape, levels, model, solve=None, regularization=None, *, key) -> VAE:
    """Linear networks, and a continuous posterior over a plane."""
    keys, size = jax.random.split(key, 5), math.prod(shape)
    numerics = [Numerics(how, Solver("midpoint", num_steps=2)) for how in (Hutchinson(), ClosedForm())]
    net = LowRankMLP(2, (4,), rank=1, key=keys[0])
    flow = Amortized(CNF(net, training=numerics[0], testing=numerics[1]), net.part_sizes, 3, key=keys[1])
    return VAE(
        Net(eqx.nn.Linear(size, 3, key=keys[2]), (3,)),
        Posterior(3, 2, flow, key=keys[3]),
        Net(eqx.nn.Linear(2, size * levels, key=keys[4]), (*shape[:2], levels)),
        Categorical(levels),
        2,
        shape,
    )


@pytest.fixture(scope="module", autouse=True)
def small():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "build_vae", small_vae)
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Trained for a moment on the small digits."""
    path = tmp_path_factory.mktemp("runs") / "digits"
    assert main(["train", "vae/digits", "--out", str(path), *SETTINGS]) == 0
    return path


def fails(capsys, *words: str) -> str:
    try:
        code = main(list(words))
    except SystemExit as stopped:
        code = stopped.code
    assert code == 2
    return " ".join(capsys.readouterr().err.split())


# Settings


@pytest.mark.parametrize(
    "name", ["vae/frey", "vae/caltech-fast", "vae/omniglot-bias", "vae/mnist-none", "vae/frey-orthogonal", "vae/digits"]
)
def test_experiments_build(name):
    experiment = find(name)
    check(experiment.train)
    about = discrete_set(experiment.data.name)
    configs = (experiment.model, experiment.solve, experiment.regularization)
    vae = eqx.filter_eval_shape(lambda: BUILD_VAE(about.shape, about.levels, *configs, key=jax.random.key(0)))
    assert vae.event_shape == about.shape
    assert (vae.pixels.top + 1, vae.posterior.limits) == (about.levels, (0.01, 7.0) if about.levels > 2 else None)
    assert experiment.train.objective == "elbo"
    assert build.build_source(experiment).event_shape == about.shape
    assert type(experiment).from_dict(experiment.to_dict()) == experiment


def test_a_few_words_tell_what_depends_on_the_image():
    assert find("vae/frey-fast").model.in_short() == "2 × 512-512 softplus, rank 20, latent 64"
    assert find("vae/frey-bias").model.in_short() == "2 × 512-512 softplus, amortised: bias, latent 64"


def test_names_are_unique_and_all_are_found():
    names = [experiment.name for experiment in [*AUTOENCODERS, *COMPARED_AUTOENCODERS]]
    assert len(names) == len(set(names))
    assert [find(name).name for name in names] == names


@pytest.mark.parametrize(
    ("name", "architecture", "epoch"),
    [
        ("mnist", ("softplus", (1024, 1024), 2, 64), 500),
        ("omniglot", ("softplus", (512, 512), 5, 20), 230),
        ("frey", ("softplus", (512, 512), 2, 20), 16),
        ("caltech", ("tanh", (2048,), 1, 20), 41),
    ],
)
def test_the_papers_settings(name, architecture, epoch):
    experiment = find(f"vae/{name}")
    model, solve, train = experiment.model, experiment.solve, experiment.train
    assert (model.nonlinearity, model.hidden, model.flows, model.rank) == architecture
    assert (model.latent, model.end_time, model.amortization) == (64, 0.5, "low-rank")
    assert (solve.rtol, solve.atol, solve.test_rtol, solve.gradient) == (1e-5, 1e-5, 1e-5, "adjoint")
    assert (solve.divergence, solve.test_divergence) == ("hutchinson", "auto")
    assert (train.batch_size, train.learning_rate, train.schedule) == (100, 1e-3, "constant")
    assert (train.validate_every, train.kl_warmup, train.patience, train.drops) == (epoch, 100 * epoch, 100, 0)
    assert experiment.data.num_validation == discrete_set(experiment.data.name).rows[1]


def test_numbers_of_parameters_are_those_of_the_architecture():
    """Encoder and decoder by hand: gated layers have two convolutions, each with kernel and bias."""
    experiment, about = find("vae/caltech-none"), discrete_set("vae/caltech")
    vae = eqx.filter_eval_shape(lambda: BUILD_VAE(about.shape, about.levels, experiment.model, key=jax.random.key(0)))
    gated = lambda m, n, size: 2 * (m * n * size + n)
    down = [(1, 32), (32, 32), (32, 64), (64, 64), (64, 64)]
    up = [(64, 64), (64, 32), (32, 32), (32, 32), (32, 32)]
    expected = sum(gated(m, n, 25) for m, n in [*down, *up]) + gated(64, 256, 49)
    expected += 2 * (
        64 * 64 * 49 + 64 * 49
    )  # a transposed convolution of 7 × 7 from a point, with a bias for each place
    expected += 32 + 1 + 2 * (256 * 64 + 64)
    assert sum(leaf.size for leaf in jax.tree.leaves(vae)) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["toy/moons", "--posterior", "ffjord"], "posterior is for autoencoders, such as vae/frey; toy/moons is none"),
        (["toy/moons", "--objective", "elbo"], "objective must be likelihood or flow-matching for toy/moons"),
        (["vae/digits", "--objective", "likelihood"], "objective must be elbo for vae/digits; got 'likelihood'"),
        (["vae/digits", "--posterior", "None"], "posterior: vae/digits is an autoencoder and needs one"),
        (["vae/digits", "--kl-warmup", "-1"], "kl_warmup must not be negative; got -1"),
        (["vae/digits", "--shuffle", "1"], "digits is split by its files; leave shuffle=1 out"),
        (["vae/frey", "--data-dir", "nowhere"], "frey: none of its files (freyfaces/frey_rawface.mat) was found"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_written(tmp_path, capsys, words, message):
    assert message in fails(capsys, "train", *words, "--out", str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "glow"}, "kind must be ffjord in an autoencoder; got 'glow'"),
        ({"layer": "squash"}, "layer must be concat in an autoencoder"),
        ({"latent": 0}, "latent must be at least 1; got 0"),
        ({"image_scale": 0.0}, "image_scale must be a positive number; got 0.0"),
        ({"matrix_scale": -1.0}, "matrix_scale must be a positive number; got -1.0"),
        ({"posterior": "orthogonal", "columns": 9}, "columns must be between 1 and dim, 8; got 9"),
    ],
)
def test_wrong_architectures_are_named(changes, message):
    model = dataclasses.replace(find("vae/digits").model, **changes)
    with pytest.raises(ValueError, match=message):
        BUILD_VAE((8, 8, 1), 17, model, key=jax.random.key(0))


def test_penalties_need_paths():
    experiment = find("vae/digits-none")
    regularization = dataclasses.replace(experiment.regularization, kinetic=0.1)
    with pytest.raises(ValueError, match="kinetic: only the posterior ffjord has paths"):
        BUILD_VAE((8, 8, 1), 17, experiment.model, experiment.solve, regularization, key=jax.random.key(0))


# Training


def test_training_validates_the_bound_and_goes_on_exactly(run, tmp_path, capsys):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    validations = [row for row in rows if "validation_loss" in row]
    assert [row["step"] for row in validations] == [3, 6]
    opened = Run.open(run)
    vae, source = opened.model(), opened.source()
    x, key = source.validation(), jax.random.fold_in(jax.random.key(0), 2)
    kept = min(row["validation_loss"] for row in validations)
    padded = np.concatenate([x, np.repeat(x[-1:], 256 - len(x), axis=0)])
    found = vae.elbo(padded, key=jax.random.fold_in(key, 0))
    assert kept == pytest.approx(-float(np.mean(found.value[: len(x)])), rel=1e-5)
    assert {"kl", "negative_elbo", "nfe"} <= set(rows[0])
    again = tmp_path / "again"
    assert main(["train", "vae/digits", "--out", str(again), *SETTINGS, "--steps", "3"]) == 0
    assert main(["resume", str(again), "--steps", "6"]) == 0
    assert "bits/dim" in capsys.readouterr().out
    one, two = (load_arrays(path / "weights.npz", vae) for path in (run, again))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_array_equal(a, b)


def test_patience_begins_after_the_warm_up(tmp_path):
    words = [*SETTINGS, "--steps", "40", "--patience", "1", "--learning-rate", "1e-12", "--kl-warmup", "20"]
    assert main(["train", "vae/digits", "--out", str(tmp_path / "run"), *words]) == 0
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert 20 < rows[-1]["step"] < 40


# Evaluation


def test_evaluation_tells_the_bound_its_parts_and_the_likelihood(run, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["evaluate", str(run), "--limit", "40", "--importance", "30", "--draws", "2"]) == 0
    shown = capsys.readouterr().out
    for word in ("test negative ELBO", "KL(q(z | x), p(z))", "bits/dim", "by 30 samples an image", "ClosedForm"):
        assert word in shown
    found = json.loads((run / "results.json").read_text())
    assert found["negative_elbo"] == pytest.approx(found["reconstruction"] + found["kl"], rel=1e-6)
    assert found["negative_elbo_bits_per_dim"] == pytest.approx(found["negative_elbo"] / (64 * math.log(2)), rel=1e-6)
    assert found["test_nll"] < found["negative_elbo"] + 3 * found["negative_elbo_stderr"]
    assert (found["points"], found["draws"], found["importance_samples"], found["nfe"]) == (40, 2, 30, 4)


def test_bounds_are_means_over_draws_and_more_samples_are_closer_to_the_likelihood(run):
    opened = Run.open(run)
    vae, source, key = opened.model(), opened.source(), jax.random.key(0)
    found = bounds(vae, source, limit=50, draws=3, key=key)
    x = source.test(50)
    padded = np.concatenate([x, np.repeat(x[-1:], 14, axis=0)])
    draws = [vae.elbo(padded, key=jax.random.fold_in(jax.random.fold_in(key, d), 0)) for d in range(3)]
    values = np.mean([np.asarray(draw.value)[:50] for draw in draws], axis=0)
    assert found.negative_elbo.mean == pytest.approx(-values.mean(), rel=1e-5)
    assert found.negative_elbo.stderr == pytest.approx(values.std(ddof=1) / math.sqrt(50), rel=1e-4)
    one = importance_sampled(vae, source, 1, limit=50, key=key)  # of one sample, it is the bound
    assert one.mean == pytest.approx(-values.mean(), abs=6 * one.stderr)
    many = importance_sampled(vae, source, 64, limit=50, key=key)
    assert many.mean < one.mean


# Samples and pictures


def test_samples_are_images(run, tmp_path, capsys):
    path = tmp_path / "x.npy"
    assert main(["sample", str(run), "-n", "5", "--seed", "3", "--out", str(path)]) == 0
    x = np.load(path)
    assert (x.shape, x.dtype) == ((5, 8, 8, 1), np.uint8)
    expected = Run.open(run).model().sample(16, key=jax.random.fold_in(jax.random.key(3), 0))
    np.testing.assert_array_equal(x, np.asarray(expected)[:5])
    for words in (["--means"], ["--temperature", "0.5"]):
        assert main(["sample", str(run), "-n", "6", *words, "--out", str(tmp_path / f"{words[0][2:]}.png")]) == 0
    with Image.open(tmp_path / "means.png") as picture:
        assert len(np.unique(np.asarray(picture))) > 17
    assert "not as .csv" in fails(capsys, "sample", str(run), "--out", str(tmp_path / "x.csv"))


def test_pictures(run):
    assert main(["plot", str(run), "--samples", "6", "--temperatures", "1"]) == 0
    for name in ("samples", "reconstructions", "latent"):
        with Image.open(run / f"{name}.png") as picture:
            assert min(picture.size) > 100


def test_the_page_tells_the_bound_and_shows_images(run, tmp_path):
    words = ["--limit", "20", "--importance", "2", "--out", str(run / "results.json"), "--overwrite"]
    assert main(["evaluate", str(run), *words]) == 0
    assert main(["report", str(run), "--out", str(tmp_path / "page.html")]) == 0
    text = (tmp_path / "page.html").read_text()
    found = json.loads((run / "results.json").read_text())["negative_elbo_bits_per_dim"]
    for word in ("test −ELBO", "KL(q(z | x), p(z))", "by 2 samples an image", "reconstructions</h4>", f"{found:.2f}"):
        assert word in text
    assert "cannot be drawn" not in text


def test_only_a_plane_has_a_picture(run):
    vae = dataclasses.replace(Run.open(run).model(), latent=3)
    with pytest.raises(ValueError, match="two dimensions has a picture; this has 3"):
        figure_of_latent(vae, np.zeros((1, 8, 8, 1)), key=jax.random.key(0))


# What makes no sense


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["check", "RUN"], "is a variational autoencoder, of whose density only a bound is known"),
        (["compare", "RUN", "RUN"], "is a variational autoencoder"),
        (["score", "RUN", "x.csv", "--out", "OUT/scores.csv"], "is a variational autoencoder"),
        (["search", "vae/digits"], "vae/digits has no perceptron to search for"),
        (["evaluate", "RUN", "--within", "0.1"], "--within is for flows"),
        (["evaluate", "RUN", "--importance", "0"], "--importance must be at least 1; got 0"),
        (["evaluate", "pretrained/toy-moons", "--importance", "5"], "--importance is for autoencoders"),
        (["sample", "pretrained/toy-moons", "--means", "--out", "OUT/x.npy"], "--means is for autoencoders"),
    ],
)
def test_commands_that_are_refused(run, tmp_path, capsys, words, message):
    words = [word.replace("RUN", str(run)).replace("OUT", str(tmp_path)) for word in words]
    assert message in fails(capsys, *words)
    assert not [*tmp_path.iterdir()]


# Table 3


def test_settings_of_the_table():
    budget = table3.Budget(minutes=7.0, warmup=20.0)
    splits = [table3.settings("frey", "none", seed, budget).data.shuffle for seed in range(4)]
    assert splits == [123, 321, 231, 123]
    one = table3.settings("caltech", "ffjord-fast", 2, budget, "DIR")
    assert (one.name, one.seed, one.train.max_minutes, one.train.kl_warmup) == ("vae/caltech-fast", 2, 7, 820)
    assert (one.data.data_dir, one.data.shuffle) == ("DIR", None)
    assert (one.train.optimizer, one.train.learning_rate) == ("adam", 1e-3)
    train = table3.settings("frey", "none", 0, table3.Budget(optimizer="adamax", learning_rate=5e-4)).train
    assert (train.optimizer, train.learning_rate) == ("adamax", 5e-4)


def test_smaller_batches_make_epochs_of_more_steps():
    paper = table3.settings("caltech", "none", 0, table3.Budget()).train
    train = table3.settings("caltech", "none", 0, table3.Budget(batch=25)).train
    assert (train.batch_size, train.validate_every) == (25, 164)  # 4100 images
    assert (train.kl_warmup, train.steps, train.patience) == (4 * paper.kl_warmup, 4 * paper.steps, paper.patience)
    assert table3.settings("caltech", "none", 0, table3.Budget(batch=25, warmup=10.0)).train.kl_warmup == 1640
    assert table3.settings("caltech", "none", 0, table3.Budget(batch=25, epochs=2.5)).train.steps == 410


def test_posteriors_start_from_one_autoencoder_without_a_flow():
    budget = table3.Budget(minutes=7.0, base=60.0, warmup=20.0, clip=2000.0)
    one = table3.settings("caltech", "ffjord-fast", 0, budget, None, Path("base")).train
    assert (one.start_from, one.kl_warmup, one.warmup, one.max_minutes) == ("base", 0, 41, 7.0)
    assert one.clip == 2000.0


def test_rows_of_the_table():
    row = {"data": "caltech", "posterior": "none", "minutes": None, "epochs": 3.0, "train_seconds": 90.0}
    row |= {"parameters": 1234, "nfe": 0.0, "negative_elbo": 110.0, "kl": 20.0, "negative_elbo_stderr": 0.5}
    row |= {"kl_stderr": 0.2, "data_note": ""}
    grey = row | {"data": "frey", "posterior": "orthogonal", "negative_elbo_bits_per_dim": 4.5, "minutes": 5.0}
    grey |= {"negative_elbo_bits_per_dim_stderr": 0.01, "data_note": "drawn otherwise", "batch": 25}
    failed = row | {"posterior": "planar", "failed": "it exploded"}
    assert "## caltech: after 60 minutes without a flow\n" in table3.as_markdown([row | {"base": 60.0}])
    rising = table3.as_markdown([row | {"at_most_epochs": 50.0, "warmup": 25.0}])
    assert "## caltech: at most 50 epochs a run, over 25 epochs of which the KL term's weight rises\n" in rising
    assert "## caltech: at most 20 epochs a run\n" in table3.as_markdown([row | {"at_most_epochs": 20.0}])
    other = row | {"optimizer": "adamax", "learning_rate": 5e-4, "clip": 2000.0}
    assert "## caltech: adamax at 0.0005, gradients clipped at 2000\n" in table3.as_markdown([other])
    text = table3.as_markdown([row, row | {"negative_elbo": 112.0}, grey, failed])
    assert "| none | 1,234 | 2 | 3 | 1.5 | 111.00 ± 1.41 | – | 20.00 ± 0.00 | – | – | 110.80 ± 0.46 |" in text
    assert "## frey: at most 5 minutes a run, 25 images a step" in text
    assert "| orthogonal | 1,234 | 1 | 3 | 1.5 | 4.500 ± 0.010 | – |" in text
    paired = {"better_by_bits_per_dim": 0.02, "better_by_bits_per_dim_stderr": 0.004}
    assert "| 4.500 ± 0.010 | 0.020 ± 0.004 |" in table3.as_markdown([grey | paired])
    assert "4.45 ± 0.04 |" in text
    assert "Note: drawn otherwise." in text
    assert "| planar |  | 1, of which 1 failed |" in text
    texts = [[one.get_text() for one in axes.texts] for axes in table3.draw([row, grey, failed]).axes]
    assert texts == [["110.0   ◇ 110.8"], ["4.500   ◇ 4.450"]]


def test_posteriors_are_compared_run_by_run():
    """Bounds of other splits are far apart; which posterior is the better is still the same in all."""
    row = {"data": "frey", "minutes": None, "epochs": 3.0, "train_seconds": 90.0, "parameters": 1, "nfe": 0.0}
    row |= {"kl": 20.0, "kl_stderr": 0.2, "negative_elbo_stderr": 1.0, "negative_elbo_bits_per_dim_stderr": 0.01}

    def run(posterior: str, seed: int, bits: float) -> dict:
        bound = {"negative_elbo": 100 * bits, "negative_elbo_bits_per_dim": bits}
        return row | {"posterior": posterior, "seed": seed} | bound

    flow = [run("ffjord", 0, 4.40), run("ffjord", 1, 4.60), run("ffjord", 2, 4.51)]
    none = [run("none", 0, 4.43), run("none", 1, 4.65), run("none", 2, 4.50)]
    text = table3.as_markdown([*none, *flow])
    assert "- frey: ffjord is better than none in 2 of 3 runs with the same seed, by 0.023 ± 0.031.\n" in text
    assert "with the same seed, by" not in table3.as_markdown([none[0], flow[0]])


def test_the_table_is_made_and_not_made_twice(tmp_path, capsys):
    command = ["reproduce", "table3", "--quick", "--posterior", "none", "--out", str(tmp_path / "out")]
    command += ["--runs", str(tmp_path / "runs")]
    settings = table3.settings
    few = lambda *args: changed(settings(*args), {"train.steps": 4, "train.validate_every": 2})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table3, "settings", few)
        assert main(command) == 0
        assert "digits, none, seed 0" in capsys.readouterr().out
        text = (tmp_path / "out" / "README.md").read_text()
        assert "| none |" in text
        weights = tmp_path / "runs" / "digits" / "none" / "0" / "weights.npz"
        before = weights.stat().st_mtime_ns
        assert main(command) == 0
    assert weights.stat().st_mtime_ns == before
    assert (tmp_path / "out" / "README.md").read_text() == text


def test_posteriors_are_compared_on_the_same_images(tmp_path, monkeypatch):
    """The mean of differences is the difference of means, but its error is much smaller."""
    settings = table3.settings
    few = lambda data, posterior, *rest: changed(
        settings(data, posterior, *rest), {"train.steps": 4 if posterior == "none" else 6, "train.validate_every": 2}
    )
    monkeypatch.setattr(table3, "settings", few)
    command = ["reproduce", "table3", "--seeds", "1", "--limit", "20", "--out", f"{tmp_path}/out"]
    assert main([*command, "--runs", f"{tmp_path}/runs", "--posterior", "none", "planar"]) == 0
    none, planar = json.loads((tmp_path / "out" / "results.json").read_text()).values()
    assert planar["better_by"] == pytest.approx(none["negative_elbo"] - planar["negative_elbo"], abs=1e-4)
    assert 0 < planar["better_by_stderr"] < planar["negative_elbo_stderr"]
    assert "better_by" not in none


def test_runs_of_the_table_start_from_one_and_go_on_when_there_is_more_time(tmp_path, capsys, monkeypatch):
    settings = table3.settings
    few = lambda *args: changed(settings(*args), {"train.steps": 4, "train.validate_every": 2})
    monkeypatch.setattr(table3, "settings", few)
    command = ["reproduce", "table3", "--posterior", "none", "--seeds", "1", "--limit", "20", "--base-minutes", "9"]
    command += ["--optimizer", "adamax", "--out", f"{tmp_path}/out", "--runs", f"{tmp_path}/runs"]
    assert main([*command, "--minutes", "1e-9"]) == 0
    assert "starting from" in capsys.readouterr().out
    heading = "## digits: after 9 minutes without a flow, at most 1e-09 minutes a run, adamax at 0.002"
    assert heading in (tmp_path / "out" / "README.md").read_text()
    trains = [Run.open(tmp_path / "runs" / "digits" / name / "0").experiment.train for name in ("base-9", "none")]
    assert [train.optimizer for train in trains] == ["adam", "adamax"]
    found = lambda: json.loads((tmp_path / "runs" / "digits" / "none" / "0" / "cell.json").read_text())
    assert found()["steps"] == 1
    assert main([*command, "--minutes", "9"]) == 0
    assert found()["steps"] == 4
    assert "holds a run with other settings" in fails(capsys, *command, "--minutes", "8")
    longer = [word.replace("9", "10") if word == "9" else word for word in command]
    assert "holds a run with other settings" in fails(capsys, *longer, "--minutes", "9"), "of a shorter start"


def test_more_epochs_let_runs_go_on_and_fewer_do_not_undo_them(tmp_path, capsys):
    command = ["reproduce", "table3", "--posterior", "none", "--seeds", "1", "--limit", "20"]
    command += ["--out", f"{tmp_path}/out", "--runs", f"{tmp_path}/runs"]
    found = lambda: json.loads((tmp_path / "runs" / "digits" / "none" / "0" / "cell.json").read_text())
    steps = lambda: [
        json.loads(row) for row in (tmp_path / "runs/digits/none/0/metrics.jsonl").read_text().splitlines()
    ]
    assert main([*command, "--epochs", "0.1"]) == 0
    assert found()["steps"] == 1
    assert main([*command, "--epochs", "0.2"]) == 0
    assert found()["steps"] == 3
    assert [row["step"] for row in steps() if "loss" in row] == [1, 2, 3], "none was made again"
    assert "at most 0.2 epochs a run" in (tmp_path / "out" / "README.md").read_text()
    assert "holds a run with other settings" in fails(capsys, *command, "--epochs", "0.1")
    assert found()["steps"] == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--learning-rate", "0"], "--learning-rate must be a positive number"),
        (["--clip", "0"], "--clip must be a positive number"),
        (["--base-minutes", "-1"], "--base-minutes must be a positive number"),
        (["--base-epochs", "0"], "--base-epochs must be a positive number"),
        (["--data", "cats"], "--data must be of mnist, omniglot, frey, caltech, digits; got cats"),
        (["--posterior", "glow"], "--posterior must be of none, planar, iaf"),
        (["--seeds", "0"], "--seeds must be at least 1"),
        (["--minutes", "0"], "--minutes must be a positive number"),
        (["--epochs", "0"], "--epochs must be a positive number"),
        (["--posterior", "ffjord-fast"], "ffjord-fast is not there for the digits"),
        (["--warmup", "-1"], "--warmup must be a number of epochs"),
        (["--data", "frey", "--data-dir", "nowhere"], "frey: none of its files"),
    ],
)
def test_wrong_words(capsys, words, message):
    assert message in fails(capsys, "reproduce", "table3", *words)
