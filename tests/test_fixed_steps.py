"""Given steps are made as given, in both directions and all gradients; and as few are found as keep the likelihood."""

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ffjord
from ffjord.bijections import CNF, Chain, Numerics
from ffjord.cli import main
from ffjord.divergence import ClosedForm, Exact
from ffjord.dynamics import MLP
from ffjord.fixed_steps import _is_within, _smallest, fewest_steps, grid_of, step_times, with_steps
from ffjord.flow import Flow, StandardNormal
from ffjord.parameters import count_parameters
from ffjord.runge_kutta import mirrored
from ffjord.runs import Run
from ffjord.solve import OK, STEP_LIMIT, Solver, State, integrate

pytestmark = pytest.mark.usefixtures("x64")

UNEVEN = [0.0, 0.1, 0.4, 0.55, 1.0]
PACKAGED = Path(ffjord.__file__).parent / "pretrained" / "toy-8gaussians"


class Linear(eqx.Module):
    """dz/ds = rates ∘ z."""

    rates: jax.Array

    def __call__(self, s, z, context):
        return State(self.rates * z, jnp.sum(self.rates), {})


class Wave(eqx.Module):
    """dz/ds = rates ∘ sin(z + s)."""

    rates: jax.Array

    def __call__(self, s, z, context):
        return State(self.rates * jnp.sin(z + s), jnp.sum(self.rates * jnp.cos(z + s)), {})


class Timed(eqx.Module):
    """dz/dt = cos(10 t) z, with the times at which it is asked noted down."""

    note: Callable = eqx.field(static=True)

    def __call__(self, t, z):
        jax.debug.callback(self.note, t)
        return jnp.cos(10 * t) * z


@eqx.filter_jit
def run(field, z, solver):
    return integrate(field, z, None, solver, jnp.zeros(()))


@pytest.fixture
def linear():
    return Linear(jnp.asarray([1.0, -3.0]))


@pytest.fixture
def z():
    return jnp.asarray([[0.1, 0.3], [0.6, 1.2], [0.9, 0.05]])


def squares(count):
    """A grid whose steps grow."""
    return jnp.linspace(0, 1, count + 1) ** 1.5


# The solver on a grid


def test_eulers_steps_on_a_grid_are_a_product_in_closed_form(linear, z):
    state, stats = run(linear, z, Solver("euler", grid=UNEVEN))
    factors = 1 + np.diff(UNEVEN)[:, None] * linear.rates
    np.testing.assert_allclose(state.z, z * np.prod(factors, axis=0), rtol=1e-14)
    np.testing.assert_allclose(state.log_det, jnp.full(3, -2.0), rtol=1e-14)
    assert (stats.accepted, stats.rejected, stats.nfe, stats.outcome) == (4, 0, 4, OK)


def test_dopri5_on_a_grid_solves_a_linear_equation_with_its_order(linear, z):
    errors = []
    for count in (32, 64, 128):
        state, _ = run(linear, z, Solver(grid=squares(count)))
        errors.append(float(jnp.max(jnp.abs(state.z - z * jnp.exp(linear.rates)))))
    assert errors[-1] < 1e-10
    np.testing.assert_allclose(np.log2(np.divide(errors[:-1], errors[1:])), 5, atol=0.3)


@pytest.mark.parametrize(
    ("method", "a_step", "once"),
    [("dopri5", 6, 1), ("bosh3", 3, 1), ("dopri8", 13, 1), ("heun", 2, 0), ("rk4", 4, 0)],
)
def test_a_grid_costs_its_steps_and_nothing_else(method, a_step, once, linear, z, counted):
    field, tally = counted(linear)
    state, stats = run(field, z, Solver(method, grid=UNEVEN))
    assert tally.take() == stats.nfe == 4 * a_step + once
    assert (stats.accepted, stats.rejected, stats.outcome) == (4, 0, OK)
    traces = tally.traces
    padded, padded_stats = run(field, z, Solver(method, grid=[0.0, 0.25, 1.0, 1.0, 1.0]))
    assert tally.take() == padded_stats.nfe == 2 * a_step + once, "ones after the first are no steps"
    assert tally.traces == traces, "another grid of the same length compiles nothing"
    short, _ = run(linear, z, Solver(method, grid=[0.0, 0.25, 1.0]))
    np.testing.assert_allclose(padded.z, short.z, rtol=1e-14)
    assert not np.allclose(padded.z, state.z, rtol=1e-10)


def test_equal_steps_are_a_grid_too(linear, z):
    equal, _ = run(linear, z, Solver("rk4", num_steps=5))
    given, _ = run(linear, z, Solver("rk4", grid=jnp.linspace(0, 1, 6)))
    np.testing.assert_allclose(equal.z, given.z, rtol=1e-14)


