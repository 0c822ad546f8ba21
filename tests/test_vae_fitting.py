"""The flow of a posterior that learns alone first, and the decoder that takes in what is linear of it."""

import dataclasses
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ffjord.bijections import CNF, Numerics
from ffjord.bijections.amortized import Amortized
from ffjord.cli import main
from ffjord.data.source import Rows
from ffjord.divergence import ClosedForm
from ffjord.dynamics.low_rank import LowRankMLP
from ffjord.experiments import find
from ffjord.reproduce import table3
from ffjord.solve import Solver
from ffjord.training.optimizer import optimizer
from ffjord.vae import VAE, Bernoulli, Decoder, Posterior
from ffjord.vae.fitting import _Fit, fit_flow

KEY = jax.random.key(0)
SHAPE = (4, 4, 1)


class Net(eqx.Module):
    """One linear layer, which stands for an encoder."""

    linear: eqx.nn.Linear

    def __call__(self, x):
        return self.linear(x.ravel())


def trained_for_correlated_points() -> VAE:
    """An autoencoder whose posteriors lie, all together, along a line far from the prior."""
    keys = jax.random.split(KEY, 5)
    numerics = Numerics(ClosedForm(), Solver("midpoint", num_steps=4))
    net = LowRankMLP(2, (16,), rank=1, nonlinearity="tanh", key=keys[0])
    flow = CNF(net, training=numerics, testing=numerics)
    flow = Amortized(flow, net.part_sizes, 3, scale=0.01, key=keys[1])
    posterior = Posterior(3, 2, flow, key=keys[2])
    line = jnp.asarray([[2.0, 0.0, 0.0], [1.9, 0.2, 0.0]])
    at = lambda posterior: (posterior.mean.weight, posterior.mean.bias, posterior.variance.bias)
    posterior = eqx.tree_at(at, posterior, (line, jnp.asarray([1.0, 1.0]), jnp.full(2, -4.0)))
    decoder = Decoder(SHAPE, 2, outputs=1, key=keys[3])
    return VAE(Net(eqx.nn.Linear(16, 3, key=keys[4])), posterior, decoder, Bernoulli(), 2, SHAPE)


@pytest.fixture(scope="module")
def source() -> Rows:
    images = np.random.default_rng(0).integers(0, 2, (300, *SHAPE)).astype(np.float32)
    return Rows(images[:200], images[200:250], images[250:], batch_size=50, seed=0)


@pytest.fixture(scope="module")
def fitted(source) -> tuple[VAE, VAE, list[str]]:
    """Before and after, and what was told."""
    vae, told = trained_for_correlated_points(), []
    return vae, fit_flow(vae, source, 200, tell=told.append, key=KEY), told


@pytest.mark.usefixtures("x64")
def test_the_decoder_takes_in_a_linear_map():
    decoder, z = Decoder(SHAPE, 3, outputs=1, key=KEY), jnp.asarray([0.3, -1.0, 2.0])
    matrix, shift = jax.random.normal(jax.random.key(1), (3, 3)), jnp.asarray([1.0, 0.5, -2.0])
    np.testing.assert_allclose(decoder.after(matrix, shift)(z), decoder(matrix @ z + shift), rtol=1e-9, atol=1e-12)


def test_a_flow_alone_brings_all_posteriors_nearer_to_the_prior(fitted, source):
    before, after, told = fitted
    x = jnp.asarray(source.validation())
    kls = [float(jnp.mean(vae.elbo(x, key=jax.random.key(7)).kl)) for vae in (before, after)]
    assert kls[1] < kls[0] - 0.5
    assert [line.split(", KL of validation images ")[0].split(": ")[1] for line in told] == [
        "start",
        "step 50/200",
        "step 100/200",
        "step 150/200",
        "step 200/200",
    ]


def test_what_is_worse_for_validation_images_is_not_kept(source):
    other = 50 * source.train[:50]  # their posteriors lie where the flow of the training images' leads further away
    told, vae = [], trained_for_correlated_points()
    after = fit_flow(vae, Rows(source.train, other, other, batch_size=50, seed=0), 2000, tell=told.append, key=KEY)
    costs = [float(line.split()[-1]) for line in told]
    best = costs.index(min(costs))
    assert len(costs) == best + 1 + 6, "six looks in vain, and no more"
    assert eqx.tree_equal(after.posterior, vae.posterior) == (best == 0)


