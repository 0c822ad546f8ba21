"""`ffjord fit` as a person uses it: a table in, a run that scores and samples in the table's own columns and units."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from ffjord.cli import main
from ffjord.runs import Run

QUICK = "--hidden 16 16 --method rk4 --num-steps 4 --steps 150 --batch-size 128 --validate-every 50".split()
TINY = "--hidden 4 4 --method midpoint --num-steps 2 --steps 4 --batch-size 16 --validate-every 2".split()
MEAN, DEVIATION = np.array([1e4, -3.0]), np.array([200.0, 0.01])
COVARIANCE = np.array([[1.0, 0.8], [0.8, 1.0]]) * np.outer(DEVIATION, DEVIATION)
TRUTH = multivariate_normal(MEAN, COVARIANCE)


def write_csv(path: Path, delimiter: str = ",", **columns) -> Path:
    rows = zip(*columns.values(), strict=True)
    lines = [delimiter.join(columns), *(delimiter.join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def fit(data: Path, out: Path, *words: str) -> Path:
    assert main(["fit", str(data), "--out", str(out), *words]) == 0
    return out


def score(run: Path, data: Path) -> np.ndarray:
    out = data.with_suffix(".scores.npy")
    assert main(["score", str(run), str(data), "--out", str(out), "--overwrite"]) == 0
    return np.load(out)


def sample(run: Path, out: Path, *words: str) -> np.ndarray:
    assert main(["sample", str(run), "--out", str(out), "--overwrite", *words]) == 0
    return np.load(out) if out.suffix == ".npy" else np.loadtxt(out, delimiter=",", skiprows=1, ndmin=2)


def fails(capsys, *words: str) -> str:
    """Runs a command that must be refused with code 2; returns the message."""
    capsys.readouterr()
    try:
        code = main(list(words))
    except SystemExit as stopped:
        code = stopped.code
    out, err = capsys.readouterr()
    assert code == 2
    assert "Traceback" not in out + err
    return err


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    """A correlated Gaussian in odd units, with a column of text between."""
    x = TRUTH.rvs(1500, random_state=0)
    path = tmp_path_factory.mktemp("data") / "sizes.csv"
    return write_csv(path, delimiter=";", price=x[:, 0], shop=["a"] * 1500, length=x[:, 1])


@pytest.fixture(scope="module")
def run(table, tmp_path_factory) -> Path:
    return fit(table, tmp_path_factory.mktemp("runs") / "sizes", *QUICK)


def test_scores_are_close_to_the_truth_in_the_tables_units(run, tmp_path):
    x = TRUTH.rvs(300, random_state=1)
    found = score(run, write_csv(tmp_path / "new.csv", price=x[:, 0], length=x[:, 1]))
    assert found.dtype == np.float64
    assert np.mean(found - TRUTH.logpdf(x)) == pytest.approx(0, abs=0.1)
    assert np.corrcoef(found, TRUTH.logpdf(x))[0, 1] > 0.97


def test_results_are_beside_three_yardsticks_in_the_same_units(run, capsys):
    results = json.loads((run / "results.json").read_text())
    entropy = TRUTH.entropy()
    assert results["test_nll"] == pytest.approx(entropy, abs=0.25)
    assert results["points"] == 150
    assert set(results["yardsticks"]) == {"one Gaussian", "mixture of Gaussians", "kernel density"}
    for ruler in results["yardsticks"].values():
        assert ruler["test_nll"] == pytest.approx(results["test_nll"], abs=0.25)
        assert ruler["worse_by"] == pytest.approx(ruler["test_nll"] - results["test_nll"], abs=1e-5)
        assert 0 < ruler["worse_by_stderr"] < ruler["test_nll_stderr"]
        assert 0 < ruler["test_nll_stderr"] < 0.2
    assert main(["evaluate", str(run)]) == 0
    assert "mixture of Gaussians" in capsys.readouterr().out
    again = json.loads((run / "results.json").read_text())
    assert again["test_nll"] == pytest.approx(results["test_nll"], abs=1e-6)
    for name, ruler in again["yardsticks"].items():
        assert ruler == pytest.approx(results["yardsticks"][name], abs=1e-6)


def test_a_change_of_units_adds_the_logarithm_of_the_scale(table, run, tmp_path):
    x = np.loadtxt(table, delimiter=";", skiprows=1, usecols=(0, 2))
    other = write_csv(tmp_path / "cents.csv", price=100 * x[:, 0] - 7, length=x[:, 1])
    cents = fit(other, tmp_path / "cents", *QUICK)
    here, there = (json.loads((path / "results.json").read_text()) for path in (run, cents))
    assert there["test_nll"] - here["test_nll"] == pytest.approx(np.log(100), abs=1e-3)
    for name, ruler in here["yardsticks"].items():
        assert there["yardsticks"][name]["test_nll"] - ruler["test_nll"] == pytest.approx(np.log(100), abs=1e-3)


def test_samples_have_the_tables_columns_and_units(run, tmp_path):
    drawn = sample(run, tmp_path / "s.csv", "-n", "2000")
    assert (tmp_path / "s.csv").read_text().splitlines()[0] == "price,length"
    assert drawn.shape == (2000, 2)
    assert np.abs((drawn.mean(axis=0) - MEAN) / DEVIATION).max() < 0.15
    np.testing.assert_allclose(np.cov(drawn.T), COVARIANCE, rtol=0.2)
    again = sample(run, tmp_path / "s.npy", "-n", "2000")
    np.testing.assert_allclose(again, drawn, rtol=1e-13)
    assert len(sample(run, tmp_path / "s.csv")) == 1000
    assert np.mean(score(run, tmp_path / "s.csv")) == pytest.approx(-TRUTH.entropy(), abs=0.15)


def test_files_of_all_formats_give_the_same_scores(run, tmp_path):
    x = TRUTH.rvs(40, random_state=2)
    expected = score(run, write_csv(tmp_path / "a.csv", length=x[:, 1], more=["?"] * 40, price=x[:, 0]))
    np.savetxt(tmp_path / "b.csv", x)
    np.save(tmp_path / "c.npy", x)
    np.save(tmp_path / "d.npy", np.insert(x, 1, np.nan, axis=1))  # as wide as the fitted table
    np.savez(tmp_path / "e.npz", length=x[:, 1], price=x[:, 0])
    for name in ("b.csv", "c.npy", "d.npy", "e.npz"):
        np.testing.assert_allclose(score(run, tmp_path / name), expected, rtol=1e-6)


def test_parquet_from_end_to_end(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    x = TRUTH.rvs(60, random_state=2)
    columns = {"price": x[:, 0], "shop": ["a"] * 60, "length": x[:, 1]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    run = fit(tmp_path / "t.parquet", tmp_path / "run", *TINY)
    np.save(tmp_path / "t.npy", x)
    np.testing.assert_allclose(score(run, tmp_path / "t.parquet"), score(run, tmp_path / "t.npy"), rtol=1e-6)


def test_files_that_cannot_be_scored_are_named(run, tmp_path, capsys):
    score_it = lambda path: fails(capsys, "score", str(run), str(path), "--out", str(tmp_path / "o.csv"))
    path = write_csv(tmp_path / "a.csv", price=[1, 2], size=[3, 4])
    assert "a.csv has no column 'length', which the model was fitted with; it has 'price', 'size'" in score_it(path)
    path = write_csv(tmp_path / "b.csv", price=[1, ""], length=[3, 4])
    assert "b.csv has missing values (1 in column 'price'), the first in line 3" in score_it(path)
    path = write_csv(tmp_path / "c.csv", price=[1, 2], length=[3, "long"])
    assert "c.csv, line 3, column 'length': 'long' is not a number" in score_it(path)
    np.save(tmp_path / "d.npy", np.ones((3, 4)))
    assert "d.npy has 4 columns without names; expected 2 (price, length), or 3" in score_it(tmp_path / "d.npy")


def test_a_run_can_be_used_without_its_table_but_not_gone_on_with(tmp_path):
    """In a process without the tests' type checks: to check what a source is, they ask it for its number of rows."""
    x = TRUTH.rvs(60, random_state=0)
    data = write_csv(tmp_path / "t.csv", price=x[:, 0], length=x[:, 1])
    run = fit(data, tmp_path / "run", *TINY)
    before = score(run, data)
    program = f"""
import shutil
from ffjord.cli import main
shutil.move({str(data)!r}, {str(tmp_path / "moved.csv")!r})
print(main(["score", {str(run)!r}, {str(tmp_path / "moved.csv")!r}, "--out", {str(tmp_path / "s.npy")!r}]))
print(main(["sample", {str(run)!r}, "-n", "5", "--out", {str(tmp_path / "x.csv")!r}]))
print(main(["resume", {str(run)!r}]), main(["evaluate", {str(run)!r}]))
open({str(data)!r}, "w").write(open({str(tmp_path / "moved.csv")!r}).read() + "1,2\\n")
print(main(["resume", {str(run)!r}]), main(["evaluate", {str(run)!r}]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    codes = [line for line in done.stdout.splitlines() if line[0].isdigit() and "written" not in line]
    assert codes == ["0", "0", "2 2", "2 2"]
    assert done.stderr.count(f"{data}, the table that the run was fitted to, is gone") == 2
    assert done.stderr.count(f"{data} was changed since the run was fitted") == 2
    np.testing.assert_allclose(np.load(tmp_path / "s.npy"), before, rtol=1e-6)
    assert np.loadtxt(tmp_path / "x.csv", delimiter=",", skiprows=1).shape == (5, 2)


def test_a_run_is_gone_on_with(tmp_path, capsys):
    x = TRUTH.rvs(60, random_state=0)
    run = fit(write_csv(tmp_path / "t.csv", price=x[:, 0], length=x[:, 1]), tmp_path / "run", *TINY)
    capsys.readouterr()
    assert main(["resume", str(run), "--steps", "6"]) == 0
    layout, steps = Run.open(run).layout(), (run / "metrics.jsonl").read_text().splitlines()
    best = min(json.loads(line).get("validation_loss", np.inf) for line in steps)
    assert layout is not None
    assert f"best validation loss {best + layout.log_scale:.4f} nats, 6 steps" in capsys.readouterr().out
    assert main(["evaluate", str(run), "--limit", "4"]) == 0
    assert json.loads((run / "results.json").read_text())["points"] == 4


def test_what_was_found_is_said_and_the_settings_follow_the_table(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    columns = {f"c{i}": rng.normal(size=40) for i in range(4)} | {"k": rng.integers(5, size=40), "s": ["x"] * 40}
    columns["c0"] = [*columns["c0"][:39], "NA"]
    words = "--hidden 8 --steps 4 --validate-every 2 --method midpoint --num-steps 2 --missing drop".split()
    assert main(["fit", str(write_csv(tmp_path / "few.csv", **columns)), *words]) == 0
    shown, err = capsys.readouterr()
    assert "\x1b" not in shown + err, "plain lines where there is no terminal"
    assert "step 4/4" in shown
    assert "one Gaussian" in shown
    assert "column 's' is left out: it holds text, such as 'x'." in shown
    assert "1 of 40 rows are left out, because they have missing values (1 in column 'c0')" in shown
    assert "hint: k looks discrete" in shown
    assert "--dequantize k" in shown
    assert "few.csv: the density of c0, c1, c2, c3, k from 39 rows, by likelihood" in shown
    config = json.loads((tmp_path / "runs/fit/few/config.json").read_text())
    assert config["train"]["objective"] == "likelihood"
    assert config["model"]["dynamics"] == "mlp"
    assert config["model"]["hidden"] == [8]
    assert config["train"]["batch_size"] == 32
    assert "runs/fit/few already holds a run" in fails(capsys, "fit", "few.csv")


# Conditions.


@pytest.fixture(scope="module")
def conditional(tmp_path_factory) -> Path:
    """price | size, kind ~ N(10 size + 100 kind, 5)."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("conditional")
    size, kind = 20 + 5 * rng.normal(size=1500), rng.integers(2, size=1500)
    price = 10 * size + 100 * kind + 5 * rng.normal(size=1500)
    data = write_csv(folder / "t.csv", size=size, price=price, kind=kind)
    quick = "--hidden 32 32 --method rk4 --num-steps 8 --steps 500 --batch-size 128 --validate-every 100".split()
    return fit(data, folder / "run", "--condition-on", "size", "kind", *quick)


