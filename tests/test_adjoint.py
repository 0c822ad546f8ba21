"""Gradients of every mode against central differences, and the cost of the backward solve."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ffjord.bijections import CNF, Chain, Numerics
from ffjord.divergence import ClosedForm, Exact
from ffjord.dynamics import MLP
from ffjord.parameters import backward_nfe
from ffjord.products import are_worth_keeping
from ffjord.runge_kutta import Control, Method, Plan, solve_explicit
from ffjord.solve import OK, Solver

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


@eqx.filter_jit
def value_and_grad(cnf, x, scale=1.0):
    """The loss and its report; its gradient by the model and by x."""

    def scaled(pair):
        value, report = loss(*pair)
        return scale * value, report

    return eqx.filter_value_and_grad(scaled, has_aux=True)((cnf, x))


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


def in_turn(gradient, steps):
    """The adjoint with all steps, the default with one; the rest of the table takes its time."""
    quick = gradient == "adjoint" or (gradient, steps) == ("checkpointed", "batch")
    return pytest.param(gradient, steps, marks=[] if quick else pytest.mark.slow)


@pytest.mark.parametrize(
    ("gradient", "steps"),
    [in_turn(g, s) for g in ("checkpointed", "adjoint", "direct") for s in ("batch", "worst", "sample")],
)
def test_gradient_is_the_limit_of_differences(gradient, steps, differences, build):
    cnf = make(build, rtol=1e-10, atol=1e-10, gradient=gradient, steps=steps, max_steps=64)
    (_, report), (grad, grad_x) = value_and_grad(cnf, jnp.asarray(X), jnp.asarray(1.0))
    assert bool(jnp.all(report.outcome == OK))
    found, _ = jax.flatten_util.ravel_pytree((parts(grad), grad_x))
    np.testing.assert_allclose(found, differences, rtol=1e-7, atol=1e-7)
    assert abs(grad.log_end_time) > 0.1
    assert (backward_nfe(grad) > 0) == (gradient == "adjoint")

    _, (tiny, tiny_x) = value_and_grad(cnf, jnp.asarray(X), jnp.asarray(1e-9))
    scaled, _ = jax.flatten_util.ravel_pytree((parts(tiny), tiny_x))
    np.testing.assert_allclose(scaled, 1e-9 * found, rtol=1e-10, atol=1e-19)
    assert backward_nfe(tiny) == backward_nfe(grad)


@pytest.mark.parametrize("gradient", ["checkpointed", "adjoint", pytest.param("direct", marks=pytest.mark.slow)])
def test_gradient_through_the_implicit_method_is_the_limit_of_differences(gradient, differences, build):
    cnf = make(build, rtol=1e-8, atol=1e-8, gradient=gradient, method="kvaerno5", max_steps=256)
    (_, report), (grad, grad_x) = value_and_grad(cnf, jnp.asarray(X), jnp.asarray(1.0))
    assert bool(jnp.all(report.outcome == OK))
    found, _ = jax.flatten_util.ravel_pytree((parts(grad), grad_x))
    np.testing.assert_allclose(found, differences, rtol=1e-5, atol=1e-5)
    assert (backward_nfe(grad) > 0) == (gradient == "adjoint")


def test_backward_nfe_is_the_number_of_evaluations_and_a_fixed_end_time_has_no_gradient(counted, build):
    f, tally = counted(build(MLP, 2, (3,)))
    settings = {"wrap": lambda _: f, "divergence": Exact(), "gradient": "adjoint", "learn_end_time": False}
    chain = Chain([make(build, **settings), make(build, method="rk4", num_steps=7, **settings)])
    (_, report), (grad, _) = jax.block_until_ready(value_and_grad(chain, jnp.asarray(X)))
    counts = [int(part.backward_nfe.array) for part in grad.parts]
    assert counts[0] > 0
    assert counts[1] == 4 * 7
    assert backward_nfe(grad) == sum(counts)
    assert tally.take() == report.nfe + backward_nfe(grad)
    assert [float(part.log_end_time.array) for part in grad.parts] == [0, 0]


@pytest.mark.parametrize("steps", ["batch", pytest.param("sample", marks=pytest.mark.slow)])
def test_the_gradient_does_not_depend_on_how_many_states_are_kept(steps, build):
    """Where there is no room for the start of every step, those in between are made again."""
    settings = {"method": "bosh3", "rtol": 1e-7, "atol": 1e-7, "steps": steps, "max_steps": 60}
    grads = []
    for checkpoints in (60, 3):
        (_, report), grad = value_and_grad(make(build, checkpoints=checkpoints, **settings), jnp.asarray(X))
        assert int(jnp.min(report.accepted)) > 6
        grads.append(jax.flatten_util.ravel_pytree(eqx.filter(grad, eqx.is_inexact_array))[0])
    np.testing.assert_allclose(grads[0], grads[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("gradient", ["checkpointed", "adjoint", pytest.param("direct", marks=pytest.mark.slow)])
def test_tolerances_that_are_arrays_are_no_parameters(gradient, build):
    tolerance = {"rtol": jnp.asarray(1e-3), "atol": jnp.asarray(1e-3)}
    _, (grad, _) = value_and_grad(
        make(build, method="bosh3", gradient=gradient, max_steps=16, **tolerance), jnp.asarray(X)
    )
    assert grad.training.solver.rtol == 0
    assert bool(jnp.isfinite(grad.log_end_time))
    assert abs(grad.log_end_time) > 0.1


def test_states_in_between_are_made_again_for_any_number_of_steps(build):
    """13 steps with room for 3: every eighth is kept, which is more than 13 / 3 apart."""
    settings = {"method": "midpoint", "num_steps": 13}
    grads = [value_and_grad(make(build, checkpoints=count, **settings), jnp.asarray(X))[1] for count in (13, 3)]
    flat = [jax.flatten_util.ravel_pytree(eqx.filter(grad, eqx.is_inexact_array))[0] for grad in grads]
    np.testing.assert_allclose(*flat, rtol=1e-12, atol=1e-12)


def wide_rates(s, y, weights):
    """Two layers of 256, with products that are worth keeping."""
    inner, outer = weights
    return jnp.cos(3 * s) * jnp.tanh(y @ inner) @ outer


@pytest.mark.parametrize(
    ("solver", "checkpoints", "tolerances"),
    [(diffrax.Dopri5(), 64, {1e-2: -1, 3e-3: 0, 1e-5: 1}), (diffrax.Heun(), 2, {1e-2: 1, 3e-3: 1})],
    ids=["dopri5", "heun"],
)
def test_the_gradient_does_not_depend_on_whether_products_are_kept(solver, checkpoints, tolerances):
    """For fewer steps than are kept, as many, and more, with rejected ones among those that are."""
    weights = tuple(jax.random.normal(jax.random.key(i), (256, 256)) / 16 for i in range(2))
    y = jax.random.normal(jax.random.key(2), (3, 256))
    norm = lambda error: jnp.sqrt(jnp.mean(error**2))
    assert are_worth_keeping(wide_rates, 0.0, y, weights, calls=14)
    assert not are_worth_keeping(wide_rates, 0.0, y, weights, calls=10**6), "too large"
    assert not are_worth_keeping(wide_rates, 0.0, y[:, :9], tuple(w[:9, :9] for w in weights), calls=14), "too cheap"

    @eqx.filter_jit
    def gradient(inputs, control, plan):
        def loss(inputs):
            start, weights = inputs
            end, outcome = solve_explicit(wide_rates, start, weights, control, norm, plan)
            return jnp.sum(jnp.sin(end)), outcome

        return jax.grad(loss, has_aux=True)(inputs)

    plan = Plan(Method.of(solver), max_steps=40, checkpoints=checkpoints, direction=-1)
    inputs, rejected = (y, (4 * weights[0], weights[1])), 0
    for tolerance, more in tolerances.items():
        control = Control(jnp.asarray(tolerance), jnp.asarray(tolerance))
        found, outcome = gradient(inputs, control, plan._replace(with_products=2))
        expected, _ = gradient(inputs, control, plan)
        assert np.sign(int(outcome.accepted) - 2) == more
        rejected += int(outcome.rejected)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11), found, expected)
    assert rejected > 0


def test_direct_gradient_allows_forward_mode(build):
    cnf = make(build, method="midpoint", num_steps=4, gradient="direct")
    x, direction = jnp.asarray(X), jnp.ones_like(X)
    slope = jax.jit(lambda x: jax.jvp(lambda x: loss(cnf, x)[0], (x,), (direction,))[1])
    _, (_, grad_x) = value_and_grad(cnf, x)
    np.testing.assert_allclose(slope(x), jnp.sum(grad_x * direction), rtol=1e-12)


class OneWay(eqx.Module):
    """dz/dt = weight z, which forward mode differentiates and reverse mode does not (0 · ∞ in the branch not taken)."""

    weight: jax.Array

    def __call__(self, t, z):
        return jnp.where(z < 1e6, self.weight * z, jnp.sqrt(jnp.minimum(z, 0.0)))


def test_a_backward_solve_that_fails_gives_nan_not_a_number():
    numerics = Numerics(Exact(), Solver(gradient="adjoint"))
    cnf = CNF(OneWay(jnp.asarray(0.5)), training=numerics)
    (value, report), (grad, grad_x) = value_and_grad(cnf, jnp.asarray(X))
    assert report.outcome == OK
    assert bool(jnp.isfinite(value))
    assert bool(jnp.isnan(grad.dynamics.weight))
    assert bool(jnp.all(jnp.isnan(grad_x)))
