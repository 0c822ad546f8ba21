"""Checks of trained flows: what is right passes, and what is made wrong is seen by the verdict that is meant for it."""

import json
import shutil
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib._pylab_helpers import Gcf
from scipy.linalg import expm
from scipy.stats import ks_2samp

from ffjord.bijections import CNF, AbstractBijection, Chain, Numerics, Standardize
from ffjord.bijections.base import Report, Transformed
from ffjord.cli import main
from ffjord.data.source import Conditioned, Held, Rows
from ffjord.divergence import AbstractDivergence, Exact, Hutchinson, Skipped
from ffjord.errors import InputError
from ffjord.flow import Flow, StandardNormal
from ffjord.report.check_page import FILES, check_writable, claim, write_page
from ffjord.report.check_pictures import draw_marginals, draw_pairs
from ffjord.report.check_points import test_points as points_of_test
from ffjord.report.check_points import training_points
from ffjord.report.checks import CHECKS, run_checks
from ffjord.report.jacobian import push
from ffjord.report.marginals import compare
from ffjord.report.mass import Proposal, mass_by_sampling, mass_on_grid
from ffjord.report.subject import Subject, tightened, with_testing
from ffjord.report.verdict import Verdict, worst
from ffjord.runs import Run
from ffjord.scoring import Scores
from ffjord.solve import Solver

KEY = jax.random.key(0)
SEED = np.zeros(2, np.uint32)
MATRICES = {2: np.array([[0.5, 0.4], [-0.3, 0.2]]), 3: np.diag([0.4, -0.2, 0.3]) + 0.2}
N = 512


class Field(eqx.Module):
    """dz/dt = A z + h sin(3 z + t). If h = 0, x = exp(A) z and log |det dx/dz| = Tr A; if not, it is hard to solve."""

    matrix: jax.Array
    height: jax.Array

    def __call__(self, t, z):
        return self.matrix @ z + self.height * jnp.sin(3 * z + t)


class Times(AbstractDivergence):
    """The exact trace times a factor, which should be 1."""

    factor: jax.Array
    stochastic = False

    def __call__(self, f, t, z, eps=None):
        dz, trace = Exact()(f, t, z)
        return dz, self.factor * trace


class Doubling(AbstractBijection):
    """x = 2 z, and an inverse that is not quite its own."""

    scale: jax.Array

    def _by(self, value, factor):
        log_det = jnp.full(len(value), value.shape[1]) * jnp.log(factor)
        return Transformed(factor * value, log_det, Report.nothing())

    def forward(self, z, *, condition=None, train=False, key=None):
        return self._by(z, jnp.asarray(2.0))

    def inverse(self, x, *, condition=None, train=False, key=None):
        return self._by(x, 1 / self.scale)


def solver(tolerance: float = 1e-6) -> Solver:
    return Solver(rtol=jnp.asarray(tolerance), atol=jnp.asarray(tolerance))


def make(matrix=2, *, factor: float = 1.0, height: float = 0.0, tolerance: float = 1e-6, divergence=None) -> Flow:
    """All that differs between right and wrong is in arrays, so that it compiles once."""
    matrix = MATRICES[matrix] if isinstance(matrix, int) else matrix
    numerics = Numerics(divergence or Times(jnp.asarray(factor)), solver(tolerance))
    field = Field(jnp.asarray(matrix, jnp.float32), jnp.asarray(height))
    return Flow(StandardNormal((len(matrix),)), CNF(field, testing=numerics))


def drawn(dim: int, n: int = N, seed: int = 0) -> np.ndarray:
    """Points of the linear flow's own density."""
    z = np.random.default_rng([dim, seed]).normal(size=(n, dim))
    return (z @ expm(MATRICES[dim]).T).astype(np.float32)


def subject_of(flow: Flow, scale: float = 1.0) -> Subject:
    dim = flow.event_shape[0]
    return Subject(flow, scale * drawn(dim), scale * drawn(dim, seed=1), key=KEY)


def verdict(name: str, subject: Subject) -> Verdict:
    return CHECKS[name](name, subject)