def test_a_conditional_density_is_learnt(conditional, tmp_path):
    rng = np.random.default_rng(1)
    size, kind = 20 + 5 * rng.normal(size=300), rng.integers(2, size=300)
    price = 10 * size + 100 * kind + 5 * rng.normal(size=300)
    found = score(conditional, write_csv(tmp_path / "n.csv", kind=kind, price=price, size=size))
    truth = norm(10 * size + 100 * kind, 5).logpdf(price)
    assert np.mean(found - truth) == pytest.approx(0, abs=0.25)
    swapped = score(conditional, write_csv(tmp_path / "n.csv", kind=1 - kind, price=price, size=size))
    assert np.mean(swapped) < np.mean(found) - 5, "the kind matters"
    results = json.loads((conditional / "results.json").read_text())
    assert results["test_nll"] == pytest.approx(norm(0, 5).entropy(), abs=0.25)
    assert results["yardsticks"]["mixture of Gaussians"]["test_nll"] == pytest.approx(norm(0, 5).entropy(), abs=0.25)


def test_conditional_samples_by_values_and_by_file(conditional, tmp_path):
    drawn = sample(conditional, tmp_path / "s.csv", "-n", "400", "--given", "kind=1", "size=22")
    assert (tmp_path / "s.csv").read_text().splitlines()[0] == "price,size,kind"
    assert drawn[:, 1:].tolist() == [[22, 1]] * 400
    assert drawn[:, 0].mean() == pytest.approx(320, abs=3)
    assert drawn[:, 0].std() == pytest.approx(5, abs=2)
    given = write_csv(tmp_path / "given.csv", kind=[0, 1, 0], size=[15, 20, 25], other=["a", "b", "c"])
    drawn = sample(conditional, tmp_path / "s.npy", "--given", str(given))
    np.testing.assert_allclose(drawn[:, 0], [150, 300, 250], atol=25)
    assert score(conditional, tmp_path / "s.npy").shape == (3,)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "is given size, kind: add --given size=VALUE kind=VALUE, or --given FILE"),
        (["--given", "size=3"], "--given lacks kind"),
        (["--given", "size=3", "kind=x"], "--given kind=x: 'x' is not a finite number"),
        (["--given", "size=3", "color=1"], "--given color=1: expected NAME=VALUE with a name of size, kind"),
        (["--given", "no.csv"], "no.csv: there is no such file"),
        (["--given", "two.csv", "-n", "3"], "-n 3: --given has 2 rows"),
    ],
)
def test_conditions_that_do_not_fit_are_named(conditional, tmp_path, capsys, monkeypatch, words, expected):
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "two.csv", kind=[0, 1], size=[15, 20])
    assert expected in fails(capsys, "sample", str(conditional), "--out", "s.csv", *words)


