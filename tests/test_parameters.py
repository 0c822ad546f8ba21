"""What is trained and what only rides along."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ffjord.bijections import CNF, ActNorm, Chain, MovingNorm, Standardize
from ffjord.dynamics import MLP
from ffjord.parameters import Buffer, Counter, backward_nfe, count_parameters, trainable


def flow(learn_end_time):
    cnf = CNF(MLP(2, (3,), layer="ignore", key=jax.random.key(0)), learn_end_time=learn_end_time)
    return Chain([cnf, ActNorm((2,)), MovingNorm((2,)), Standardize(jnp.zeros(2), jnp.ones(2))])


def test_a_buffer_passes_no_gradient():
    grad = jax.grad(lambda buffer: jnp.sum(buffer.value**2))(Buffer(jnp.ones(3)))
    np.testing.assert_array_equal(grad.array, np.zeros(3))


@pytest.mark.parametrize(("learn_end_time", "expected"), [(False, 0), (True, 1)])
def test_weights_norms_and_a_learned_end_time_are_counted(learn_end_time, expected):
    weights, norms = (2 * 3 + 3) + (3 * 2 + 2), 2 * 2 + 2 * 2
    assert count_parameters(flow(learn_end_time)) == weights + norms + expected


def test_statistics_counters_and_a_fixed_end_time_are_not_trained():
    model = flow(learn_end_time=False)
    trained, fixed = eqx.partition(model, trainable(model))
    cnf, act, moving, standardize = trained.parts
    assert cnf.log_end_time.array is None
    assert cnf.backward_nfe.array is None
    assert moving.mean.array is None
    assert moving.variance.array is None
    assert standardize.mean.array is None
    assert act.shift is not None
    assert moving.shift is not None
    assert eqx.tree_equal(eqx.combine(trained, fixed), model)


def test_backward_nfe_adds_the_counters_of_a_gradient():
    counter = lambda n: eqx.tree_at(lambda c: c.array, Counter(), jnp.asarray(float(n)))
    assert backward_nfe({"a": counter(3), "b": [jnp.ones(2), counter(4)]}) == 7
    assert backward_nfe({"a": jnp.ones(2)}) == 0
