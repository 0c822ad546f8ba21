"""Studies: their settings, how time is told, how recipes are compared, and the command."""

import json
import math
from pathlib import Path

import pytest

from ffjord.cli import main
from ffjord.experiments import find
from ffjord.report.curves import draw_nfe, draw_time
from ffjord.reproduce import fewer_evaluations
from ffjord.reproduce.cells import Cell, timing
from ffjord.reproduce.fewer_evaluations import as_markdown, goals, study, summary
from ffjord.reproduce.recipes import DATA, PAPER, RECIPES, changed, settings
from ffjord.runs import Run
from ffjord.training.loop import check


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("quick", [False, True])
def test_all_settings_make_sense(data, quick):
    for recipe in RECIPES:
        experiment = settings(data, recipe, 3, quick=quick)
        check(experiment.train)
        assert experiment.seed == 3
        assert (experiment.solve.test_rtol, experiment.solve.test_atol) == (1e-5, 1e-5)  # the same for all
        assert quick or experiment.train.steps % experiment.train.validate_every == 0
        assert not quick or experiment.train.steps <= max(40, settings(data, recipe, 3).train.steps / 20)


def test_the_papers_toys_have_the_papers_settings():
    experiment = settings("checkerboard", "paper", 0)
    assert (experiment.model.hidden, experiment.model.nonlinearity, experiment.model.end_time) == (
        (64,) * 3,
        "tanh",
        0.5,
    )
    assert (experiment.solve.rtol, experiment.solve.atol, experiment.solve.gradient) == (1e-5, 1e-5, "adjoint")
    train = experiment.train
    assert (train.steps, train.batch_size, train.learning_rate, train.weight_decay) == (10_000, 100, 1e-3, 1e-5)
    assert set(PAPER) == set(DATA)


def test_settings_are_changed_by_name():
    experiment = changed(find("toy/moons"), {"train.steps": 7, "model.hidden": (3,)})
    assert (experiment.train.steps, experiment.model.hidden) == (7, (3,))


def metrics(*rows) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def step(number, seconds):
    return {"step": number, "loss": 1.0, "nfe": 20.0, "sound": True, "seconds": seconds}


def validation(number, seconds, loss):
    return {"step": number, "validation_loss": loss, "validation_nfe": 30.0, "seconds": seconds}


def test_time_is_that_of_steps_without_compilation_and_validation(tmp_path):
    experiment = changed(find("toy/moons"), {"train.warm_start": 6, "train.steps": 12})
    run = Run.create(tmp_path / "run", experiment)
    run.metrics.write_text(
        metrics(
            *[step(1, 10.0), step(2, 10.0)],  # nine seconds of compilation
            *[step(3, 11.0), step(4, 11.0)],
            validation(4, 16.0, 3.0),
            *[step(5, 17.0), step(6, 17.0)],
            *[step(7, 30.0), step(8, 30.0)],  # the second stage: ten seconds of compilation
            *[step(9, 33.0), step(10, 33.0)],
            validation(10, 34.0, None),
            *[step(11, 37.0), step(12, 37.0)],
            validation(12, 38.0, 2.0),
        )
    )
    found = timing(run)
    assert found["train_seconds"] == 3 * 1.0 + 3 * 3.0
    assert found["compile_seconds"] == 9 + 10
    assert found["steps"] == 12
    assert [(p["step"], p["seconds"], p["loss"]) for p in found["curve"]] == [(4, 2, 3.0), (10, 9, None), (12, 12, 2.0)]


def row(recipe, *, nll=3.0, nfe=100.0, curve=((1, 4.0), (10, 3.0)), data="digits", seed=0, **more):
    points = [{"seconds": s, "loss": loss, "step": 1, "nfe": 20.0} for s, loss in curve]
    figures = {
        "test_nll": nll,
        "test_nll_stderr": 0.1,
        "nfe": nfe,
        "fixed_nfe": nfe / 4,
        "steps": 5,
        "train_seconds": 9.0,
    }
    return {"data": data, "recipe": recipe, "seed": seed, "curve": points} | figures | more


AT_PAPER = {"within": 0.51, "nfe": 15.0, "test_nll": 2.1}
ROWS = [
    row("paper", at_paper={"within": 0.01, "nfe": 30.0, "test_nll": 3.005}),
    row("matching", nll=2.5, nfe=60.0, curve=((0.5, 3.5), (1.0, 3.005), (2.0, 2.5)), at_paper=AT_PAPER),
    row("loose", nll=3.2, nfe=30.0, curve=((1, 3.5), (5, 3.2))),
    row("speed", data="checkerboard", failed="it exploded"),
]


def test_recipes_are_compared_with_the_papers_at_equal_loss():
    found = {s["recipe"]: s for s in summary(ROWS, "digits")}
    assert found["matching"]["time_ratio"] == pytest.approx(0.1)  # 3.005 counts as 3.0
    assert (found["matching"]["nfe_ratio"], found["matching"]["gain"]) == (0.6, 0.5)
    assert (found["matching"]["equal_ratio"], found["paper"]["equal_ratio"]) == (0.15, 0.3)
    assert math.isinf(found["loose"]["equal_ratio"])
    assert math.isinf(found["loose"]["time_ratio"])
    assert found["paper"]["time_ratio"] == 1
    assert summary(ROWS, "checkerboard") == []