MASS, JACOBIAN, TOLERANCE, ROUND_TRIP, _, NOISE, EFFORT, OVERFITTING, MARGINALS = CHECKS


# What is right passes.


@pytest.mark.parametrize("dim", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_an_exact_flow_passes_everything(dim):
    done = []
    verdicts = run_checks(subject_of(make(dim)), lambda i, n: done.append((i, n)))
    assert {v.name: v.grade for v in verdicts} == dict.fromkeys(CHECKS, "pass")
    assert done == [(i, len(CHECKS)) for i in range(1, len(CHECKS) + 1)]
    assert worst(verdicts) == "pass"
    found = {v.name: v.values for v in verdicts}
    assert found[MASS]["mass"] == pytest.approx(1, abs=4 * found[MASS].get("standard_error", 1e-4))
    assert max(found[name]["mean"] for name in (JACOBIAN, TOLERANCE)) < 1e-4
    assert found[ROUND_TRIP]["max"] < 1e-4
    entropy = dim / 2 * np.log(2 * np.pi * np.e) + np.trace(MATRICES[dim])
    assert found[OVERFITTING]["test_nll"] == pytest.approx(entropy, abs=4 * found[OVERFITTING]["standard_error"])


def test_a_density_given_conditions_passes_everything():
    class Shifted(eqx.Module):
        scale: jax.Array = eqx.field(default_factory=lambda: jnp.ones(()))

        def __call__(self, t, z, condition):
            return self.scale * condition[0] * jnp.ones_like(z)

    rng = np.random.default_rng(3)
    given = []
    for _ in range(2):
        c = 3 * rng.normal(size=(N, 1)).astype(np.float32)
        given.append(Conditioned((c + rng.normal(size=(N, 2))).astype(np.float32), c))
    flow = Flow(StandardNormal((2,)), CNF(Shifted(), testing=Numerics(Exact(), solver())), (1,))
    assert {v.grade for v in run_checks(Subject(flow, *given, key=KEY))} == {"pass"}
    wrong = Subject(flow, Conditioned(given[0].x, np.roll(given[0].condition, 1)), given[1], key=KEY)
    assert verdict(OVERFITTING, wrong).grade == "warn"


def test_a_flow_without_continuous_part_skips_what_is_about_solvers():
    flow = Flow(StandardNormal((2,)), Standardize(jnp.ones(2), 2 * jnp.ones(2)))
    x = np.random.default_rng(0).normal(1, 2, size=(2, N, 2)).astype(np.float32)
    grades = {v.name: v.grade for v in run_checks(Subject(flow, x[0], x[1], key=KEY))}
    assert {name for name, grade in grades.items() if grade == "skipped"} == {TOLERANCE, NOISE, EFFORT}
    assert {grade for grade in grades.values() if grade != "skipped"} == {"pass"}


# What is wrong is seen.


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("factor", [0.0, 1.1])
def test_a_wrong_trace_fails(dim, factor):
    subject, trace = subject_of(make(dim, factor=factor)), np.trace(MATRICES[dim])
    mass = verdict(MASS, subject)
    assert mass.grade == "FAIL"
    error = 4 * mass.values.get("standard_error", 1e-4)
    assert mass.values["mass"] == pytest.approx(np.exp((1 - factor) * trace), abs=error)
    assert f"{np.log(mass.values['mass']):+.2f} nats" in mass.meaning
    jacobian = verdict(JACOBIAN, subject)
    assert jacobian.grade == "FAIL"
    assert jacobian.values["bias"] == pytest.approx((1 - factor) * trace, abs=1e-3)
    assert verdict(ROUND_TRIP, subject).grade == "pass"
    if factor == 0:
        assert verdict(NOISE, subject).grade == "FAIL"


@pytest.mark.parametrize(("tolerance", "grade"), [(1e-1, "FAIL"), (1e-6, "pass")])
def test_a_loose_tolerance_fails(tolerance, grade):
    subject = subject_of(make(2, height=1.0, tolerance=tolerance))
    assert {verdict(name, subject).grade for name in (TOLERANCE, JACOBIAN, ROUND_TRIP)} == {grade}


def test_an_inverse_that_is_none_fails():
    right, wrong = (Flow(StandardNormal((2,)), Doubling(jnp.asarray(scale))) for scale in (2.0, 2.01))
    assert verdict(ROUND_TRIP, subject_of(right)).grade == "pass"
    assert verdict(ROUND_TRIP, subject_of(wrong)).grade == "FAIL"


def test_samples_of_another_density_warn():
    found = verdict(MARGINALS, subject_of(make(2), scale=1.5))
    assert found.grade == "warn"
    assert found.values["differing"] == 2


@pytest.mark.parametrize(("matrix", "grade"), [([[0.3, 0.5], [0.5, -0.2]], "warn"), (np.diag([0.3, -0.2]), "pass")])
def test_noise_that_shows_in_the_tests_own_mean_warns(matrix, grade):
    matrix = np.asarray(matrix)
    subject = subject_of(make(matrix, divergence=Hutchinson("rademacher")))
    found = verdict(NOISE, subject)
    assert found.grade == grade
    assert {verdict(name, subject).grade for name in (MASS, JACOBIAN, TOLERANCE)} == {"pass"}
    of_a_draw = np.sqrt(4 * matrix[0, 1] ** 2)  # 2 (‖B‖² - Σ B_ii²)
    assert found.values["std"] == pytest.approx(of_a_draw, rel=0.1, abs=1e-5)


def test_noise_that_hides_a_bias_is_not_conclusive(monkeypatch):
    monkeypatch.setattr("ffjord.report.checks.SURE_BIAS", 0.001)
    found = verdict(NOISE, subject_of(make(2)))
    assert found.grade == "not conclusive"
    assert "would not show" in found.meaning


def test_overfitting_warns_and_its_opposite_does_not():
    x, tight = drawn(2), 0.5 * drawn(2, seed=1)
    assert verdict(OVERFITTING, Subject(make(2), x, tight, key=KEY)).grade == "warn"
    assert verdict(OVERFITTING, Subject(make(2), tight, x, key=KEY)).grade == "pass"


@pytest.mark.parametrize(("nfe", "rejected", "grade"), [(140, 5, "pass"), (160, 5, "warn"), (100, 11, "warn")])
def test_hard_test_points_warn(nfe, rejected, grade):
    subject = subject_of(make(2))
    subject.train_scores = Scores(np.zeros(N), 100, 10, 1)
    subject.test_scores = Scores(np.zeros(N), nfe, 10, rejected)
    assert verdict(EFFORT, subject).grade == grade


def test_a_solve_that_fails_is_a_verdict():
    verdicts = run_checks(subject_of(make(np.full((2, 2), np.nan))))
    grades = {v.name: v for v in verdicts}
    assert grades[EFFORT].grade == grades[ROUND_TRIP].grade == worst(verdicts) == "FAIL"
    assert "There is no number: " in grades[EFFORT].meaning
    assert [*grades] == [*CHECKS]


# The mathematics.


def test_the_jacobian_of_a_chain_is_the_product_of_its_parts():
    first, second = make(2, height=0.5).bijection, make(2, height=-0.3).bijection
    scale = Standardize(jnp.array([1.0, 2.0]), jnp.array([0.5, 2.0]))
    flow = Flow(StandardNormal((2,)), Chain([first, Chain([scale, second])]))
    z = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    pushed = push(flow, z)
    density = flow.density(pushed.x)
    np.testing.assert_allclose(density.z, z, atol=1e-4)
    np.testing.assert_allclose(pushed.log_prob, density.log_prob, atol=1e-3)


def test_the_jacobian_comes_in_pieces(monkeypatch):
    z = np.random.default_rng(0).normal(size=(10, 2)).astype(np.float32)
    monkeypatch.setattr("ffjord.report.jacobian._NUMBERS", 4 * 6)
    pushed = push(make(2), z)
    np.testing.assert_allclose(pushed.x, z @ expm(MATRICES[2]).T, atol=1e-5)
    np.testing.assert_allclose(pushed.log_det, np.trace(MATRICES[2]), atol=1e-5)


def normal(x: np.ndarray, middle: float, width: float) -> np.ndarray:
    return -0.5 * (((x.astype(np.float64) - middle) / width) ** 2 + np.log(2 * np.pi * width**2)).sum(axis=1)


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("factor", [1.0, 1.05])
def test_narrow_and_broad_densities_are_summed_on_a_grid(dim, factor):
    rng = np.random.default_rng(0)
    cloud = np.concatenate([rng.normal(3, 0.03, size=(300, dim)), rng.normal(0, 1.5, size=(300, dim))])
    log_prob = lambda x: np.logaddexp(normal(x, 3, 0.03), normal(x, 0, 1.5)) + np.log(factor / 2)
    mass = mass_on_grid(log_prob, cloud)
    assert mass.value == pytest.approx(factor, abs=2e-3)
    assert mass.change + mass.border < 3e-3


def test_a_grid_says_when_it_is_too_small_or_too_coarse():
    cloud = np.random.default_rng(0).normal(size=(300, 2))
    cauchy = lambda x: np.sum(-np.log(np.pi * (1 + x.astype(np.float64) ** 2)), axis=1)
    mass = mass_on_grid(cauchy, cloud)
    assert mass.value < 0.95
    assert mass.border > 1e-3
    rough = lambda x: normal(x, 0, 1) + np.log1p(0.9 * np.sign(np.sin(1e3 * x[:, 0].astype(np.float64) ** 2)))
    assert mass_on_grid(rough, cloud, most=10_000).change > 1e-3


def test_the_proposal_is_a_density_that_bounds_the_base():
    centres = np.array([[-2.0], [0.5], [3.0]])
    proposal = Proposal.around(centres, 2000, seed=SEED)
    order = np.argsort(proposal.z[:, 0])
    density = np.exp(proposal.log_density)
    assert np.trapezoid(density[order], proposal.z[order, 0]) == pytest.approx(1, abs=0.02)
    assert np.all(np.exp(normal(proposal.z, 0, 1)) <= 2 * density)
    assert mass_by_sampling(normal(proposal.z, 0, 1) - proposal.log_density).value == pytest.approx(1, abs=0.05)


def test_a_few_weights_that_count_make_a_small_effective_sample_size():
    rng = np.random.default_rng(0)
    assert mass_by_sampling(np.zeros(100)).effective == pytest.approx(100)
    few = mass_by_sampling(10 * rng.normal(size=1000))
    assert few.effective < 10
    known = rng.normal(-0.5, 1, size=4000)  # E[exp] = 1
    value, error, _ = mass_by_sampling(known)
    assert abs(value - 1) < 4 * error < 0.2
    assert np.isfinite(mass_by_sampling(np.array([900.0, 0, 0, 0])).effective)


def test_weights_that_say_little_are_not_conclusive():
    subject = subject_of(make(3))
    pushed, proposal, log_prob = subject.pushed
    subject.pushed = pushed, proposal, log_prob + 10 * np.random.default_rng(0).normal(size=len(log_prob))
    assert verdict(MASS, subject).grade == "not conclusive"
    assert verdict(JACOBIAN, subject).grade == "FAIL"


def test_columns_are_compared_by_kolmogorov_and_smirnov():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(400, 3)), np.round(rng.normal((0.0, 0.1, 0.3), 1, size=(300, 3)), 1)
    distance, probability = compare(x, y)
    for j in range(3):
        theirs = ks_2samp(x[:, j], y[:, j], method="asymp")
        below = [abs(np.mean(x[:, j] <= at) - np.mean(y[:, j] <= at)) for at in np.concatenate([x[:, j], y[:, j]])]
        assert distance[j] == pytest.approx(theirs.statistic) == pytest.approx(max(below))
        assert probability[j] == pytest.approx(theirs.pvalue)
    assert compare(x, x).probability.tolist() == [1, 1, 1]


