"""`ffjord compare`: the numbers are those of the other commands, differences are paired, and one failure is not all."""

import csv
import dataclasses
import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from PIL import Image
from scipy.stats import norm

from ffjord.bijections import Standardize
from ffjord.cli import main
from ffjord.cli.compare import _show
from ffjord.data.source import Held
from ffjord.experiments import DataConfig, Experiment, FileConfig, find
from ffjord.flow import Flow, StandardNormal
from ffjord.report.compare import COLUMNS, Comparison, measure, side_by_side, trained
from ffjord.report.compare_picture import draw_comparison
from ffjord.report.compare_table import cells, duration, failures, labels, page
from ffjord.runs import Run
from tests.test_cli import TINY, fails

KEYS: dict[str, Any] = {"score_key": jax.random.key(0), "sample_key": jax.random.key(1)}
FAST = ["--samples", "20"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> tuple[Path, Path]:
    """Two of the same size, with other seeds and so with other test points."""
    folder = tmp_path_factory.mktemp("runs")
    for name, words in (("a", []), ("b", ["--seed", "3"])):
        assert main(["train", "toy/moons", "--out", str(folder / name), *TINY, *words]) == 0
    return folder / "a", folder / "b"


@pytest.fixture(scope="module")
def stuck(runs, tmp_path_factory) -> Path:
    """The first run with a solver that gives up."""
    path = shutil.copytree(runs[0], tmp_path_factory.mktemp("stuck") / "c")
    config = json.loads((path / "config.json").read_text())
    config["solve"] |= {"method": "dopri5", "max_steps": 1}
    (path / "config.json").write_text(json.dumps(config))
    return path


def compared(out: Path, *words: object, code: int = 0) -> list[dict[str, str]]:
    """The rows of a comparison, as its .csv file has them."""
    assert main(["compare", *map(str, words), "--out", str(out), "--overwrite", *FAST]) == code
    with out.open() as file:
        return [*csv.DictReader(file)]


def gaussian(mean: float, scale: float) -> Flow:
    return Flow(StandardNormal((1,)), Standardize(jnp.full(1, float(mean)), jnp.full(1, float(scale))))


def folder(path: Path, experiment: Experiment) -> Path:
    """A run directory with a configuration and nothing else."""
    path.mkdir()
    (path / "config.json").write_text(json.dumps(experiment.to_dict()))
    return path


# Numbers.


def test_the_numbers_are_those_of_evaluate(runs, tmp_path):
    row, other = compared(tmp_path / "c.csv", *runs, "--limit", 150)
    assert main(["evaluate", str(runs[0]), "--limit", "150", "--out", str(tmp_path / "r.json")]) == 0
    results = json.loads((tmp_path / "r.json").read_text())
    for name in ("test_nll", "test_nll_stderr", "nfe", "parameters", "points"):
        assert float(row[name]) == pytest.approx(results[name], rel=1e-9), name
    assert (row["run"], row["path"], row["points"]) == ("toy/moons", str(runs[0]), "150")
    last = json.loads((runs[0] / "metrics.jsonl").read_text().splitlines()[-1])
    assert (int(row["steps"]), float(row["train_seconds"])) == (8, last["seconds"])
    assert float(row["points_per_second"]) > 0
    assert float(other["sample_seconds"]) > 0


def test_differences_are_paired_on_the_first_runs_points(runs, tmp_path):
    points, scores = tmp_path / "x.npy", []
    np.save(points, Run.open(runs[0]).source().test(150))
    for run in runs:
        assert main(["score", str(run), str(points), "--out", str(tmp_path / "s.npy"), "--overwrite"]) == 0
        scores.append(np.load(tmp_path / "s.npy").astype(np.float64))
    first, second = compared(tmp_path / "c.csv", *runs, "--limit", 150)
    gain = scores[1] - scores[0]
    assert float(second["test_nll"]) == pytest.approx(-scores[1].mean(), abs=1e-6)
    assert float(second["better_by"]) == pytest.approx(gain.mean(), abs=1e-6)
    assert float(second["better_by_stderr"]) == pytest.approx(gain.std(ddof=1) / 150**0.5, rel=1e-5)
    assert float(second["better_by_stderr"]) < float(second["test_nll_stderr"]) / 2, "pairing is worth its while"
    assert (float(first["better_by"]), float(first["better_by_stderr"])) == (0, 0)


def test_to_names_the_run_that_differences_are_taken_to(runs, tmp_path):
    a, b = runs
    second = compared(tmp_path / "c.csv", a, b)[1]
    turned = compared(tmp_path / "c.csv", a, b, "--to", b)
    assert float(turned[0]["better_by"]) == -float(second["better_by"])
    assert turned[0]["test_nll"] != second["test_nll"] == turned[1]["test_nll"]
    added = compared(tmp_path / "c.csv", a, "--to", b)
    assert [row["path"] for row in added] == [str(b), str(a)]
    assert float(added[0]["better_by"]) == 0


def test_a_run_may_be_alone_and_may_come_twice(runs, tmp_path, capsys):
    assert len(compared(tmp_path / "c.csv", runs[0])) == 1
    twice = compared(tmp_path / "c.csv", runs[0], runs[0])
    assert (float(twice[1]["better_by"]), float(twice[1]["better_by_stderr"])) == (0, 0)
    assert "200 of 200 test points of moons" in capsys.readouterr().out


def test_closed_forms_of_two_gaussians_with_weights_and_units():
    rng = np.random.default_rng(0)
    x, weight = rng.normal(size=(500, 1)).astype(np.float32), rng.uniform(0.1, 2, 500)
    points, flows = Held(x, None, weight), (gaussian(0, 1), gaussian(0.5, 1.5))
    measured = [measure(flow, points, 30, log_scale=0.7, **KEYS) for flow in flows]
    rows = side_by_side([{"run": "p"}, {"run": "q"}], measured, points, 30)
    p, q = norm.logpdf(x[:, 0]), norm.logpdf(x[:, 0], 0.5, 1.5)
    average = lambda values: np.average(values, weights=weight)
    error = lambda v: np.sqrt(500 / 499 * np.sum((weight * (v - average(v))) ** 2)) / weight.sum()
    assert rows[1]["test_nll"] == pytest.approx(0.7 - average(q), abs=1e-6)
    assert rows[1]["test_nll_stderr"] == pytest.approx(error(q), rel=1e-5)
    assert rows[1]["better_by"] == pytest.approx(average(q - p), abs=1e-6)
    assert rows[1]["better_by_stderr"] == pytest.approx(error(q - p), rel=1e-5)
    assert rows[1]["nfe"] is None
    assert rows[1].keys() == set(COLUMNS)


def test_a_fitted_table_is_compared_in_its_own_units_with_conditions_and_weights(tmp_path):
    rng = np.random.default_rng(0)
    size, weight = rng.normal(50, 9, 300), rng.uniform(1, 2, 300)
    rows = np.stack([1000 + 3 * size + rng.normal(size=300), size, weight], axis=1)
    np.savetxt(tmp_path / "d.csv", rows, delimiter=",", header="price,size,weight", comments="")
    words = (
        "--columns price --condition-on size --weights weight --hidden 4 4 --method midpoint --num-steps 2 --steps 4"
    )
    fitted = [*words.split(), "--batch-size", "16", "--validate-every", "2"]
    assert main(["fit", str(tmp_path / "d.csv"), "--out", str(tmp_path / "run"), *fitted]) == 0
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    row = compared(tmp_path / "c.csv", tmp_path / "run", tmp_path / "run")[1]
    for name in ("test_nll", "test_nll_stderr", "points", "nfe"):
        assert float(row[name]) == pytest.approx(results[name], rel=1e-9), name
    assert float(row["sample_seconds"]) > 0


# Failures.


def test_a_failure_keeps_the_others_and_ends_with_code_1(runs, stuck, tmp_path, capsys):
    a, b = runs
    rows = compared(tmp_path / "c.csv", a, stuck, b, code=1)
    shown = capsys.readouterr()
    assert rows[1]["test_nll"] == rows[1]["better_by"] == rows[1]["sample_seconds"] == ""
    assert "step limit" in rows[1]["score_error"]
    assert float(rows[2]["better_by"]) != 0
    assert shown.out.count("failed") == 4
    assert f"{stuck}: its points could not be scored" in shown.err
    assert f"{stuck}: no samples could be drawn" in shown.err


def test_where_the_reference_fails_there_are_no_differences(runs, stuck, tmp_path):
    rows = compared(tmp_path / "c.csv", runs[0], "--to", stuck, code=1)
    assert rows[1]["better_by"] == rows[1]["score_error"] == ""
    assert float(rows[1]["test_nll"]) > 0


def test_numbers_that_are_not_finite_are_failures():
    points = Held(np.zeros((3, 1), np.float32))
    found = measure(gaussian(float("nan"), 1), points, 2, **KEYS)
    assert found.errors == {
        "score": "3 of 3 log-densities are not finite numbers.",
        "sample": "2 of 2 coordinates are not finite numbers.",
    }
    assert found[:4] == (None,) * 4


# Files and what is shown.


def test_a_directory_gets_page_table_and_picture_and_keeps_what_it_has(runs, tmp_path, capsys):
    out = tmp_path / "deep" / "er"
    words = ["compare", *map(str, runs), "--limit", "50", *FAST, "--out", str(out)]
    assert main(words) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[-3:] == [str(out / f"compare.{kind}") for kind in ("md", "csv", "png")]
    text = (out / "compare.md").read_text()
    assert "50 of 200 test points of moons" in text
    assert "(compare.png)" in text
    assert all(line in text.splitlines() for line in shown if line.startswith("|"))
    with Image.open(out / "compare.png") as picture:
        assert min(picture.size) > 500
    before = {path: path.read_bytes() for path in out.iterdir()}
    assert "--overwrite" in fails(capsys, *words)
    assert {path: path.read_bytes() for path in out.iterdir()} == before
    assert main([*words, "--overwrite"]) == 0


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ([], "name the runs"),
        (["missing"], "not a run directory"),
        (["here", "missing"], "missing is not a run directory"),
        (["here", "--to", "missing"], "missing is not a run directory"),
        (["here", "--limit", "1"], "--limit"),
        (["here", "--samples", "0"], "--samples"),
        (["here", "--seed", str(2**63)], "--seed"),
        (["here", "--out", "x.txt"], ".md or .csv or .png"),
        (["here", "--out", "nowhere/x.csv"], "no directory"),
        (["here", "--out", "here/config.json/x"], "is a file"),
        (["here"], "no trained weights"),
    ],
)
def test_what_cannot_be_used_is_refused_with_code_2(words, part, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder(tmp_path / "here", find("toy/moons"))
    assert part in fails(capsys, "compare", *words)
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


def test_a_model_that_cannot_be_built_is_named(tmp_path, capsys):
    experiment = find("toy/moons")
    model = dataclasses.replace(experiment.model, flows=0)
    broken = folder(tmp_path / "broken", dataclasses.replace(experiment, model=model))
    (broken / "weights.npz").touch()
    assert f"{broken}: the model cannot be built: flows must be at least 1" in fails(capsys, "compare", str(broken))


FILE = FileConfig("/data/wine.csv", "0" * 64, ("a", "b"), ("c",), "w", ("b",))
FITTED = Experiment("fit/wine", data=DataConfig(name="file"), file=FILE)


@pytest.mark.parametrize(
    ("other", "parts"),
    [
        (find("toy/moons"), ["data", "wine.csv 000000000000", "moons"]),
        (dataclasses.replace(FITTED, file=dataclasses.replace(FILE, sha256="1" * 64)), ["data", "wine.csv 111111111"]),
        (dataclasses.replace(FITTED, file=dataclasses.replace(FILE, columns=("b", "a"))), ["columns", "a, b and b, a"]),
        (dataclasses.replace(FITTED, file=dataclasses.replace(FILE, condition_on=())), ["given", "c and none"]),
        (dataclasses.replace(FITTED, file=dataclasses.replace(FILE, weights=None)), ["weights", "w and none"]),
        (dataclasses.replace(FITTED, file=dataclasses.replace(FILE, dequantize=())), ["dequantised", "b and none"]),
        (dataclasses.replace(FITTED, seed=1), ["seeds", "0 and 1"]),
        (dataclasses.replace(FITTED, file=dataclasses.replace(FILE, path="/moved/w.csv")), ["no trained weights"]),
    ],
)
def test_runs_on_other_data_are_refused_before_any_work(other, parts, tmp_path, capsys):
    names = folder(tmp_path / "one", FITTED), folder(tmp_path / "two", other)
    message = fails(capsys, "compare", *map(str, names), "--out", str(tmp_path / "c.csv"))
    assert all(part in message for part in parts), message
    assert all(str(name) in message for name in names) or "weights" in parts[0]


def test_toys_and_pictures_are_told_apart(tmp_path, capsys):
    moons, pinwheel = folder(tmp_path / "a", find("toy/moons")), folder(tmp_path / "b", find("toy/pinwheel"))
    assert "moons and pinwheel" in fails(capsys, "compare", str(moons), str(pinwheel))
    experiment = dataclasses.replace(find("toy/picture"), data=DataConfig(name="picture", image="image.png"))
    pictures = [folder(tmp_path / name, experiment) for name in "cde"]
    for path, grey in zip(pictures, (0, 0, 9), strict=True):
        Image.new("L", (4, 4), grey).save(path / "image.png")
    assert "no trained weights" in fails(capsys, "compare", str(pictures[0]), str(pictures[1]))
    assert "their data differ: picture" in fails(capsys, "compare", str(pictures[0]), str(pictures[2]))


def example(count: int, **changes: Any) -> Comparison:
    row = dict.fromkeys(COLUMNS) | {"run": "toy/rings", "parameters": 9224, "steps": 3000, "train_seconds": 150.0}
    row |= {"points": 99, "test_nll": 2.5, "test_nll_stderr": 0.01, "better_by": 0.1, "better_by_stderr": 0.002}
    row |= {"points_per_second": 12345.6, "samples": 10_000, "sample_seconds": 0.5} | changes
    paths = [f"runs/x{i}" for i in range(count)]
    return Comparison([row | {"path": path} for path in paths], labels(paths), 0, "99 of 100 test points of rings")


def test_a_row_in_words():
    words = ["9,224", "3,000 /\n2.5 min", "2.5000\n± 0.0100", "+0.1000\n± 0.0020", "–", "12,300", "0.5 s"]
    assert cells(example(2), 1) == ["toy/rings\n(runs/x1)", *words]
    assert cells(example(2), 0)[4] == "–"
    assert cells(example(2, steps=None, nfe=91.8), 1)[2:6:3] == ["–", "92"]


def test_a_page_tells_what_failed_and_keeps_its_columns():
    found = example(2, run="a|b", sample_error="it stuck.")
    assert "- runs/x1: no samples could be drawn: it stuck." in page(found).splitlines()
    assert len(failures(found)) == 2
    assert {line.replace("\\|", "").count("|") for line in page(found).splitlines() if line.startswith("|")} == {9}


@pytest.mark.parametrize(("width", "plain"), [(100, False), (40, True)])
def test_a_terminal_shows_a_table_if_it_is_wide_enough(width, plain, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    _show(example(3))
    shown = capsys.readouterr().out
    assert ("| --- |" in shown) == plain
    assert ("────" in shown) != plain
    assert "12,300" in shown


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["runs/a", "runs/b"], ["a", "b"]),
        (["runs/s/a/0", "runs/s/b/0"], ["a", "b"]),
        (["runs/s/a/0", "runs/s/b/0", "pretrained/toy"], ["a/0", "b/0", "toy"]),
        (["x/a", "y/a", "b"], ["x/a", "y/a", "b"]),
        (["runs/a", "runs/a"], ["a", "a (2)"]),
        (["a", "x/a"], ["a", "x/a"]),
        (["runs/a"], ["a"]),
    ],
)
def test_labels_are_short_and_tell_apart(paths, names):
    assert labels(paths) == names