def test_samples_with_their_own_steps_have_the_same_grid_but_their_own_reports(linear, z):
    together, _ = run(linear, z, Solver(grid=UNEVEN))
    apart, stats = run(linear, z, Solver(grid=UNEVEN, steps="sample"))
    np.testing.assert_allclose(apart.z, together.z, rtol=1e-13)
    np.testing.assert_array_equal(stats.nfe, [25, 25, 25])


def test_the_mirror_of_a_grid_has_its_steps_from_the_other_end():
    np.testing.assert_allclose(mirrored(jnp.asarray(UNEVEN)), 1 - np.asarray(UNEVEN)[::-1])
    padded = jnp.asarray([0.0, 0.1, 0.4, 1.0, 1.0, 1.0])
    np.testing.assert_allclose(mirrored(padded), [0.0, 0.6, 0.9, 1.0, 1.0, 1.0])
    np.testing.assert_allclose(mirrored(mirrored(padded)), padded)
    np.testing.assert_array_equal(mirrored(jnp.asarray([0.0, 1.0])), [0.0, 1.0])


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "grid", [[0.0, 0.5], [0.1, 1.0], [0.0, 0.6, 0.5, 1.0], [0.0, float("nan"), 1.0], [1.0], [[0.0]]]
)
def test_what_is_no_way_from_0_to_1_is_refused(grid):
    with pytest.raises(ValueError, match=r"^grid must (rise from 0 to 1|be a list of at least two times); got"):
        Solver(grid=grid)


@pytest.mark.parametrize("option", [{"grid": UNEVEN}, {"record": True}])
def test_the_implicit_method_has_no_grid(option):
    with pytest.raises(ValueError, match=r"^grid and record must be left out with kvaerno5.*use an explicit method"):
        Solver("kvaerno5", **option)


def test_a_grid_that_is_wrong_where_its_values_are_not_known_fails_loudly(linear, z):
    solve = jax.jit(lambda grid: integrate(linear, z, None, Solver(grid=grid), jnp.zeros(())))
    state, stats = solve(jnp.asarray([0.0, 0.5, 0.9]))
    assert stats.outcome == STEP_LIMIT
    assert bool(jnp.all(jnp.isnan(state.z)))


def test_a_recorded_solve_is_the_same_and_its_record_is_its_grid(linear, z):
    state, stats = run(linear, z, Solver(rtol=1e-8, atol=1e-8, max_steps=100))
    recorded, with_times = run(linear, z, Solver(rtol=1e-8, atol=1e-8, max_steps=100, record=True))
    assert stats.times is None
    np.testing.assert_allclose(recorded.z, state.z, rtol=1e-14)
    assert with_times[:4] == stats[:4]
    assert with_times.times.shape == (101,)
    assert len(np.unique(with_times.times)) == stats.accepted + 1 > 5
    again, again_stats = run(linear, z, Solver(grid=with_times.times))
    np.testing.assert_allclose(again.z, state.z, rtol=1e-13)
    assert again_stats.nfe == 6 * stats.accepted + 1


@eqx.filter_jit
def gradients(field, z, solver):
    """Of a loss in which every output has its own weight: by the field, z, the solver, and the backward NFE."""

    def loss(inputs):
        field, z, solver, backward_nfe = inputs
        state, _ = integrate(field, z, None, solver, backward_nfe)
        return jnp.sum(jnp.sin(state.z)) + jnp.sum(jnp.arange(1, 4) * state.log_det)

    return eqx.filter_grad(loss)((field, z, solver, jnp.zeros(())))


def test_gradients_on_a_grid_agree_and_the_grid_has_none(linear, z):
    of_all = lambda grid: [
        gradients(Wave(linear.rates), z, Solver(grid=grid, gradient=gradient, checkpoints=2))
        for gradient in ("checkpointed", "direct", "adjoint")
    ]
    flat = lambda grads: jax.flatten_util.ravel_pytree(grads[:2])[0]
    checkpointed, direct, adjoint = of_all(jnp.asarray([*UNEVEN, 1.0, 1.0]))
    np.testing.assert_allclose(flat(checkpointed), flat(direct), rtol=1e-12)
    np.testing.assert_allclose(flat(checkpointed), flat(adjoint), rtol=0.03)
    assert not np.allclose(flat(checkpointed), flat(adjoint), rtol=1e-7), "four steps are not the limit"
    assert adjoint[3] == 6 * 4 + 1, "backwards in the same steps"
    for grads in (checkpointed, direct, adjoint):
        np.testing.assert_array_equal(grads[2].grid.array, np.zeros(7))
    exact = gradients(Wave(linear.rates), z, Solver(rtol=1e-11, atol=1e-11))
    fine = gradients(Wave(linear.rates), z, Solver(grid=squares(200), gradient="adjoint"))
    np.testing.assert_allclose(flat(fine), flat(exact), rtol=1e-8)


# The flow on a grid


