"""Run directories, weights files and checkpoints."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ffjord.arrays import atomic_file, fitting, from_dict, load_arrays, save_arrays, to_dict
from ffjord.errors import InputError
from ffjord.experiments import EXPERIMENTS, Experiment, TrainConfig, find
from ffjord.runs import Run
from ffjord.training.checkpoint import Checkpoints
from ffjord.training.optimizer import optimizer
from ffjord.training.recorder import cut_metrics
from ffjord.training.state import start
from tests.test_training import line


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_configuration_survives_json(name):
    experiment = find(name)
    assert Experiment.from_dict(json.loads(json.dumps(experiment.to_dict()))) == experiment


def test_unknown_and_missing_fields_of_a_configuration_are_named():
    values = find("toy/moons").to_dict()
    with pytest.raises(ValueError, match="colour"):
        Experiment.from_dict(values | {"colour": 1})
    del values["train"]["steps"]
    assert Experiment.from_dict(values).train.steps == TrainConfig().steps, "what an older version did not write"
    del values["train"]
    with pytest.raises(ValueError, match=r"missing fields .*train"):
        Experiment.from_dict(values)


def test_weights_survive_the_disk_to_the_last_bit(tmp_path):
    tree = {"a": jnp.asarray(np.random.default_rng(0).normal(size=(3, 2)), jnp.float32), "b": (jnp.arange(3), "text")}
    save_arrays(tmp_path / "w.npz", tree)
    like = jax.tree.map(lambda x: x * 0 if isinstance(x, jax.Array) else x, tree)
    again = load_arrays(tmp_path / "w.npz", like)
    assert np.array_equal(again["a"], tree["a"])
    assert np.array_equal(again["b"][0], tree["b"][0])
    assert again["b"][1] == "text"


@pytest.mark.parametrize("other", [{"a": jnp.ones(3)}, {"a": jnp.ones(2, jnp.int32)}, {"c": jnp.ones(2)}])
def test_weights_of_another_model_are_refused(other):
    with pytest.raises(InputError, match="does not fit"):
        from_dict({"a": jnp.ones(2)}, to_dict(other), where="weights.npz")


def test_arrays_that_fit_are_taken_and_others_left():
    like = {"same": jnp.zeros(2), "longer": jnp.zeros(2), "new": jnp.zeros(2), "text": "kept"}
    other = {"same": jnp.ones(2), "longer": jnp.ones(3), "old": jnp.ones(2)}
    tree, count = fitting(like, to_dict(other))
    assert count == 1
    assert {name: value.tolist() for name, value in tree.items() if name != "text"} == {
        "same": [1, 1],
        "longer": [0, 0],
        "new": [0, 0],
    }
    assert tree["text"] == "kept"


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def write_and_fail():
        with atomic_file(path) as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_and_fail()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    with atomic_file(path) as file:
        file.write(b"new")
    assert path.read_text() == "new"


def test_a_training_state_survives_a_checkpoint_to_the_last_bit(tmp_path):
    rule = optimizer(TrainConfig())
    state = jax.tree.map(lambda x: x + 1 if isinstance(x, jax.Array) else x, start(line(), rule, average=True))
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    assert checkpoints.steps() == []
    assert checkpoints.restore(state) is None
    checkpoints.save(state)
    checkpoints.close()
    again = Checkpoints(tmp_path / "checkpoints")
    assert again.steps() == [1]
    restored = again.restore(start(line(), rule, average=True))
    assert jax.tree.all(jax.tree.map(np.array_equal, restored, state))


def test_metrics_after_a_checkpoint_and_half_a_line_are_cut(tmp_path):
    run = Run.create(tmp_path / "run", find("toy/moons"))
    run.metrics.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"st')
    cut_metrics(run, 2)
    assert run.metrics.read_text() == '{"step": 1}\n{"step": 2}\n'


def test_a_file_in_the_way_of_a_run_is_named(tmp_path):
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(InputError, match="--out"):
            Run.create(path, find("toy/moons"))


def test_a_run_remembers_its_experiment(tmp_path):
    experiment = dataclasses.replace(find("toy/moons"), seed=7)
    Run.create(tmp_path / "run", experiment)
    assert Run.open(tmp_path / "run").experiment == experiment