def test_what_no_linear_map_tells_costs_what_the_likelihood_loses(source):
    vae, x = trained_for_correlated_points(), jnp.asarray(source.validation())
    matrix, shift = jnp.asarray([[0.5, 0.1], [0.0, 2.0]]), jnp.asarray([0.3, -0.2])
    cost, (kl, drawn) = _Fit(vae, matrix, shift).cost(x, KEY)
    # log p(x | z₀) = -½ Σ c (z₀ - m)² + const has its best bound where σ² = 1/(1 + c)
    curvature = 1 / jax.nn.softplus(vae.posterior.variance(vae.encoder(x[0]))) - 1
    loss = 0.5 * curvature * (drawn.start - drawn.z @ matrix.T - shift) ** 2
    np.testing.assert_allclose(cost - kl, 0.03 * loss.sum(axis=1).mean(), rtol=0.05)  # images' variances are alike
    assert float(kl) == pytest.approx(float(jnp.mean(vae.elbo(x, key=KEY).kl)), rel=0.1)


def test_the_decoder_hardly_notices(fitted, source):
    before, after, _ = fitted
    drawn = after.encode(jnp.asarray(source.validation()), key=KEY)
    first = lambda vae, z: jax.vmap(vae.decoder.first)(z)
    usual, now, not_adapted = first(before, drawn.start), first(after, drawn.z), first(before, drawn.z)
    distance = lambda h: float(jnp.sqrt(jnp.mean((h - usual) ** 2)))
    assert distance(now) < 0.3 * distance(not_adapted)


def test_only_what_images_share_learns(fitted):
    before, after, _ = fitted
    parts = lambda vae: (vae.encoder, vae.posterior.mean, vae.posterior.variance, vae.posterior.flow.linear)
    assert eqx.tree_equal(parts(before), parts(after))
    assert eqx.tree_equal(before.decoder.layers, after.decoder.layers)
    dynamics = lambda vae: jax.tree.leaves(eqx.filter(vae.posterior.flow.inner.dynamics, eqx.is_array))
    assert not any(np.allclose(one, other) for one, other in zip(dynamics(before), dynamics(after), strict=True))


def test_flows_that_share_weights_are_fitted_in_the_table():
    budget = table3.Budget(fit_flow=300)
    fits = lambda posterior, base: table3.settings("frey", posterior, 0, budget, None, base).train.fit_flow
    posteriors = ("none", "planar", "iaf", "orthogonal", "ffjord-fast", "ffjord-bias")
    assert [fits(posterior, Path("base")) for posterior in posteriors] == [0, 0, 0, 300, 300, 300]
    assert fits("ffjord-fast", None) == 0, "there is nothing to fit it to"


def test_flows_that_have_learnt_alone_go_on_slowly():
    budget = table3.Budget(fit_flow=300, flow_rate=0.1)
    rate = lambda posterior: table3.settings("frey", posterior, 0, budget, None, Path("base")).train.flow_rate
    assert [rate(posterior) for posterior in ("none", "iaf", "orthogonal", "ffjord-fast")] == [1, 1, 0.1, 0.1]


def test_the_flows_rate_is_that_of_the_flow_alone():
    vae = eqx.filter(trained_for_correlated_points(), eqx.is_inexact_array)
    grads = jax.tree.map(jnp.ones_like, vae)

    def updates(**changes):
        rule = optimizer(dataclasses.replace(find("vae/digits").train, learning_rate=1e-3, **changes))
        return rule.update(grads, rule.init(vae), vae)[0]

    usual, slow = updates(), updates(flow_rate=0.1)
    flow = lambda vae: vae.posterior.flow
    for one, other in zip(jax.tree.leaves(flow(usual)), jax.tree.leaves(flow(slow)), strict=True):
        np.testing.assert_allclose(other, 0.1 * one, rtol=1e-6)
    assert eqx.tree_equal(usual, eqx.tree_at(flow, slow, flow(usual)))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train vae/digits-planar --start-from runs/none --fit-flow 5", "fit_flow is for the posteriors ffjord, ortho"),
        ("train vae/digits --fit-flow 5", "fit_flow needs start_from"),
        ("train vae/digits --fit-flow -5", "fit_flow must"),
        ("reproduce table3 --fit-flow 5", "--fit-flow needs --base-minutes or --base-epochs"),
        ("reproduce table3 --fit-flow 0 --base-epochs 1", "--fit-flow must be at least 1; got 0"),
        ("train vae/digits --flow-rate 0", "flow_rate must be positive; got 0"),
        ("train vae/digits-none --flow-rate 0.1", "flow_rate is for posteriors with a flow; got none"),
        ("train toy/moons --flow-rate 0.1", "flow_rate is for posteriors with a flow; got toy/moons"),
        ("reproduce table3 --base-epochs 1 --flow-rate 0.1", "--flow-rate needs --fit-flow"),
        ("reproduce table3 --base-epochs 1 --fit-flow 5 --flow-rate 0", "--flow-rate must be a positive number; got 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        code = main(words.split())
    except SystemExit as stopped:
        code = stopped.code
    assert code == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())
