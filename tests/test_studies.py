"""The paper's analyses: the mathematics of each, in small."""

import json
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ffjord.bijections import CNF, Chain, Numerics, Standardize
from ffjord.data.toys import mixture_1d, mixture_1d_density
from ffjord.divergence import Bottleneck, ClosedForm, Exact, Hutchinson
from ffjord.dynamics import MLP, EncoderDecoder
from ffjord.experiments import find
from ffjord.flow import Flow, StandardNormal
from ffjord.reproduce import (
    adjoint_memory,
    bottleneck,
    figure1,
    multiscale,
    nfe_vs_dimension,
    noise_variance,
    samples,
    tolerance,
)
from ffjord.reproduce.embedded import PLANAR, embedding, log_density, train_embedded
from ffjord.reproduce.recipes import changed
from ffjord.reproduce.trace_variance import jacobians, trace_variances
from ffjord.runs import Run
from ffjord.solve import Solver
from ffjord.training.loop import check

KEY = jax.random.key(0)


def on_a_line(scale: float) -> Flow:
    """A flow on the line that moves by `scale` times an arbitrary network; not at all for 0."""
    mlp = jax.tree.map(lambda leaf: scale * leaf, MLP(1, (16,), layer="concat", key=KEY))
    return Flow(StandardNormal((1,)), CNF(mlp, testing=Numerics(ClosedForm(), Solver(steps="batch"))))


# The flow on the line.


def test_the_mixture_has_the_density_and_the_entropy_that_are_told():
    x = np.linspace(-12, 12, 20_001)
    q = mixture_1d_density(x)
    assert np.sum(q) * (x[1] - x[0]) == pytest.approx(1, abs=1e-9)
    assert -np.sum(q * np.log(q)) * (x[1] - x[0]) == pytest.approx(1.9290, abs=1e-4)
    drawn = mixture_1d(100_000, np.random.default_rng(0))[:, 0]
    heights, edges = np.histogram(drawn, 60, (-5, 5), density=False)
    middles = (edges[1:] + edges[:-1]) / 2
    np.testing.assert_allclose(heights / (100_000 * np.diff(edges)), mixture_1d_density(middles), atol=0.01)


def test_the_distance_of_a_normal_density_from_the_mixture_is_the_known_one():
    found = figure1.distances(on_a_line(0.0))
    second_moment = np.mean(np.square([-2.8, -0.9, 2.0])) + 0.4
    assert found["divergence"] == pytest.approx(0.5 * math.log(2 * math.pi) + 0.5 * second_moment - 1.9290, abs=1e-3)
    assert found["modes"] == 1
    assert 0.3 < found["total_variation"] < 0.6


# The tolerance.


def test_a_flow_that_does_not_move_has_the_mass_of_its_base():
    found = tolerance.mass(on_a_line(0.0), 1e-3, 4096, True, "batch")
    assert found["mass"] == pytest.approx(1, abs=1e-12)
    assert found["error"] == abs(1 - found["mass"])


@pytest.mark.parametrize("steps", ["batch", "sample"])
def test_the_error_of_the_mass_falls_with_the_tolerance(steps):
    flow = on_a_line(3.0)
    loose, fine = (tolerance.mass(flow, value, 4096, True, steps) for value in (1e-2, 1e-7))
    assert fine["error"] < 1e-5 < loose["error"]
    assert fine["nfe"] > loose["nfe"]
    assert not jax.config.jax_enable_x64  # only the study itself was in double precision
    assert flow.dtype == jnp.float32


def test_the_evaluations_of_the_mass_are_those_of_the_report():
    flow, points = on_a_line(3.0), 256
    x = (-15 + 30 / points * (np.arange(points) + 0.5))[:, None]
    exact = eqx.tree_at(lambda f: f.bijection.testing.solver, flow, Solver(rtol=1e-4, atol=1e-4, steps="batch"))
    assert tolerance.mass(flow, 1e-4, points, False, "batch")["nfe"] == int(exact.density(x).report.nfe)


def test_the_slope_is_that_of_the_logarithms():
    rows = [{"tolerance": t, "error": 3 * t**0.9} for t in tolerance.TOLERANCES]
    assert tolerance.slope(rows) == pytest.approx(0.9)