def test_tighter_means_smaller_tolerances_or_twice_the_steps():
    def tighter(given: Solver) -> Solver:
        return tightened(with_testing(make(2), lambda cnf: Numerics(Exact(), given))).bijection.testing.solver

    assert tighter(Solver(rtol=1e-5, atol=1e-3)).rtol == pytest.approx(1e-6)
    assert tighter(Solver(rtol=1e-5, atol=1e-3)).atol == pytest.approx(1e-4)
    assert tighter(Solver("rk4", num_steps=3)).num_steps == 6
    np.testing.assert_allclose(tighter(Solver(grid=[0.0, 0.2, 1.0])).grid.array, [0, 0.1, 0.2, 0.6, 1])


# Points.


def test_training_points_are_distinct_rows_and_keep_their_conditions():
    x = np.arange(10.0, dtype=np.float32)[:, None]
    source = Rows(x, x, x, batch_size=4, seed=0, condition=-x)
    for n, count in ((7, 7), (99, 10)):
        found = training_points(source, n)
        assert len(np.unique(found.x)) == len(found.x) == count
        np.testing.assert_array_equal(found.condition, -found.x)


def test_test_points_with_weights_are_drawn_by_them():
    x = np.arange(4.0, dtype=np.float32)[:, None]
    held = Held(x, -x, np.array([0.0, 3.0, 1.0, 0.0]))
    found = points_of_test(Rows(x, held, held, batch_size=2, seed=0), 4000, seed=-1)
    np.testing.assert_array_equal(found.condition, -found.x)
    assert set(found.x[:, 0]) == {1, 2}
    assert np.mean(found.x == 1) == pytest.approx(0.75, abs=0.03)
    assert points_of_test(Rows(x, x, x, batch_size=2, seed=0), 2, seed=0).x.tolist() == [[0], [1]]