def make(build, **solver):
    numerics = Numerics(ClosedForm(), Solver(**solver))
    return CNF(build(MLP, 2, (3,)), end_time=0.7, learn_end_time=True, training=numerics, testing=numerics)


def test_a_grid_is_no_parameter(build):
    assert count_parameters(make(build, grid=UNEVEN)) == count_parameters(make(build))


def test_both_ways_make_the_same_steps(z):
    times, lock = [], threading.Lock()

    def note(t):
        with lock:
            times.append(float(t))

    def asked(way, start):
        out = jax.block_until_ready(eqx.filter_jit(way)(start))
        jax.effects_barrier()
        found = np.unique(np.round(times, 12))
        times.clear()
        return out, found

    numerics = Numerics(Exact(), Solver("euler", grid=UNEVEN, record=True))
    cnf = CNF(Timed(note), end_time=2.0, testing=numerics)
    out, forth = asked(cnf.forward, z)
    back, over = asked(cnf.inverse, out.value)
    np.testing.assert_allclose(forth, 2 * np.asarray(UNEVEN[:-1]))
    np.testing.assert_allclose(over, 2 * np.asarray(UNEVEN[1:]))
    np.testing.assert_allclose(out.report.observed, UNEVEN)
    np.testing.assert_allclose(back.report.observed, mirrored(jnp.asarray(UNEVEN)))


def test_a_fine_grid_brings_points_back(build, z):
    there_and_back = lambda cnf: (out := cnf.forward(z), cnf.inverse(out.value))
    out, back = eqx.filter_jit(there_and_back)(make(build, grid=squares(40)))
    np.testing.assert_allclose(back.value, z, atol=1e-9)
    np.testing.assert_allclose(back.log_det, -out.log_det, atol=1e-9)


# The choice of a grid


@pytest.mark.parametrize("count", [1, 3, 7, 50])
def test_a_grid_has_the_density_of_the_steps_it_comes_from(count):
    times = np.cumsum([0.0, *np.random.default_rng(0).uniform(0.01, 1.0, 12)])
    times /= times[-1]
    grid = grid_of(times, count)
    assert len(grid) == count + 1
    assert (grid[0], grid[-1]) == (0, 1)
    assert np.all(np.diff(grid) > 0)
    number = np.interp(grid, times, np.arange(13))
    np.testing.assert_allclose(np.diff(number), 12 / count, rtol=1e-9)
    np.testing.assert_allclose(grid_of(times, 12), times, rtol=1e-12)


def test_bad_numbers_are_refused(build):
    flow = Flow(StandardNormal((2,)), make(build))
    for wrong in (lambda: grid_of(np.asarray([0.0, 1.0]), 0), lambda: with_steps(flow, 0)):
        with pytest.raises(ValueError, match=r"must be at least 1; got 0\.$"):
            wrong()
    with pytest.raises(ValueError, match=r"a grid for each of the 1 continuous parts; got 2\.$"):
        with_steps(flow, [np.asarray(UNEVEN)] * 2)
    x = np.zeros((4, 2))
    for within in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="within must be a positive number of nats"):
            fewest_steps(flow, x, within=within)
    with pytest.raises(ValueError, match="at least two rows"):
        fewest_steps(flow, x[:1])
    with pytest.raises(ValueError, match="fixed already"):
        fewest_steps(with_steps(flow, 3), x)
    with pytest.raises(ValueError, match="use an explicit method"):
        fewest_steps(flow, x, method="kvaerno5")
    with pytest.raises(ValueError, match="must have a continuous part"):
        with_steps(Flow(StandardNormal((2,)), ffjord.ActNorm((2,))), 3)


def test_a_difference_is_small_only_if_it_is_not_by_chance():
    rng = np.random.default_rng(0)
    assert _is_within(0.01, rng.normal(0.0, 0.01, 100))
    assert not _is_within(0.01, rng.normal(0.02, 0.01, 100))
    cancelling = np.repeat([1.0, -1.0], 50)
    assert abs(cancelling.mean()) < 1e-9
    assert not _is_within(0.01, cancelling)
    assert _is_within(0.01, np.tile(cancelling, 1000))
    assert not _is_within(0.01, np.asarray([np.nan, 0.0]))


@pytest.mark.parametrize(
    ("good", "found"),
    [
        (lambda n: True, 1),
        (lambda n: n >= 11, 11),
        (lambda n: n in (1, 4) or n >= 9, 9),  # 1 and 4 only happen to be near
        (lambda n: n >= 64, 64),
        (lambda n: n >= 65, None),
        (lambda n: n == 64, None),
    ],
)
def test_the_search_finds_the_smallest_number_that_stays_good(good, found):
    assert _smallest(good, 64) == found


