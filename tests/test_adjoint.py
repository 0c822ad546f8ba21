"""Gradients of every mode against central differences, and the cost of the backward solve."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ffjord.bijections import CNF, Chain, Numerics
from ffjord.divergence import ClosedForm, Exact
from ffjord.dynamics import MLP
from ffjord.parameters import backward_nfe
from ffjord.solve import Solver

pytestmark = pytest.mark.usefixtures("x64")

X = np.array([[0.5, -1.0], [1.5, 0.3], [-0.7, 0.2]])
STEP = 1e-4


def loss(cnf, x):
    """A sum in which every output has its own weight."""
    out = cnf.inverse(x, train=True)
    weights = jnp.arange(1.0, x.size + 1).reshape(x.shape)
    return jnp.sum(weights * jnp.sin(out.value)) + jnp.sum(weights[:, 0] * out.log_det), out.report


def make(build, *, divergence=None, end_time=0.7, learn_end_time=True, wrap=lambda f: f, **solver):
    numerics = Numerics(divergence or ClosedForm(), Solver(**solver))
    mlp = wrap(build(MLP, 2, (3,)))
    return CNF(mlp, end_time=end_time, learn_end_time=learn_end_time, training=numerics, testing=numerics)


def parts(cnf):
    """The arrays that a gradient is checked for: all weights, and the logarithm of the end time."""
    return eqx.filter((cnf.dynamics, cnf.log_end_time), eqx.is_inexact_array)


value_and_grad = eqx.filter_jit(eqx.filter_value_and_grad(lambda pair: loss(*pair), has_aux=True))


@pytest.fixture(scope="module")
def differences(build, x64):
    """Central differences of the loss in every weight, log T, and x."""
    cnf = make(build, rtol=1e-12, atol=1e-12, steps="sample")
    dynamic, static = eqx.partition(((cnf.dynamics, cnf.log_end_time), jnp.asarray(X)), eqx.is_inexact_array)
    flat, unravel = jax.flatten_util.ravel_pytree(dynamic)

    @jax.jit
    def at(flat):
        (dynamics, log_end_time), x = eqx.combine(unravel(flat), static)
        moved = eqx.tree_at(lambda c: (c.dynamics, c.log_end_time), cnf, (dynamics, log_end_time))
        return loss(moved, x)[0]

    shifts = STEP * jnp.eye(flat.size)
    slope = lambda shift: (8 * (at(flat + shift) - at(flat - shift)) - at(flat + 2 * shift) + at(flat - 2 * shift)) / 12
    return jax.lax.map(slope, shifts) / STEP


@pytest.mark.parametrize("steps", ["batch", "worst", "sample"])
@pytest.mark.parametrize("gradient", ["checkpointed", "adjoint", "direct"])
def test_gradient_is_the_limit_of_differences(gradient, steps, differences, build):
    cnf = make(build, rtol=1e-10, atol=1e-10, gradient=gradient, steps=steps, max_steps=64)
    (_, report), (grad, grad_x) = value_and_grad((cnf, jnp.asarray(X)))
    assert bool(jnp.all(report.outcome == 0))
    found, _ = jax.flatten_util.ravel_pytree((parts(grad), grad_x))
    np.testing.assert_allclose(found, differences, rtol=1e-7, atol=1e-7)
    assert abs(grad.log_end_time) > 0.1
    assert (backward_nfe(grad) > 0) == (gradient == "adjoint")


@pytest.mark.parametrize("gradient", ["checkpointed", "adjoint"])
def test_a_fixed_end_time_has_no_gradient(gradient, build):
    cnf = make(build, learn_end_time=False, method="midpoint", num_steps=2, gradient=gradient)
    _, (grad, _) = value_and_grad((cnf, jnp.asarray(X)))
    assert grad.log_end_time.array == 0
    assert bool(jnp.any(grad.dynamics.layers[0].linear.weight != 0))


@pytest.mark.parametrize("solver", [{"method": "dopri5"}, {"method": "rk4", "num_steps": 7}], ids=lambda s: s["method"])
def test_backward_nfe_is_the_number_of_evaluations(solver, counted, build):
    tallies = []

    def wrap(f):
        f, tally = counted(f)
        tallies.append(tally)
        return f

    cnf = make(build, divergence=Exact(), wrap=wrap, gradient="adjoint", **solver)
    (_, report), (grad, _) = value_and_grad((cnf, jnp.asarray(X)))
    jax.block_until_ready(grad)
    assert backward_nfe(grad) > 0
    assert tallies[0].take() == report.nfe + backward_nfe(grad)


def test_backward_nfe_adds_over_the_parts_of_a_chain(build):
    one = make(build, method="rk4", num_steps=3, gradient="adjoint")
    two = make(build, method="rk4", num_steps=5, gradient="adjoint")
    (_, report), (grad, _) = value_and_grad((Chain([one, two]), jnp.asarray(X)))
    assert report.nfe == 4 * (3 + 5)
    assert backward_nfe(grad) == 4 * (3 + 5)


def test_adjoint_gradient_scales_with_the_loss_at_the_same_cost(build):
    cnf = make(build, gradient="adjoint")
    scaled = eqx.filter_jit(eqx.filter_grad(lambda cnf, scale: scale * loss(cnf, jnp.asarray(X))[0]))
    one, tiny = (scaled(cnf, jnp.asarray(scale)) for scale in (1.0, 1e-9))
    assert backward_nfe(one) == backward_nfe(tiny)
    for a, b in zip(jax.tree.leaves(parts(one)), jax.tree.leaves(parts(tiny)), strict=True):
        np.testing.assert_allclose(1e-9 * a, b, rtol=1e-10, atol=1e-20)


def test_direct_gradient_allows_forward_mode(build):
    cnf = make(build, method="midpoint", num_steps=4, gradient="direct")
    x, direction = jnp.asarray(X), jnp.ones_like(X)
    _, slope = jax.jvp(lambda x: loss(cnf, x)[0], (x,), (direction,))
    grad = jax.grad(lambda x: loss(cnf, x)[0])(x)
    np.testing.assert_allclose(slope, jnp.sum(grad * direction), rtol=1e-12)


def test_a_backward_solve_that_fails_gives_nan_not_a_number(build):
    forward_only = make(build, gradient="adjoint", rtol=1e-5, atol=1e-5)
    (_, report), (grad, _) = value_and_grad((forward_only, jnp.asarray(X)))
    num_steps = int(report.accepted + report.rejected)
    assert backward_nfe(grad) > report.nfe
    limited = make(build, gradient="adjoint", rtol=1e-5, atol=1e-5, max_steps=num_steps)
    (value, report), (grad, grad_x) = value_and_grad((limited, jnp.asarray(X)))
    assert report.outcome == 0
    assert bool(jnp.isfinite(value))
    assert bool(jnp.all(jnp.isnan(grad_x)))
    assert all(bool(jnp.all(jnp.isnan(leaf))) for leaf in jax.tree.leaves(parts(grad)))
