"""Densities given a condition: flow, objectives, scoring and estimator."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ffjord.bijections import CNF, Chain, MovingNorm, Numerics
from ffjord.data.source import Conditioned, Rows
from ffjord.divergence import Bottleneck, ClosedForm, Exact, Hutchinson
from ffjord.dynamics import MLP
from ffjord.errors import InputError
from ffjord.estimator import FFJORD
from ffjord.fixed_steps import fewest_steps
from ffjord.flow import Flow, StandardNormal
from ffjord.matching import FlowMatching
from ffjord.objectives import likelihood
from ffjord.scoring import sample_blocks, score
from ffjord.solve import Solver

KEY = jax.random.key(0)
C = 2


class Shifted(eqx.Module):
    """dz/dt = c₁: p(x | c) = N(x; c₁, I) at T = 1."""

    scale: jax.Array = eqx.field(default_factory=lambda: jnp.ones(()))

    def __call__(self, t, z, condition):
        return self.scale * condition[0] * jnp.ones_like(z)


def flow(dynamics, divergence=None) -> Flow:
    numerics = Numerics(divergence or Exact(), Solver(rtol=1e-6, atol=1e-6))
    return Flow(StandardNormal((2,)), CNF(dynamics, training=numerics, testing=numerics), (C,))


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)


@pytest.fixture(scope="module")
def c():
    return np.random.default_rng(1).normal(size=(5, C)).astype(np.float32)


def normal(x, mean):
    return -0.5 * ((x - mean) ** 2).sum(-1) - np.log(2 * np.pi)


def test_each_row_has_the_density_of_its_condition(x, c):
    model = flow(Shifted())
    np.testing.assert_allclose(model.log_prob(x, condition=c), normal(x, c[:, :1]), atol=1e-4)
    np.testing.assert_allclose(model.log_prob(x, condition=c[0]), normal(x, c[0, 0]), atol=1e-4)


def test_samples_follow_their_condition(c):
    model = flow(Shifted())
    assert np.asarray(model.sample(4000, condition=np.array([3.0, 0.0]), key=KEY)).mean() == pytest.approx(3, abs=0.1)
    samples = model.sample_and_log_prob(5, condition=c, key=KEY)
    np.testing.assert_allclose(samples.log_prob, model.log_prob(samples.x, condition=c), atol=1e-4)
    path = model.path(5, np.array([0.0, 1.0]), condition=c, key=KEY)
    np.testing.assert_allclose(path.x[1], samples.x, atol=1e-4)


def test_scores_and_samples_in_chunks_keep_conditions_with_their_rows():
    rng = np.random.default_rng(2)
    x, c = rng.normal(size=(37, 2)).astype(np.float32), rng.normal(size=(37, C)).astype(np.float32)
    scores = score(flow(Shifted()), x, conditions=c, chunk=16).log_prob
    np.testing.assert_allclose(scores, normal(x, c[:, :1]), atol=1e-4)
    far = np.where(np.arange(37)[:, None] % 2, 1000.0, -1000.0) * np.ones((37, C))
    drawn = np.concatenate([*sample_blocks(flow(Shifted()), 37, conditions=far, key=KEY)])
    np.testing.assert_array_equal(np.sign(drawn[:, 0]), np.sign(far[:, 0]))


def test_fixed_steps_are_found_for_given_conditions(build):
    rng = np.random.default_rng(3)
    x, c = rng.normal(size=(64, 2)).astype(np.float32), rng.normal(size=(64, C)).astype(np.float32)
    found = fewest_steps(flow(build(MLP, 2, (4,), condition_size=C)), x, conditions=c)
    assert found.nfe < found.adaptive_nfe
    assert found.nll == pytest.approx(found.adaptive_nll, abs=0.01)


@pytest.mark.parametrize("divergence", [ClosedForm(), Exact(), Hutchinson(), Bottleneck()])
def test_divergences_know_the_condition(build, x, c, divergence):
    net = build(MLP, 2, (4, 3), condition_size=C)
    exact = flow(net).log_prob(x, condition=c)
    keys = jax.random.split(KEY, 200 if divergence.stochastic else 1)
    model = flow(net, divergence)
    scores = jax.vmap(lambda key: model.density(x, condition=jnp.asarray(c), key=key).log_prob)(keys)
    error = 4 * np.std(scores, axis=0).max() / len(keys) ** 0.5 + 1e-3
    np.testing.assert_allclose(np.mean(scores, axis=0), exact, atol=error)
    assert not np.allclose(exact, flow(net).log_prob(x, condition=c + 1), atol=1e-2)


def test_objectives_take_conditions(build, x, c):
    model, batch = flow(build(MLP, 2, (4,), condition_size=C)), Conditioned(jnp.asarray(x), jnp.asarray(c))
    loss, _ = likelihood(model, batch, KEY)
    assert float(loss) == pytest.approx(-float(jnp.mean(model.log_prob(x, condition=c))), rel=1e-5)
    other = Conditioned(batch.x, batch.condition + 1)
    assert float(FlowMatching()(model, batch, KEY)[0]) != float(FlowMatching()(model, other, KEY)[0])


def test_a_chain_hands_conditions_to_its_parts(build, x, c):
    cnf = flow(build(MLP, 2, (4,), condition_size=C)).bijection
    model = Flow(StandardNormal((2,)), Chain([MovingNorm((2,)), cnf, MovingNorm((2,))]), (C,))
    model = model.calibrate(jnp.asarray(x), condition=c, key=KEY)
    z = model.density(x, condition=c).z
    np.testing.assert_allclose(model.bijection.forward(z, condition=jnp.asarray(c)).value, x, atol=1e-4)


def test_batches_keep_conditions_with_their_rows():
    rows = np.arange(10, dtype=np.float32)[:, None]
    batch = Rows(rows, rows, rows, batch_size=4, seed=0, condition=10 * rows).batches(1, 3)
    assert isinstance(batch, Conditioned)
    assert batch.x.shape == (3, 4, 1)
    np.testing.assert_array_equal(batch.condition, 10 * batch.x)


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        (None, "condition is missing"),
        (np.zeros((4, C)), r"condition must have shape \(5, 2\), a row for each, or \(2,\), one for all; got \(4, 2\)"),
        (np.full(C, np.nan), "condition must be finite"),
        (np.array(["a", "b"]), "condition must hold numbers"),
    ],
)
def test_bad_conditions(x, condition, words):
    with pytest.raises(ValueError, match=words):
        flow(Shifted()).log_prob(x, condition=condition)


def test_a_flow_without_conditions_refuses_them(build, x):
    model = flow(build(MLP, 2, (4,)))
    with pytest.raises(ValueError, match="condition was given, but this flow has none"):
        Flow(model.base, model.bijection).log_prob(x, condition=np.zeros(2))


def two_lines(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """x = 100 c + noise, with c of 0 or 1."""
    rng = np.random.default_rng(seed)
    c = rng.integers(2, size=n)
    return (100.0 * c + 10 * rng.normal(size=n))[:, None] + 7.0, c


@pytest.fixture(scope="module", params=["likelihood", "flow-matching"])
def conditional(request) -> FFJORD:
    x, c = two_lines(2000, 0)
    kinds = {
        "likelihood": {"steps": 150},
        "flow-matching": {"steps": 1000, "dynamics": "residual", "hidden": (32, 32), "nonlinearity": "swish"},
    }
    model = FFJORD(objective=request.param, **{"hidden": (16,)} | kinds[request.param], random_state=0)
    return model.fit(x, conditions=c)


def test_the_estimator_learns_a_density_for_every_condition(conditional):
    x, c = two_lines(500, 1)
    truth = -0.5 * ((x[:, 0] - 7 - 100 * c) / 10) ** 2 - np.log(10 * np.sqrt(2 * np.pi))
    assert conditional.score(x, conditions=c) == pytest.approx(truth.mean(), abs=0.15)
    for value in (0, 1):
        drawn = conditional.sample(500, random_state=0, conditions=value)
        assert drawn.mean() == pytest.approx(7 + 100 * value, abs=6)
    both = conditional.sample(4, random_state=0, conditions=[0, 1, 0, 1])[:, 0]
    np.testing.assert_array_equal(both > 57, [False, True, False, True])


def test_a_conditional_estimator_survives_a_file(conditional, tmp_path):
    x, c = two_lines(20, 2)
    conditional.save(tmp_path / "model.npz")
    loaded = FFJORD.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.score_samples(x, conditions=c), conditional.score_samples(x, conditions=c))


def test_the_estimator_refuses_bad_conditions(conditional):
    x, c = two_lines(20, 2)
    with pytest.raises(InputError, match="conditions are missing: the estimator was fitted with 1"):
        conditional.score_samples(x)
    with pytest.raises(InputError, match="must have a row for each of the 20 rows; got 3"):
        conditional.score_samples(x, conditions=c[:3])
    with pytest.raises(InputError, match="must have 1 columns, as in fit; got 2"):
        conditional.score_samples(x, conditions=np.stack([c, c], axis=1))
    with pytest.raises(ValueError, match="conditions"):
        conditional.score_samples(x, conditions=np.full(20, np.nan))
    with pytest.raises(InputError, match="a row for each of the 20 rows; got 4"):
        FFJORD().fit(x, conditions=c[:4])


def test_an_estimator_without_conditions_refuses_them():
    x, _ = two_lines(20, 2)
    plain = FFJORD(hidden=(4,), steps=2, batch_size=8, method="euler", random_state=0).fit(x)
    with pytest.raises(InputError, match="fitted without"):
        plain.sample(3, conditions=0)
