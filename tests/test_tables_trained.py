"""A minute of training on a small part of each of the paper's tables that is there beats one Gaussian."""

import dataclasses

import jax
import numpy as np
import pytest

from ffjord.data import Rows
from ffjord.data.gaussian import gaussian_log_likelihood
from ffjord.data.sets import SETS, found_forms, load
from ffjord.experiments import find
from ffjord.experiments.build import build_flow, build_objective
from ffjord.scoring import score
from ffjord.training import initial_state, train

_ROWS = 20_000
_CHANGES = {"batch_size": 256, "steps": 800, "validate_every": 400, "average": 0.98, "warmup": 50}


def rows_of(name: str) -> Rows:
    """The first rows of the set; where there are none for training, a part of those for validation."""
    if next(found_forms(name), None) is None:
        pytest.skip(f"{name} is not in $FFJORD_DATA")
    split = load(name)
    fit, held = (split.train, split.validation) if len(split.train) else np.split(split.validation, [2800])
    return Rows(fit[:_ROWS], held[:512], split.test[:1024], batch_size=_CHANGES["batch_size"], seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_a_flow_beats_one_gaussian_on_test_rows_after_a_minute(name):
    source, experiment = rows_of(name), find(f"table/{name}-fast")
    model = dataclasses.replace(experiment.model, hidden=(128,) * len(experiment.model.hidden), knots=32)
    config = dataclasses.replace(experiment.train, **_CHANGES)
    experiment = dataclasses.replace(experiment, model=model, train=config)
    objective = build_objective(config, experiment.solve, experiment.matching, experiment.regularization)
    state = initial_state(build_flow(experiment, source), source, config, seed=0)
    validate = lambda flow: {"loss": -float(score(flow, source.validation()).log_prob.mean())}
    state = train(state, source, objective, validate, config, seed=0)
    log_prob = np.asarray(score(state.best, source.test(), key=jax.random.key(0)).log_prob, np.float64)
    gaussian = gaussian_log_likelihood(source.train, source.test())
    assert log_prob.mean() - 2 * log_prob.std() / np.sqrt(len(log_prob)) > gaussian
