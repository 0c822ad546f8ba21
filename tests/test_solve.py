"""The solver converges as its order says, keeps its tolerance, counts its work, and fails loudly."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ffjord.solve import NOT_FINITE, OK, STEP_LIMIT, STEP_TOO_SMALL, Solver, State, error_norm, integrate

pytestmark = pytest.mark.usefixtures("x64")

EXPLICIT = ["dopri5", "tsit5", "dopri8", "bosh3", "heun"]
FIXED = {"euler": 1, "midpoint": 2, "rk4": 4}


class Logistic(eqx.Module):
    """dz/ds = rate z (1 - z), elementwise."""

    rate: jax.Array

    def __call__(self, s, z, context):
        return State(self.rate * z * (1 - z), jnp.sum(self.rate * (1 - 2 * z)), {})

    def solution(self, z):
        """z(1), and log |det dz(1)/dz(0)|."""
        growth = jnp.exp(self.rate)
        below = 1 + z * (growth - 1)
        return z * growth / below, jnp.sum(self.rate - 2 * jnp.log(below), axis=1)


class Linear(eqx.Module):
    """dz/ds = matrix z."""

    matrix: jax.Array

    def __call__(self, s, z, context):
        return State(self.matrix @ z, jnp.trace(self.matrix), {})


class Penalised(eqx.Module):
    """A field with the integral of 1000 cos(100 s) carried along."""

    field: eqx.Module

    def __call__(self, s, z, context):
        return self.field(s, z, context)._replace(penalties={"wave": 1e3 * jnp.cos(100 * s)})


@eqx.filter_jit
def run(field, z, solver):
    return integrate(field, z, None, solver, jnp.zeros(()))


def tolerance(value, **kwargs):
    """A solver with its tolerance in arrays, so that other values need no compilation."""
    return Solver(rtol=jnp.asarray(value), atol=jnp.asarray(value), **kwargs)


def all_nan(state):
    return bool(jnp.all(jnp.isnan(state.z)) & jnp.all(jnp.isnan(state.log_det)))


@pytest.fixture
def logistic():
    return Logistic(jnp.asarray(3.0))


@pytest.fixture
def z():
    return jnp.asarray([[0.1, 0.3], [0.6, 1.2], [0.9, 0.05]])


def largest_error(state, expected, *, atol=1.0, rtol=0.0):
    """The largest error of z and log_det, as a multiple of atol + rtol |expected|."""
    errors = [jnp.max(jnp.abs(a - b) / (atol + rtol * jnp.abs(b))) for a, b in zip(state[:2], expected, strict=True)]
    return float(max(errors))


@pytest.mark.parametrize("method", FIXED)
def test_fixed_step_methods_converge_with_their_order_and_count_their_evaluations(method, logistic, z, counted):
    field, tally = counted(logistic)
    errors = []
    for num_steps in (32, 64):
        state, stats = run(field, z, Solver(method=method, num_steps=num_steps))
        errors.append(largest_error(state, logistic.solution(z)))
        assert (stats.accepted, stats.rejected, stats.outcome) == (num_steps, 0, OK)
        assert tally.take() == stats.nfe == FIXED[method] * num_steps
    assert np.log2(errors[0] / errors[1]) == pytest.approx(FIXED[method], abs=0.1)


@pytest.mark.parametrize("method", EXPLICIT)
def test_adaptive_methods_keep_their_tolerance_and_count_their_evaluations(method, logistic, z, counted):
    field, tally = counted(logistic)
    nfe, traces = [], None
    for value in (1e-3, 1e-6):
        state, stats = run(field, z, tolerance(value, method=method, max_steps=20_000))
        traces = traces or tally.traces
        assert stats.outcome == OK
        assert largest_error(state, logistic.solution(z), atol=value, rtol=value) < 10
        assert tally.take() == stats.nfe
        nfe.append(int(stats.nfe))
    assert nfe[0] < nfe[1]

    field = eqx.tree_at(lambda f: f.inner.rate, field, jnp.asarray(1000.0))
    _, stats = run(field, z, tolerance(1e-5, method=method, max_steps=20_000))
    assert stats.rejected > 0
    assert tally.take() == stats.nfe, "rejected first steps count too"
    assert tally.traces == traces, "other tolerances and weights compile nothing"


def test_implicit_method_keeps_its_tolerance_solves_stiff_problems_and_ends_on_nan(z):
    solve = lambda diagonal, value: run(Linear(jnp.diag(diagonal)), z, tolerance(value, method="kvaerno5"))
    for diagonal in (jnp.asarray([1.0, -2.0]), jnp.asarray([-1.0, -1e4])):
        for value in (1e-4, 1e-7):
            state, stats = solve(diagonal, value)
            expected = z * jnp.exp(diagonal), jnp.full(3, jnp.sum(diagonal))
            assert largest_error(state, expected, atol=value, rtol=value) < 10
            np.testing.assert_array_equal(stats.outcome, [OK] * 3)
            assert bool(jnp.all(stats.nfe > stats.accepted))
            assert bool(jnp.all(stats.accepted + stats.rejected < 200))
    state, stats = solve(jnp.asarray([jnp.nan, 1.0]), 1e-4)
    assert bool(jnp.all(stats.outcome != OK))
    assert all_nan(state)


def test_implicit_method_counts_iterations_jacobians_and_rejected_steps(logistic, z, counted):
    field, tally = counted(logistic)
    for rate, value in ((3.0, 1e-4), (3.0, 1e-7), (1000.0, 1e-5)):
        field = eqx.tree_at(lambda f: f.inner.rate, field, jnp.asarray(rate))
        _, stats = run(field, z[:1], tolerance(value, method="kvaerno5"))
        assert stats.outcome[0] == OK
        assert tally.take() == stats.nfe[0]
        assert stats.nfe[0] >= 1 + 13 * (stats.accepted[0] + stats.rejected[0]), "a Jacobian, six stages of two"
    assert stats.rejected[0] > 0


def test_implicit_method_solves_for_the_driving_part_alone_and_agrees_with_diffrax(logistic, z):
    """The integrals are not unknowns of its equations, yet come out as if they were."""
    state, stats = run(Penalised(logistic), z, tolerance(1e-9, method="kvaerno5"))
    for index in range(len(z)):
        rates = lambda s, y, args: logistic(s, y.z, None)
        start = State(z[index], jnp.zeros(()), {})
        theirs = diffrax.diffeqsolve(
            diffrax.ODETerm(rates),
            diffrax.Kvaerno5(),
            0.0,
            1.0,
            0.05,
            start,
            stepsize_controller=diffrax.PIDController(1e-9, 1e-9, norm=error_norm(Solver(steps="sample"))),
        )
        ours = int(stats.accepted[index] + stats.rejected[index])
        assert int(theirs.stats["num_steps"]) == pytest.approx(ours, rel=0.1)
        np.testing.assert_allclose(theirs.ys.z[-1], state.z[index], rtol=1e-7)
        np.testing.assert_allclose(theirs.ys.log_det[-1], state.log_det[index], rtol=1e-7)


def test_explicit_method_reports_that_a_stiff_problem_takes_too_many_steps(z):
    state, stats = run(Linear(jnp.diag(jnp.asarray([-1.0, -1e4]))), z, tolerance(1e-4, max_steps=200))
    assert stats.outcome == STEP_LIMIT
    assert stats.accepted + stats.rejected == 200
    assert all_nan(state)


@pytest.mark.parametrize(
    ("solver", "outcome"), [({}, STEP_TOO_SMALL), ({"method": "rk4"}, NOT_FINITE)], ids=["dopri5", "rk4"]
)
def test_nan_weights_and_explosive_fields_end_in_a_failure(solver, outcome, logistic, z):
    solver = tolerance(1e-6, **solver)
    state, stats = run(Logistic(jnp.asarray(jnp.nan)), z, solver)
    assert stats.outcome == outcome
    assert stats.accepted + stats.rejected < 100
    assert all_nan(state)
    state, stats = run(Logistic(jnp.asarray(1e3)), -z, solver)
    assert stats.outcome == outcome
    assert all_nan(state)


def test_with_own_steps_a_point_does_not_notice_its_neighbours_even_if_they_fail(logistic, z):
    solver = tolerance(1e-6, steps="sample")
    state, stats = run(logistic, z, solver)
    assert stats.nfe.shape == (3,)
    other, other_stats = run(logistic, z.at[1].set(-1.0), solver)
    np.testing.assert_array_equal(other_stats.outcome, [OK, STEP_TOO_SMALL, OK])
    assert bool(jnp.all(jnp.isnan(other.z[1])) & jnp.isnan(other.log_det[1]))
    np.testing.assert_allclose(other.z[::2], state.z[::2], rtol=1e-14)
    np.testing.assert_allclose(other.log_det[::2], state.log_det[::2], rtol=1e-14)
    np.testing.assert_array_equal(other_stats.nfe[::2], stats.nfe[::2])


def test_with_the_worst_samples_steps_a_point_depends_on_its_neighbours_within_the_tolerance(logistic, z):
    solver = tolerance(1e-6, steps="worst")
    alone, few = run(logistic, jnp.broadcast_to(z[0], z.shape), solver)
    among, many = run(logistic, z.at[1:].set(30.0), solver)
    assert many.nfe > few.nfe
    np.testing.assert_allclose(among.z[0], alone.z[0], rtol=1e-5)
    np.testing.assert_allclose(among.log_det[0], alone.log_det[0], rtol=1e-5, atol=1e-5)


def test_the_batch_is_judged_by_its_average_or_by_its_worst_sample():
    z, log_det = np.zeros((4, 2)), np.asarray([0.0, 0.0, 0.0, 3.0])
    z[0] = 4.0, 3.0
    error = State(jnp.asarray(z), jnp.asarray(log_det), {"wave": jnp.full(4, 1e9)})
    assert error_norm(Solver(steps="batch"))(error) == pytest.approx(np.sqrt(25 / 8))
    assert error_norm(Solver(steps="worst"))(error) == pytest.approx(np.sqrt(25 / 2))
    lone = jax.tree.map(lambda leaf: leaf[3], error)
    assert error_norm(Solver(steps="sample"))(lone) == pytest.approx(3.0)


def test_penalties_are_integrated_but_do_not_steer_the_steps(logistic, z):
    state, stats = run(logistic, z, tolerance(1e-6))
    carried, carried_stats = run(Penalised(logistic), z, tolerance(1e-6))
    assert carried_stats.nfe == stats.nfe
    np.testing.assert_allclose(carried.z, state.z, rtol=1e-13)
    np.testing.assert_allclose(carried.log_det, state.log_det, rtol=1e-13)
    state, _ = run(Penalised(logistic), z, Solver(method="rk4", num_steps=400))
    np.testing.assert_allclose(state.penalties["wave"], np.full(3, 10 * np.sin(100.0)), rtol=1e-4)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("method", "rk45"),
        ("steps", "each"),
        ("gradient", "backsolve"),
        ("rtol", 0.0),
        ("rtol", float("nan")),
        ("atol", -1e-5),
        ("max_steps", 0),
        ("num_steps", 0),
        ("checkpoints", 0),
    ],
)
def test_bad_configuration_is_an_error_that_names_the_argument(argument, value):
    with pytest.raises(ValueError, match=rf"^{argument} must be .*got {value!r}"):
        Solver(**{argument: value})


@pytest.mark.parametrize("method", ["dopri5", "kvaerno5", "rk4"])
def test_compiled_programs_have_no_callbacks_so_that_they_are_kept_in_the_cache(method, logistic, z):
    run = lambda z: integrate(logistic, z, None, Solver(method=method), jnp.zeros(()))[0].z
    assert "callback" not in str(jax.make_jaxpr(run)(z))


@pytest.mark.parametrize("steps", ["batch", "worst", "sample"])
def test_the_first_step_is_as_long_as_the_field_allows(steps, z):
    easy, easy_stats = run(Linear(0.01 * jnp.eye(2)), z, tolerance(1e-4, steps=steps))
    assert bool(jnp.all(easy_stats.accepted == 1)), "nearly constant rates need one step"
    assert bool(jnp.all(easy_stats.nfe == 8)), "seven for the step, one for its length"
    np.testing.assert_allclose(easy.z, np.exp(0.01) * z, rtol=1e-10)
    hard = run(Linear(30 * jnp.eye(2)), z, tolerance(1e-6, steps=steps))[1]
    assert bool(jnp.all(hard.accepted > 10))
    assert bool(jnp.all(hard.rejected <= 1)), "a field that needs short steps is known by its rate"


def test_a_field_at_rest_or_without_time_to_move_is_solved(z):
    state, stats = run(Linear(jnp.zeros((2, 2))), z, tolerance(1e-6))
    assert stats.outcome == OK
    np.testing.assert_array_equal(state.z, z)
