"""Bijections of flowjax among ours."""

import equinox as eqx
import flowjax.bijections as fx
import jax
import jax.numpy as jnp
import numpy as np
import paramax
import pytest

from ffjord.bijections import CNF, Chain, FromFlowjax, Numerics
from ffjord.divergence import ClosedForm
from ffjord.dynamics import MLP
from ffjord.flow import Flow, StandardNormal
from ffjord.parameters import count_parameters, trainable
from ffjord.solve import Solver
from tests.test_autoregressive import GIVEN, KEY, C, D, X, check_promises, randomised

pytestmark = pytest.mark.usefixtures("x64")


def splines(key):
    spline = fx.RationalQuadraticSpline(knots=4, interval=3)
    settings = {"transformer": spline, "untransformed_dim": 1, "dim": D, "cond_dim": C, "nn_width": 4, "nn_depth": 1}
    return fx.Coupling(key, **settings)


def triangular():
    return fx.TriangularAffine(jnp.asarray([0.5, -1.0, 2.0]), jnp.eye(D) + jnp.tril(jnp.ones((D, D)), -1))


def mixed(seed: int) -> Flow:
    """Theirs, ours, theirs, from the base to the data. Conditions pass the last, which has no use for them."""
    numerics = Numerics(ClosedForm(), Solver("rk4", num_steps=40))
    keys = jax.random.split(jax.random.key(seed))
    cnf = CNF(MLP(D, (4,), condition_size=C, key=keys[0]), training=numerics, testing=numerics)
    parts = [FromFlowjax(splines(keys[1])), cnf, FromFlowjax(triangular())]
    return Flow(StandardNormal((D,)), Chain(parts), (C,))


def test_a_chain_of_theirs_and_ours_keeps_every_promise(tmp_path):
    check_promises(randomised(mixed(0)), X, GIVEN, mixed(1), tmp_path / "weights.npz", atol=1e-6)


def test_forward_is_transform_and_inverse_is_inverse():
    theirs = triangular()
    ours = FromFlowjax(theirs)
    for direction, row in ((ours.forward, theirs.transform_and_log_det), (ours.inverse, theirs.inverse_and_log_det)):
        out, expected = direction(jnp.asarray(X)), [row(jnp.asarray(x)) for x in X]
        np.testing.assert_allclose(out.value, [value for value, _ in expected], rtol=1e-14)
        np.testing.assert_allclose(out.log_det, [log_det for _, log_det in expected], rtol=1e-14)


def test_a_missing_condition_is_told():
    with pytest.raises(ValueError, match="Expected condition to be provided"):
        FromFlowjax(splines(KEY)).forward(jnp.asarray(X))


def test_what_is_not_trainable_there_is_not_trained_here():
    theirs = triangular()
    frozen = eqx.tree_at(lambda affine: affine.triangular, theirs, paramax.non_trainable(theirs.triangular))
    assert count_parameters(FromFlowjax(theirs)) == D + D * D
    assert count_parameters(FromFlowjax(frozen)) == D
    assert jax.tree.leaves(eqx.filter(frozen, trainable(frozen)))[0].shape == (D,)
