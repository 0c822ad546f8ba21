"""The search for an architecture: what is tried, that it can be cut off, and what is told of it."""

import json

import pytest

from ffjord.cli import main
from ffjord.errors import TrainingError
from ffjord.experiments import find
from ffjord.report.search import draw_search, search_table
from ffjord.search import SPACE, Search, trial_name, trial_settings

pytest.importorskip("optuna")
SMALL = {"flows": (1, 2), "layers": (1,), "multiplier": (5, 10), "nonlinearity": ("tanh", "softplus")}
EXPERIMENT = find("table/breast-cancer")


def loss_of(run) -> float:
    model = run.experiment.model
    return model.flows + sum(model.hidden) / 100 + (model.nonlinearity == "tanh")


def trained(run, told) -> float:
    for step in (10, 20):
        if told(step, loss_of(run) + 5 / step):
            break
    return loss_of(run) + 5 / 20


def search_in(folder, sampler="grid", space=SMALL) -> Search:
    return Search(folder, EXPERIMENT, sampler=sampler, space=space)


def test_the_space_is_that_of_the_appendix():
    assert SPACE["flows"] == (1, 2, 5, 10)
    assert SPACE["layers"] == (1, 2, 3, 4)
    assert SPACE["multiplier"] == (5, 10, 20)
    assert SPACE["nonlinearity"] == ("tanh", "softplus")


def test_a_trial_changes_the_architecture_alone():
    values = {"flows": 5, "layers": 3, "multiplier": 10, "nonlinearity": "tanh"}
    experiment = trial_settings(EXPERIMENT, 6, values)
    assert (experiment.model.hidden, experiment.model.flows, experiment.model.nonlinearity) == ((60,) * 3, 5, "tanh")
    assert (experiment.train, experiment.solve, experiment.data) == (
        EXPERIMENT.train,
        EXPERIMENT.solve,
        EXPERIMENT.data,
    )
    assert trial_name(values) == "5-flows-3-layers-10x-tanh"


@pytest.mark.parametrize("sampler", ["grid", "random", "tpe"])
def test_every_architecture_is_tried_once_and_the_best_comes_first(tmp_path, sampler):
    seen = []
    search = search_in(tmp_path, sampler)
    search.run(None, lambda run, told: seen.append(run.path.name) or trained(run, told))
    assert len(seen) == len(set(seen)) == 8
    best = search.rows()[0]
    assert (best["flows"], best["multiplier"], best["nonlinearity"]) == (1, 5, "softplus")
    assert best["loss"] == pytest.approx(1 + 1.5 + 0.25)
    assert {row["state"] for row in search.rows()} == {"complete", "pruned"}  # some are worse than most at step 10
    search.run(None, lambda run, told: pytest.fail("there is nothing left to try"))


def test_a_search_that_was_cut_off_goes_on_with_the_trial_that_was_under_way(tmp_path):
    seen = []

    def cut(run, told):
        seen.append(run.path.name)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return trained(run, told)

    with pytest.raises(KeyboardInterrupt):
        search_in(tmp_path).run(None, cut)
    assert len(search_in(tmp_path).rows()) == 2
    again = []
    search = search_in(tmp_path)
    search.run(5, lambda run, told: again.append(run.path.name) or trained(run, told))
    assert again[0] == seen[2]
    assert len(search.rows()) == 5
    assert not set(again[1:]) & set(seen)


def test_a_trial_that_fails_is_told_and_not_tried_again(tmp_path):
    def train(run, told):
        if run.experiment.model.flows == 2:
            raise TrainingError("it exploded")
        return trained(run, told)

    search = search_in(tmp_path)
    search.run(None, train)
    failed = [row for row in search.rows() if row["state"] == "fail"]
    assert len(failed) == 4
    assert all(row["failed"] == "it exploded" and row["flows"] == 2 for row in failed)
    assert search.rows()[0]["state"] == "complete"
    table = search_table(search.rows(), list(SMALL))
    assert table.count("failed") == 4
    draw_search(search.rows(), SMALL).savefig(tmp_path / "search.png")


def test_the_command_trains_trials_and_goes_on(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("ffjord.cli.search.SPACE", SMALL | {"flows": (1,)})
    words = ["search", "table/breast-cancer", "--steps", "2", "--out", str(tmp_path / "found"), "--sampler", "random"]
    assert main([*words, "--trials", "1"]) == 0
    assert main([*words, "--trials", "2"]) == 0
    rows = json.loads((tmp_path / "found" / "search.json").read_text())
    assert len(rows) == 2
    for row in rows:
        assert (tmp_path / "found" / row["run"] / "weights.npz").is_file()
    assert rows[0]["loss"] <= rows[1]["loss"]
    page = (tmp_path / "found" / "search.md").read_text()
    assert f"{rows[0]['loss']:.4f}" in page
    assert (tmp_path / "found" / "search.png").stat().st_size > 1000
    assert "trial 2: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["table/power-fast"], "has no perceptron to search for"),
        (["table/breast-cancer", "--trials", "0"], "--trials must be at least 1; got 0"),
        (["table/breast-cancer", "--seed", "-1"], "--seed must not be negative; got -1"),
        (["table/breast-cancer", "--steps", "0"], "steps must be at least 1; got 0"),
        (["table/nothing"], "there is no experiment 'table/nothing'"),
    ],
)
def test_what_cannot_be_searched_is_said(tmp_path, capsys, words, message):
    assert main(["search", *words, "--out", str(tmp_path / "found")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "found").exists()


def test_a_directory_of_something_else_is_left_alone(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    assert main(["search", "table/breast-cancer", "--out", str(tmp_path)]) == 2
    assert "is not a search" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