@pytest.mark.parametrize("end", ["", '{"step": 5, "event": "gave up"}\n', '{"step": 5, "seco', "5\n", "\x00\xff"])
def test_training_is_read_off_the_last_whole_line(end, tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    assert trained(metrics) is None
    lines = "".join(json.dumps({"step": step, "seconds": step / 2}) + "\n" for step in range(1, 5000))
    metrics.write_text(lines + end)
    assert trained(metrics) == (4999, 2499.5)
    metrics.write_text("")
    assert trained(metrics) is None


def test_durations():
    assert [duration(x) for x in (0.01234, 59.96, 119, 150, 7199, 9000)] == (
        ["0.0123 s", "60 s", "119 s", "2.5 min", "120 min", "2.5 h"]
    )


# The picture.


def numbers_of(figure: Figure) -> list[list[Annotation]]:
    return [[text for text in axes.texts if isinstance(text, Annotation)] for axes in figure.axes]


def test_the_picture_has_the_best_run_on_top_and_leaves_out_what_failed():
    found = example(4)
    for row, nll in zip(found.rows, (2.0, 1.0, None, 3.0), strict=True):
        row["test_nll"] = nll
    found.rows[2]["score_error"], found.rows[0]["sample_seconds"] = "stuck", None
    figure = draw_comparison(found)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["x1  1", "x0  2", "x3  3", "x2  4"]
    assert [text.get_text() for text in figure.axes[0].texts] == ["failed"]
    shown = [sorted(text.get_text() for text in texts) for texts in numbers_of(figure)[2:]]
    assert shown == [["1", "2", "3"], ["1", "2", "3"], ["1", "3"]]


@pytest.mark.parametrize("changes", [{}, {"train_seconds": None}, {"sample_seconds": 1e-7}, {"train_seconds": 1e8}])
def test_numbers_do_not_cover_one_another_where_dots_do(changes):
    figure = draw_comparison(example(6, **changes))
    figure.draw_without_rendering()
    assert len(figure.axes) == 5 - (changes == {"train_seconds": None})
    for texts in numbers_of(figure)[2:]:
        boxes = [text.get_window_extent() for text in texts]
        assert len(boxes) == 6
        assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


def test_a_picture_of_nothing_but_failures_is_drawn():
    nothing = dict.fromkeys(("test_nll", "test_nll_stderr", "better_by", "better_by_stderr"))
    figure = draw_comparison(example(1, **nothing, score_error="stuck"))
    figure.draw_without_rendering()
    assert len(figure.axes) == 2