def test_conditions_belong_to_conditional_densities_only(run, conditional, tmp_path, capsys):
    words = ["sample", str(run), "--out", str(tmp_path / "s.csv"), "--given", "a=1"]
    assert "has no conditions" in fails(capsys, *words)
    assert "no single picture" in fails(capsys, "plot", str(conditional))


# Weights and whole numbers.


def test_weights_choose_what_is_learnt(tmp_path):
    """Two heaps of which one weighs four times as much: its share of the density is 4/5."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=600), rng.normal(size=600) + 8])
    data = write_csv(tmp_path / "t.csv", x=x, w=np.repeat([4.0, 1.0], 600))
    quick = "--hidden 32 32 --method rk4 --num-steps 8 --steps 300 --batch-size 256 --validate-every 50".split()
    run = fit(data, tmp_path / "run", "--weights", "w", *quick)
    drawn = sample(run, tmp_path / "s.npy", "-n", "2000")
    assert np.mean(drawn < 4) == pytest.approx(0.8, abs=0.05)
    results = json.loads((run / "results.json").read_text())
    entropy = norm.entropy() - (0.8 * np.log(0.8) + 0.2 * np.log(0.2))
    assert results["test_nll"] == pytest.approx(entropy, abs=0.2)
    source = Run.open(run).source()
    flow, test = Run.open(run).flow(), source.test()
    log_prob = np.asarray(flow.log_prob(test.x), np.float64)
    layout = Run.open(run).layout()
    assert layout is not None
    expected = layout.log_scale - np.average(log_prob, weights=test.weight)
    assert results["test_nll"] == pytest.approx(expected, abs=1e-5)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    held = source.validation()
    expected = -np.average(np.asarray(flow.log_prob(held.x), np.float64), weights=held.weight)
    assert min(row["validation_loss"] for row in rows if "validation_loss" in row) == pytest.approx(expected, abs=1e-5)


def test_whole_numbers_stay_whole(tmp_path, capsys):
    """Dice: the density of a spread number is the probability of the number."""
    rng = np.random.default_rng(0)
    dice = rng.integers(1, 7, size=1200)
    data = write_csv(tmp_path / "t.csv", dice=dice, noise=rng.normal(size=1200))
    run = fit(data, tmp_path / "run", "--columns", "dice", "--dequantize", *QUICK)
    assert "hint" not in capsys.readouterr().out
    drawn = sample(run, tmp_path / "s.csv", "-n", "1000")[:, 0]
    assert set(drawn.tolist()) >= set(range(1, 7))
    np.testing.assert_array_equal(drawn, np.round(drawn))
    results = json.loads((run / "results.json").read_text())
    assert results["test_nll"] == pytest.approx(np.log(6), abs=0.25)
    words = ["fit", str(data), "--out", str(tmp_path / "other"), "--dequantize", "noise"]
    assert "--dequantize cannot be used for column 'noise'" in fails(capsys, *words)


# What is refused, before anything is written.


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("", [], "t.csv is empty"),
        ("a,b\n1,2\n3\n", [], "t.csv, line 3: expected 2 cells"),
        ("a,b\n1,2\n3,x\n", [], "t.csv, line 3, column 'b': 'x' is not a number"),
        ("a,b\n1,2\n3,\n5,6\n", [], "t.csv has missing values (1 in column 'b'), the first in line 3"),
        ("a,b\n1,2\n3,4\n", [], "t.csv has 2 rows that can be used; 2 columns need at least 20"),
        ("a,b\n1,2\n3,4\n", ["--columns", "c"], "--columns c: "),
        ("a,b\n1,2\n3,4\n", ["--seed", "-1"], "--seed must not be negative"),
        ("a\n" + "1\n2\n" * 20, ["--steps", "0"], "steps must be at least 1"),
        ("a\n" + "1\n2\n" * 20, ["--hidden", "0"], "hidden must be a whole number and at least 1"),
    ],
)
def test_what_cannot_be_fitted_is_named_and_nothing_is_written(tmp_path, capsys, text, words, expected):
    (tmp_path / "t.csv").write_text(text)
    assert expected in fails(capsys, "fit", str(tmp_path / "t.csv"), "--out", str(tmp_path / "run"), *words)
    assert not (tmp_path / "run").exists()