# The bottleneck.


@pytest.fixture(scope="module")
def narrow():
    """A flow over images of 4 × 4 pixels, whose network has a waist of two numbers in each of 2 × 2 places."""
    net = EncoderDecoder((4, 4, 1), (3, 2), key=KEY)
    return CNF(jax.tree.map(lambda leaf: 2 * leaf, net), testing=Numerics(Exact(), Solver("rk4", num_steps=2)))


def test_both_matrices_of_the_trick_have_the_same_trace(narrow):
    z, t = jax.random.normal(KEY, (4, 4, 1)), jnp.asarray(0.3)
    wide, small = jacobians(narrow.dynamics, t, z)
    assert (wide.shape, small.shape) == ((16, 16), (8, 8))
    assert jnp.trace(wide) == pytest.approx(float(jnp.trace(small)), rel=1e-4)
    assert jnp.trace(wide) == pytest.approx(float(Exact()(narrow.dynamics, t, z)[1]), rel=1e-4)


@pytest.mark.parametrize("noise", ["gaussian", "rademacher"])
@pytest.mark.parametrize(("trace", "kind"), [("hutchinson", Hutchinson), ("bottleneck", Bottleneck)])
def test_variances_of_the_trace_are_those_of_its_estimates(narrow, noise, trace, kind):
    z = jax.random.normal(KEY, (1, 4, 4, 1))
    told, size = trace_variances(narrow, z, fractions=(0.0,))[trace, noise]
    assert size == {"hutchinson": 16, "bottleneck": 8}[trace]

    @jax.jit
    def estimates(keys):
        one = lambda key: kind(noise).noise(narrow.dynamics, z[0], key=key)
        return jax.vmap(lambda key: kind(noise)(narrow.dynamics, jnp.zeros(()), z[0], one(key))[1])(keys)

    drawn = np.asarray(estimates(jax.random.split(KEY, 4000)))
    assert told == pytest.approx(drawn.var(), rel=0.15)


@pytest.mark.parametrize("data_dir", [None, "somewhere"])
@pytest.mark.parametrize("quick", [False, True])
def test_the_four_trainings_differ_in_trace_and_noise_alone(quick, data_dir):
    found = [bottleneck.settings(*cell, quick=quick, seed=0, data_dir=data_dir) for cell in bottleneck.CELLS]
    assert len({(e.solve.divergence, e.solve.noise) for e in found}) == 4
    same = {"solve.divergence": "auto", "solve.noise": "gaussian"}
    assert len({json.dumps(changed(e, same).to_dict()) for e in found}) == 1
    check(found[0].train)
    assert found[0].data.name == ("image/digits" if data_dir is None else "image/mnist")


def test_the_loss_that_is_had_without_the_trick_is_looked_for_with_it():
    row = lambda trace, step, loss, seed=0: {
        "trace": trace, "noise": "gaussian", "seed": seed, "step": step, "loss": loss
    }  # fmt: skip
    rows = [row("bottleneck", 20, 3.0), row("bottleneck", 40, 2.0), row("bottleneck", 20, 5.0, seed=1)]
    assert bottleneck.of(rows, "bottleneck", "gaussian") == {20: 4.0, 40: 2.0}
    assert bottleneck.first_step({20: 4.0, 40: 2.0}, 2.5) == 40
    assert bottleneck.first_step({20: 4.0, 40: 2.0}, 1.5) is None


# Evaluations against dimension.


@pytest.mark.parametrize("dim", [2, 7])
def test_an_embedded_density_has_the_covariance_and_entropy_of_the_plane(dim):
    x = embedding("stretched Gaussian", dim)(50_000, np.random.default_rng(0))
    assert x.shape == (50_000, dim)
    covariance = np.cov(x.T)
    wanted = sorted([9.0, 0.09] + [1.0] * (dim - 2))
    np.testing.assert_allclose(np.linalg.eigvalsh(covariance), wanted, rtol=0.05)
    entropy = 0.5 * np.linalg.slogdet(2 * np.pi * np.e * covariance)[1]
    assert -log_density("stretched Gaussian", x).mean() == pytest.approx(entropy, abs=0.05)