# The page and its pictures.

RESULTS = {
    "experiment": "toy/x",
    "run": "runs/x",
    "version": "1",
    "points": 2048,
    "seed": 0,
    "summary": "FAIL",
    "verdicts": [Verdict("a", "FAIL", "|x| is 2", "|x| ≤ 1", "Bad.", {"x": float("nan"), "y": 2.0}).to_dict()],
}


def test_the_page_has_every_verdict_and_every_picture(tmp_path):
    pictures = {FILES[2]: lambda: draw_marginals(drawn(2), drawn(2, seed=1))}
    written = write_page(tmp_path / "new", RESULTS, pictures)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(path.name for path in written)
    page = (tmp_path / "new/check.md").read_text()
    assert "| **FAIL** | a | \\|x\\| is 2 | \\|x\\| ≤ 1 | Bad. |" in page
    assert f"]({FILES[2]})" in page
    assert "2,048 test points" in page
    values = json.loads((tmp_path / "new/check.json").read_text())["verdicts"][0]["values"]
    assert values == {"x": None, "y": 2.0}


def test_only_what_an_earlier_check_wrote_is_replaced(tmp_path):
    claim(tmp_path, overwrite=False)
    (tmp_path / "check.md").write_text("mine")
    with pytest.raises(InputError, match=r"check\.md exists, and no earlier check wrote it.*--overwrite"):
        claim(tmp_path, overwrite=False)
    claim(tmp_path, overwrite=True)
    write_page(tmp_path, RESULTS, {FILES[2]: lambda: draw_marginals(drawn(2), drawn(2))})
    claim(tmp_path, overwrite=False)
    write_page(tmp_path, RESULTS, {})
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FILES[:2])
    (tmp_path / FILES[3]).write_text("mine")
    with pytest.raises(InputError, match=FILES[3]):
        claim(tmp_path, overwrite=False)
    (tmp_path / "check.json").write_text("{}")
    with pytest.raises(InputError, match="check"):
        claim(tmp_path, overwrite=False)


