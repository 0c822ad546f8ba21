"""The models that the paper compares with: their experiments, Tables 1 and 2, Figure 2."""

import json
import math

import jax
import pytest

from ffjord.cli import main
from ffjord.experiments import COMPARISONS, EXPERIMENTS, find
from ffjord.experiments.comparisons import KINDS, PAPER
from ffjord.report.standings import Standing, Standings, draw_standings, limits
from ffjord.reproduce import figure2, table1, table2
from ffjord.reproduce.abilities import abilities
from ffjord.reproduce.pages import write_scalars
from ffjord.reproduce.recipes import changed
from ffjord.training.loop import check


def test_every_model_has_an_experiment_for_every_table():
    for data in table2.DATA:
        for kind in KINDS:
            experiment = find(f"table/{data}-{kind}")
            check(experiment.train)
            assert (experiment.model.kind, experiment.data) == (kind, find(f"table/{data}").data)
    assert find("table/power-maf").paper == "-0.24"
    assert find("table/bsds300-tan").paper == "-157.03"
    assert not set(COMPARISONS) & set(EXPERIMENTS)
    assert all(set(figures) <= set(KINDS) for figures in PAPER.values())


def test_a_near_name_is_suggested(capsys):
    assert main(["train", "table/power-mafs"]) == 2
    assert "table/power-maf" in capsys.readouterr().err


def test_the_settings_of_table_2_differ_in_the_model_only_where_they_should():
    maf, ours = (table2.settings("power", model, minutes=3.0, seed=1) for model in ("maf", "ffjord-fast"))
    assert maf.train.max_minutes == ours.train.max_minutes == 3.0
    assert maf.data.num_validation == ours.data.num_validation
    assert (maf.seed, ours.seed) == (1, 1)
    assert maf.train.schedule == ours.train.schedule == "constant"
    assert "ffjord-fast" not in table2.models_for("digits")
    assert "ffjord-fast" in table2.models_for("power")


def row(**changes):
    known = {"data": "power", "model": "maf", "minutes": 5.0, "parameters": 1234, "steps": 5000, "train_seconds": 250.0}
    known |= {"compile_seconds": 20.4, "curve": [{"loss": 0.5}, {"loss": None}, {"loss": -0.1234}], "nfe": 0.0}
    known |= {"test_nll": -0.1, "test_nll_stderr": 0.01, "points": 5000, "sample_seconds": 1.5}
    return known | {"sample_points": 10_000, "sample_told_from": 10_000} | changes


def test_table_2_shows_the_papers_figures_beside_ours():
    slow = row(model="ffjord", nfe=90.4, sample_told_from=1000)
    text = table2.as_markdown([row(), slow, row(model="tan", failed="it exploded"), row(data="digits")])
    lines = text.splitlines()
    assert "| maf | 1,234 | 5,000 | 270 | -0.123 | -0.100 ± 0.010 | 5,000 | -0.24 | – | 1.5 |" in lines
    assert "| ffjord | 1,234 | 5,000 | 270 | -0.123 | -0.100 ± 0.010 | 5,000 | -0.46 ± 0.01 | 90 | ~1.5 |" in lines
    assert any(line.startswith("| tan |") and "failed" in line and "-0.48" in line for line in lines)
    assert "## digits: 5 minutes a model" in lines


def test_losses_are_drawn_in_their_order_and_outliers_at_the_edge():
    rows = [Standing("a", 1.0, 0.1, 0.5), Standing("b", 0.2, 0.1), Standing("c", 0.4, 0.1, 0.3), Standing("d", 99.0, 1)]
    axes = draw_standings([Standings("data", "nats", rows), Standings("none", "nats", [])]).axes
    assert len(axes) == 1
    assert [label.get_text() for label in axes[0].get_yticklabels()] == ["b", "c", "a", "d"]
    assert axes[0].get_xlim()[0] < 0.1, "errors are shown to their ends"
    assert axes[0].get_xlim()[1] < 3
    assert [text.get_text() for text in axes[0].texts] == ["0.200", "0.400   ◇ 0.300", "1.000   ◇ 0.500", "99.00"]
    assert limits([2.0, 2.0]) == pytest.approx((1.8, 2.2))
    assert draw_standings([]).axes[0].get_title(loc="left") == "nothing to show"


def test_the_picture_of_table_2_has_the_papers_figures():
    rows = [row(), row(model="ffjord-fast"), row(model="planar"), row(model="tan", failed="it exploded")]
    texts = sorted(text.get_text() for text in table2.draw(rows).axes[0].texts)
    assert texts == ["-0.100", "-0.100   ◇ -0.240", "-0.100   ◇ -0.460"]