@pytest.mark.parametrize("name", PLANAR)
def test_densities_of_the_plane_integrate_to_one_and_are_those_of_the_points(name):
    grid = np.stack(np.meshgrid(*[np.linspace(-14, 14, 1001)] * 2), axis=-1).reshape(-1, 2)
    q = np.exp(PLANAR[name].log_density(grid))
    assert q.sum() * 0.028**2 == pytest.approx(1, abs=1e-3)
    y = PLANAR[name].draw(50_000, np.random.default_rng(0))
    entropy = -np.sum(q * np.log(np.maximum(q, 1e-300))) * 0.028**2
    assert -PLANAR[name].log_density(y).mean() == pytest.approx(entropy, abs=0.02)


@pytest.mark.slow
def test_a_training_in_some_dimension_tells_evaluations_and_what_is_left():
    shown = []
    rows = train_embedded("N(0, I)", 3, 4, shown.append)
    assert [row["step"] for row in rows] == [0, 1, 2, 3, 4]
    assert all(row["nfe"] >= 8 and row["excess"] > -0.01 for row in rows)
    assert [row["step"] for row in shown if "validation_loss" in row] == [1, 2, 3, 4]


@pytest.mark.slow
def test_an_autoencoder_of_some_latent_size_tells_evaluations_and_its_bound(tmp_path):
    rows = nfe_vs_dimension.SERIES["autoencoder"].train(tmp_path, 4, 12)
    assert [row["step"] for row in rows] == list(range(1, 13))
    assert all(row["nfe"] >= 8 for row in rows)
    assert rows[-1]["bound"] < rows[0]["bound"]


def test_autoencoders_have_the_papers_flow_and_their_own_latent_size():
    model = nfe_vs_dimension.autoencoder(48, 300).model
    assert (model.latent, model.hidden, model.posterior) == (48, (256, 256), "ffjord")


def test_a_picture_and_a_page_of_densities_and_autoencoders():
    point = lambda step, nfe, **found: {"step": step, "nfe": nfe, **found}
    curves = {
        ("N(0, I)", 2): [point(0, 14, excess=0.2), point(1, 14, excess=0.1)],
        ("autoencoder", 16): [point(1, 20, bound=90.0), point(2, 26, bound=80.0)],
    }
    axes = nfe_vs_dimension.draw(curves).axes
    assert [len(one.lines) for one in axes] == [2, 1, 1]
    page = str(nfe_vs_dimension._page(curves, 2, quick=True))
    assert "| 16 | – | 26 (80.0) |" in page
    assert "| 2 | 14 (+0.10) | – |" in page


# Scales.


@pytest.mark.parametrize("quick", [False, True])
def test_both_trainings_make_sense_and_count_evaluations_backwards(quick):
    for model in multiscale.MODELS:
        experiment = multiscale.settings(model, quick=quick)
        check(experiment.train)
        assert experiment.solve.gradient == "adjoint"


def test_the_curve_of_a_training_has_the_mean_evaluations_of_its_steps(tmp_path):
    run = Run.create(tmp_path / "run", find("image/digits"))
    step = lambda number, nfe, back: {"step": number, "loss": 9.0, "nfe": nfe, "backward_nfe": back, "sound": True}
    validation = lambda number, loss: {"step": number, "validation_loss": loss, "validation_nfe": 30.0}
    bits = 64 * math.log(2)
    rows = [step(1, 10, 20), step(2, 14, 24), validation(2, (3 - math.log2(17)) * bits)]
    rows += [step(3, 20, 40), {**step(4, 99, 99), "sound": False}, validation(4, None)]
    run.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    first, second = multiscale.curve(run)
    assert first["bits_per_dim"] == pytest.approx(3)
    assert (first["nfe"], first["backward"], first["total"]) == (12, 22, 34)
    assert math.isnan(second["bits_per_dim"])
    assert second["total"] == 60
    assert multiscale.best([first, {**first, "bits_per_dim": 2.5, "step": 9}])["step"] == 9


# The trace's noise.

MATRIX = np.array([[1.0, 2.0, -0.5], [0.3, -2.0, 1.5], [0.7, 0.1, 0.5]]) / 2