def test_a_place_that_is_no_directory_is_refused(tmp_path):
    check_writable(tmp_path / "new/deeper")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="is a file; name a directory"):
        check_writable(tmp_path / "file/deeper")


def test_pairs_show_the_most_different_columns_where_their_points_are():
    rng = np.random.default_rng(0)
    data = 100 * np.arange(8) + rng.normal(size=(200, 8)) * np.arange(1, 9)
    samples = data + np.where(np.arange(8) == 5, 20.0, 0.0)
    page = draw_pairs(data, samples)
    assert len(page.axes) == 36
    assert "6 most different of 8" in " ".join(text.get_text() for text in page.texts)
    assert page.axes[0].texts[0].get_text() == "x6"
    shown = [axes for axes in page.axes if axes.collections]
    assert len(shown) == 30
    for axes in shown:
        x, y = axes.collections[0].get_offsets().T
        assert np.mean((x > axes.get_xlim()[0]) & (x < axes.get_xlim()[1])) > 0.9
        assert np.mean((y > axes.get_ylim()[0]) & (y < axes.get_ylim()[1])) > 0.9
    assert not Gcf.figs


def test_histograms_name_their_columns():
    page = draw_marginals(drawn(3), drawn(3, seed=1), ["a", "b", "c"])
    assert [axes.get_title(loc="left") for axes in page.axes] == ["a", "b", "c"]
    assert len(draw_marginals(np.tile(drawn(2), 20), np.tile(drawn(2), 20)).axes) == 30