def test_rows_of_different_names_make_one_file(tmp_path):
    write_scalars(tmp_path / "rows.csv", [{"a": 1, "curve": [1, 2]}, {"b": "x", "a": 0.25, "none": None}])
    assert (tmp_path / "rows.csv").read_text() == "a,b\n1,\n0.25,x\n"


@pytest.fixture
def small(monkeypatch):
    """Every comparison in seconds."""
    settings = table2.settings
    few = {"train.steps": 20, "train.validate_every": 10, "train.steps_per_call": 10, "model.hidden": (32, 32)}
    monkeypatch.setattr(table2, "settings", lambda *args, **kwargs: changed(settings(*args, **kwargs), few))
    toys = figure2.settings
    few |= {"data.num_test": 200, "data.num_validation": 64, "train.batch_size": 32}
    monkeypatch.setattr(
        figure2,
        "settings",
        lambda data, model, quick: changed(
            toys(data, model, quick=quick), few | {"model.flows": 2 if model == "glow" else 1}
        ),
    )
    monkeypatch.setattr(table2, "_SAMPLES", 100)


def test_table_2_is_made_by_one_command_and_goes_on_where_it_was(small, tmp_path, capsys):
    command = ["reproduce", "table2", "--data", "breast-cancer", "--minutes", "5", "--limit", "50"]
    command += ["--out", str(tmp_path / "out"), "--runs", str(tmp_path / "runs"), "--models"]
    assert main([*command, "real-nvp"]) == 0
    before = json.loads((tmp_path / "out" / "results.json").read_text())
    (found,) = before.values()
    assert math.isfinite(found["test_nll"])
    assert found["points"] == 50
    assert found["steps"] == 20
    assert found["sample_seconds"] > 0
    assert "| real-nvp |" in (tmp_path / "out" / "README.md").read_text()
    capsys.readouterr()
    assert main([*command, "real-nvp", "made"]) == 0
    after = json.loads((tmp_path / "out" / "results.json").read_text())
    assert after["breast-cancer, real-nvp"] == found
    assert set(after) == {"breast-cancer, real-nvp", "breast-cancer, made"}


@pytest.mark.slow
def test_figure_2_is_made_by_one_command(small, tmp_path):
    command = [
        "reproduce",
        "figure2",
        "--data",
        "moons",
        "--out",
        str(tmp_path / "out"),
        "--runs",
        str(tmp_path / "runs"),
    ]
    assert main(command) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert {(row["data"], row["model"]) for row in results.values()} == {("moons", "glow"), ("moons", "ffjord")}
    assert all(math.isfinite(row["test_nll"]) for row in results.values())
    assert (tmp_path / "out" / "figure2.png").stat().st_size > 10_000
    assert "| moons |" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "there is no study 'nothing'"),
        (["table2", "--data", "iris"], "--data must be of"),
        (["table2", "--models", "gan"], "--models must be of"),
        (["table2", "--minutes", "0"], "--minutes must be a positive number"),
        (["table2", "--limit", "1"], "--limit must be at least 2"),
        (["figure2", "--data", "iris"], "--data must be of"),
    ],
)
def test_bad_words_are_told(words, message, capsys):
    assert main(["reproduce", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_table_that_is_not_there_is_told_before_any_work(tmp_path, capsys):
    command = ["reproduce", "table2", "--data", "power", "--data-dir", str(tmp_path / "nothing")]
    assert main([*command, "--out", str(tmp_path / "out"), "--runs", str(tmp_path / "runs")]) == 2
    assert "power" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


QUICK = ("planar",)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in table1.PAPER]
)
def test_models_can_do_what_the_paper_says(name):
    with jax.enable_x64(True):
        assert tuple(abilities(table1.MODELS[name])) == table1.PAPER[name]


def test_table_1_is_written_from_what_was_found():
    text = table1.as_markdown({"MAF": (True, False, True, False), "Glow": (True, True, False, False)})
    assert "| MAF | ✓ | ✗ | ✓ | ✗ | the same |" in text
    assert "| Glow | ✓ | ✓ | ✗ | ✗ | ✓ ✓ ✓ ✗ |" in text


def test_the_picture_of_table_1_has_a_mark_for_every_answer():
    axes = table1.draw({"MAF": (True, False, True, False), "Glow": (True, True, False, False)}).axes[0]
    assert len(axes.collections) == 8
    framed = [marks.get_offsets()[0].tolist() for marks in axes.collections if len(marks.get_edgecolors())]
    assert framed == [[2.0, 1.0]]  # where the paper says otherwise