def linear_flow() -> Flow:
    """x = exp(A) z by one step of Euler's method: the trace is the same everywhere."""
    mlp = MLP(3, (), layer="ignore", key=KEY)
    mlp = jax.tree.map(lambda leaf: jnp.asarray(MATRIX, jnp.float32) if leaf.ndim == 2 else leaf, mlp)
    cnf = CNF(mlp, testing=Numerics(Exact(), Solver("euler", num_steps=1)))
    return Flow(StandardNormal((3,)), Chain([cnf, Standardize(jnp.zeros(3), jnp.ones(3))]))


@pytest.mark.parametrize("probes", [1, 4])
def test_the_variance_of_a_log_likelihood_is_that_of_theory(probes):
    x = np.random.default_rng(0).normal(size=(400, 3))
    b = (MATRIX + MATRIX.T) / 2
    known = {"gaussian": 2 * np.sum(b**2), "rademacher": 2 * (np.sum(b**2) - np.sum(np.diag(b) ** 2))}
    for noise, variance in known.items():
        found = noise_variance.measure(linear_flow(), x, noise, probes, 8)
        assert found["of_one"] == pytest.approx(variance / probes, rel=0.15)
        assert found["of_mean"] == found["of_one"] / 400
        assert found["of_mean"] / 5 < found["of_mean_directly"] < 5 * found["of_mean"]


def test_the_variance_of_a_mean_falls_with_the_number_of_points():
    row = {"run": "a", "noise": "gaussian", "probes": 1, "dimensions": 10, "points": 50, "of_one": 2.0}
    found = {point["points"]: point for point in noise_variance.against_points(row)}
    assert found[50]["variance_nats"] == 0.04
    assert found[100]["variance_bits_per_dim"] == pytest.approx(0.02 / (10 * math.log(2)) ** 2)


# Memory.


def small_flow(gradient: str, count: int) -> Flow:
    solver = Solver("rk4", num_steps=count, gradient=gradient)
    return Flow(StandardNormal((2,)), CNF(MLP(2, (16,), key=KEY), training=Numerics(Exact(), solver)))


@pytest.mark.slow
def test_the_adjoint_needs_no_more_memory_for_more_steps_and_the_direct_gradient_needs_much():
    x = jax.random.normal(KEY, (256, 2))
    memory, gradients = {}, {}
    for gradient, count in (("adjoint", 4), ("adjoint", 32), ("checkpointed", 32), ("direct", 8), ("direct", 32)):
        step, memory[gradient, count] = adjoint_memory.compiled_step(small_flow(gradient, count), x, KEY)
        gradients[gradient] = jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(step()[1].bijection.dynamics)])
    assert memory["adjoint", 32] == memory["adjoint", 4]
    assert memory["adjoint", 32] < memory["checkpointed", 32] < memory["direct", 32] / 5
    assert memory["direct", 32] > 3 * memory["direct", 8]
    np.testing.assert_allclose(gradients["adjoint"], gradients["direct"], atol=1e-4)
    np.testing.assert_allclose(gradients["checkpointed"], gradients["direct"], atol=1e-5)


def test_the_study_of_memory_counts_four_evaluations_a_step(monkeypatch):
    monkeypatch.setattr(adjoint_memory, "compiled_step", lambda flow, x, key: (lambda: x, 7))
    assert adjoint_memory.measure("mlp", "checkpointed", 3) | {"seconds": 0} == {"bytes": 7, "nfe": 12, "seconds": 0}


def test_memory_and_time_are_told_from_the_fewest_steps_to_the_most():
    rows = [{"model": "mlp", "gradient": "direct", "steps": n, "bytes": 1e6 * n, "seconds": 0.01} for n in (4, 8, 32)]
    assert adjoint_memory.ends(rows, "mlp", "direct") == "direct 4 → 32 MB, 10 → 10 ms (4 → 32 steps)"


# Samples.


def test_the_nearest_image_is_found():
    others = np.zeros((3, 2, 2, 1))
    others[1] = 1.0
    x = np.stack([np.full((2, 2, 1), 0.9), np.full((2, 2, 1), 0.3)])
    assert samples.nearest(x, others) == pytest.approx((0.1 + 0.3) / 2)