def test_another_seed_is_compared_with_the_papers_own_or_its_first():
    rows = [row("paper"), row("paper", seed=1, nfe=50.0), *(row("matching", seed=s, nfe=50.0) for s in range(3))]
    (_, matching) = summary(rows, "digits")
    assert matching["seeds"] == 3
    assert matching["nfe_ratio"] == pytest.approx((0.5 + 1.0 + 0.5) / 3)


def test_the_goals_are_told_for_recipes_that_are_as_good():
    lines = {line.split("|")[1].strip(): line for line in goals(ROWS)}
    assert "matching" in lines["digits"]
    assert "-0.500 | 0.15 | 0.3 | 0.6 | 0.1" in lines["digits"]
    assert "none as good" in lines["8gaussians"]


@pytest.mark.parametrize(("test_nll", "ratio"), [(1.98, math.inf), (2.0, 0.15), (3.0, 0.15), (3.02, math.inf)])
def test_what_steps_change_is_counted_against_them_in_both_directions(test_nll, ratio):
    rows = [ROWS[0], row("matching", nll=2.5, at_paper=AT_PAPER | {"test_nll": test_nll})]
    assert summary(rows, "digits")[1]["equal_ratio"] == ratio


def test_a_run_that_is_better_than_the_papers_may_lose_that_to_its_steps(monkeypatch):
    asked = []
    monkeypatch.setattr(fewer_evaluations.Run, "open", lambda path: path)
    monkeypatch.setattr(fewer_evaluations, "fixed_steps", lambda run, within: asked.append(within) or AT_PAPER)
    at = fewer_evaluations._at_the_papers_loss
    better, worse = row("matching", curve=((1, 2.5),)), row("loose", curve=((1, 3.2),))
    assert at(better, ROWS[0], {}, Path("run"))["at_paper"] == AT_PAPER
    assert asked == [pytest.approx(3.0 + 0.01 - 2.5)]
    assert at(worse, ROWS[0], {}, Path("run")) == worse
    assert at(better, None, {}, Path("run")) == better
    known = {"at_paper": {"within": asked[0], "nfe": 7.0}}
    assert at(better, ROWS[0], known, Path("run"))["at_paper"]["nfe"] == 7.0
    assert len(asked) == 1


def test_the_page_and_the_figures_hold_all_runs(tmp_path):
    text = as_markdown(
        ROWS, {"digits": [{"estimator": "orthogonal", "products": 1, "std": 0.5, "bias": 0.0}]}, quick=True
    )
    assert "A sketch" in text
    assert "| matching | 1 | 2.500 ± 0.100 | 60 | 15 | 5 | 9 | 0.1 |" in text
    assert "Failed: speed (seed 0)." in text
    assert f"Not made in this run: 8gaussians ({len(RECIPES)} of {len(RECIPES)} recipes); " in text
    most = [row(recipe, data=data) for data in DATA for recipe in RECIPES if (data, recipe) != ("digits", "loose")]
    assert "Not made in this run: digits (loose)." in as_markdown(most, {}, quick=False)
    assert "variance.png" in text
    rows = [*ROWS, row("paper", curve=((1, None),), seed=1)]
    for number, figure in enumerate((draw_time(rows), draw_nfe(rows))):
        figure.savefig(tmp_path / f"{number}.png")


def test_a_study_makes_every_cell_once_and_writes_after_each(tmp_path, monkeypatch):
    made = []

    def result_of(cell, folder, *, within, quick):
        made.append(cell)
        return row(cell.recipe, data=cell.data, seed=cell.seed)

    monkeypatch.setattr(fewer_evaluations, "result_of", result_of)
    monkeypatch.setattr(fewer_evaluations, "fixed_steps", lambda run, within: None)
    monkeypatch.setattr(fewer_evaluations.Run, "open", lambda path: path)
    choice = {"quick": False, "data": ["8gaussians"], "recipes": ["paper", "loose"], "seeds": 2}
    files = study(tmp_path / "out", tmp_path / "runs", **choice, tell=lambda text: None)
    assert made == [Cell("8gaussians", r, s) for r, s in (("paper", 0), ("loose", 0), ("paper", 1))]
    assert {file.name for file in files} == {"results.json", "results.csv", "README.md", "time.png", "nfe.png"}
    assert len(json.loads((tmp_path / "out" / "results.json").read_text())) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fewer"], "there is no study 'fewer'; there are figure1, figure2, table1, table2, table3, bottleneck"),
        (["fewer-evaluations", "--data", "moons"], "--data must be of 8gaussians"),
        (["fewer-evaluations", "--recipes", "luck"], "--recipes must be of paper"),
        (["fewer-evaluations", "--seeds", "0"], "--seeds must be at least 1; got 0"),
    ],
)
def test_bad_words_are_named(words, message, capsys):
    assert main(["reproduce", *words]) == 2
    assert message in capsys.readouterr().err


def test_the_command_tells_its_recipes(capsys):
    assert main(["reproduce", "fewer-evaluations", "--recipes", "help"]) == 0
    assert "kinetic: " in capsys.readouterr().out


@pytest.mark.slow
def test_a_sketch_from_end_to_end_goes_on_where_it_was(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["reproduce", "fewer-evaluations", "--quick", "--data", "breast-cancer", "--recipes", "paper", "matching"]
    assert main(words) == 0
    page = (tmp_path / "runs/fewer-evaluations-quick/figures/README.md").read_text()
    assert "| matching | 1 |" in page
    assert (tmp_path / "runs/fewer-evaluations-quick/figures/variance.png").is_file()
    capsys.readouterr()
    assert main(words) == 0
    assert "compiling" not in capsys.readouterr().out