def test_the_parts_of_a_chain_have_steps_of_their_own(build):
    """An easy flow and a hard one, between them a map that solves nothing."""
    easy = make(build, method="bosh3", rtol=1e-5, atol=1e-5)
    hard = eqx.tree_at(lambda cnf: cnf.log_end_time, easy, jnp.log(8.0))
    flow = Flow(StandardNormal((2,)), Chain([easy, ffjord.ActNorm((2,)), hard]))
    x = np.random.default_rng(0).normal(size=(32, 2))
    few, many = step_times(flow, x)
    assert 2 <= len(few) < len(many)
    assert flow.density(x).report.accepted == len(few) + len(many) - 2
    for times in (few, many):
        assert (times[0], times[-1]) == (0, 1)
        assert np.all(np.diff(times) > 0)
    again = with_steps(flow, [few, many])
    np.testing.assert_allclose(again.log_prob(x), flow.log_prob(x), rtol=1e-10)
    assert again.density(x).report.nfe == 3 * (len(few) + len(many) - 2) + 2
    found = fewest_steps(flow, x, within=1e-3)
    assert len(found.steps) == 2
    assert found.steps[0] < found.steps[1]
    assert found.nfe == 3 * sum(found.steps) + 2 < found.adaptive_nfe
    equal = with_steps(flow, 7, method="euler").density(x).report
    assert equal.nfe == equal.accepted == 2 * 7


@pytest.fixture
def points(x32):
    return Run.open(PACKAGED).source().test(256)


@pytest.mark.slow
def test_a_trained_flow_needs_fewer_evaluations(points):
    flow = ffjord.load_pretrained("toy-8gaussians")
    found = fewest_steps(flow, points)
    assert abs(found.nll - found.adaptive_nll) <= 0.01
    assert found.adaptive_nll == pytest.approx(-float(np.mean(flow.log_prob(points))), abs=1e-4)
    assert found.nll == pytest.approx(-float(np.mean(found.flow.log_prob(points))), abs=1e-4)
    assert found.nfe == 6 * found.steps[0] + 1 < 0.6 * found.adaptive_nfe
    samples = [f.sample(256, key=jax.random.key(0)) for f in (flow, found.flow)]
    assert np.median(np.abs(samples[0] - samples[1])) < 0.05
    cheapest = fewest_steps(flow, points, method=["dopri5", "bosh3"])
    assert cheapest.nfe <= found.nfe
    assert cheapest.method in ("dopri5", "bosh3")
    with pytest.raises(ValueError, match="method must name at least one"):
        fewest_steps(flow, points, method=[])
    with pytest.raises(ValueError, match=r"64 fixed steps do not keep .* within 1e-12 nats .* stay adaptive"):
        fewest_steps(flow, points, within=1e-12)


def test_evaluate_reports_fixed_steps(tmp_path, capsys, x32):
    out = tmp_path / "results.json"
    words = ["evaluate", "pretrained/toy-8gaussians", "--limit", "2048", "--out", str(out)]
    assert main([*words, "--within", "0.01"]) == 0
    results = json.loads(out.read_text())
    fixed = results["fixed_steps"]
    assert abs(fixed["validation_nll"] - fixed["validation_nll_adaptive"]) <= 0.01
    assert abs(fixed["test_nll"] - results["test_nll"]) <= 0.01, "so it is for other points"
    costs = {"dopri5": 6 * fixed["steps"][0] + 1, "rk4": 4 * fixed["steps"][0], "bosh3": 3 * fixed["steps"][0] + 1}
    assert fixed["nfe"] == costs[fixed["method"]] < results["nfe"]
    shown = " ".join(capsys.readouterr().out.split())
    how = f"{fixed['steps'][0]} of {fixed['method']}, NFE {fixed['nfe']:.0f}"
    assert f"{how}, test NLL {fixed['test_nll']:.4f}" in shown
    assert main([*words, "--overwrite"]) == 0
    without = json.loads(out.read_text())
    assert without | {"seconds": 0, "fixed_steps": fixed} == results | {"seconds": 0}
    assert "fixed steps" not in capsys.readouterr().out


@pytest.mark.parametrize("within", ["0", "-0.1", "nan", "inf"])
def test_evaluate_refuses_a_difference_that_is_none(within, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", "pretrained/toy-1d", "--within", within, "--out", "results.json"]) == 2
    assert "--within must be a positive number of nats" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_evaluate_refuses_to_fix_what_is_fixed(tmp_path, capsys, x32):
    path = shutil.copytree(PACKAGED, tmp_path / "run", ignore=shutil.ignore_patterns("results.json"))
    config = json.loads((path / "config.json").read_text())
    config["solve"]["method"] = "rk4"
    (path / "config.json").write_text(json.dumps(config))
    assert main(["evaluate", str(path), "--limit", "20", "--within", "0.01"]) == 2
    assert "fixed already" in capsys.readouterr().err
    assert not (path / "results.json").exists()