def test_the_worst_grade_is_the_summary():
    of = lambda *grades: worst([Verdict("", grade, "", "", "") for grade in grades])
    assert of("pass", "skipped") == "pass"
    assert of("pass", "not conclusive") == "not conclusive"
    assert of("warn", "not conclusive", "pass") == "warn"
    assert of("warn", "FAIL") == "FAIL"


# The command.


@pytest.fixture
def copy(tmp_path) -> Path:
    """A trained model of numbers, with fixed steps, which compile quickly."""
    path = tmp_path / "run"
    shutil.copytree(Run.open(Path("pretrained/toy-1d")).path, path)
    config = json.loads((path / "config.json").read_text())
    config["solve"] |= {"method": "rk4", "num_steps": 20}
    (path / "config.json").write_text(json.dumps(config))
    return path


def test_a_good_run_is_checked_into_its_own_directory(copy, capsys):
    assert main(["check", str(copy), "--points", "64"]) == 0
    shown = capsys.readouterr().out
    assert "∫p = 1" in shown
    assert [line for line in shown.splitlines() if line.endswith(".png")] == [str(copy / "check-marginals.png")]
    results = json.loads((copy / "check.json").read_text())
    assert (results["summary"], results["points"]) == ("pass", 64)
    assert [v["name"] for v in results["verdicts"]] == [*CHECKS]
    assert main(["check", str(copy), "--points", "64"]) == 0  # replaces what is its own


def test_a_bad_run_ends_with_code_1(copy, tmp_path, capsys):
    config = json.loads((copy / "config.json").read_text())
    config["solve"] |= {"method": "euler", "num_steps": 2}
    (copy / "config.json").write_text(json.dumps(config))
    assert main(["check", str(copy), "--points", "64", "--out", str(tmp_path / "out")]) == 1
    assert "FAIL" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(FILES[:3])
    assert not (copy / "check.json").exists()


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["missing"], "not a run directory"),
        (["missing", "--points", "15"], "--points"),
        (["missing", "--seed", str(2**63)], "--seed"),
        (["pretrained/toy-1d", "--out", "mine/x"], "is a file"),
        (["pretrained/toy-1d", "--out", "full"], "--overwrite"),
    ],
)
def test_what_cannot_be_used_is_refused_with_code_2(words, part, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/check.md").write_text("mine")
    assert main(["check", *words]) == 2
    assert part in capsys.readouterr().err
    assert (tmp_path / "full/check.md").read_text() == "mine"


def test_numerics_are_changed_in_every_continuous_part():
    flow = Flow(StandardNormal((2,)), Chain([make(2).bijection, make(2).bijection]))
    changed = with_testing(flow, lambda cnf: Numerics(Skipped(), cnf.testing.solver))
    assert all(isinstance(part.testing.divergence, Skipped) for part in changed.bijection.parts)
