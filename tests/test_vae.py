"""Variational autoencoders: their parts against equations, their bounds against integrals that are known."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from ffjord.bijections import CNF, Numerics
from ffjord.bijections.amortized import Amortized, Identity
from ffjord.bijections.sylvester import Sylvester, orthonormal
from ffjord.divergence import ClosedForm, Exact, Hutchinson, Prepared
from ffjord.dynamics.given import Given
from ffjord.dynamics.low_rank import LowRankMLP
from ffjord.experiments import ModelConfig
from ffjord.regularizers import JacobianFrobenius
from ffjord.solve import Solver
from ffjord.vae import VAE, Bernoulli, Categorical, Decoder, Encoder, NegativeElbo, Posterior, posterior_flow

KEY = jax.random.key(0)
SOLVER = Solver(method="rk4", num_steps=8)
FINE = Solver(method="dopri5", rtol=1e-10, atol=1e-10)
POSTERIORS = ("none", "planar", "iaf", "orthogonal", "householder", "triangular", "ffjord")


def make_cnf(dynamics, shape, solver=SOLVER):
    return CNF(dynamics, training=Numerics(Hutchinson("rademacher"), solver), testing=Numerics(Exact(), solver))


def flow_of(kind, latent=3, features=4, **settings):
    model = ModelConfig(posterior=kind, hidden=(5, 5), flows=2, rank=2, columns=2, reflections=2)
    return posterior_flow(model, latent, features, partial(make_cnf, **settings), key=KEY)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("kind", POSTERIORS)
def test_every_posteriors_flow_has_the_determinant_of_its_jacobian(kind):
    flow, z, features = (
        flow_of(kind, solver=FINE),
        *(jax.random.normal(jax.random.key(i), (2, n)) for i, n in ((1, 3), (2, 4))),
    )
    moved = lambda p: p + jax.random.normal(jax.random.key(p.size), p.shape)
    flow = jax.tree.map(lambda p: moved(p) if eqx.is_inexact_array(p) and p.ndim else p, flow)
    push = eqx.filter_jit(lambda z, c: flow.forward(z, condition=c, key=KEY))
    out = push(z, features)
    jacobians = eqx.filter_jit(jax.jacrev(lambda z: flow.forward(z, condition=features, key=KEY).value))(z)
    for i in range(2):
        log_det = jnp.linalg.slogdet(jacobians[i, :, i])[1]
        np.testing.assert_allclose(out.log_det[i], log_det, rtol=1e-6, atol=1e-9)
    if kind != "none":
        assert not np.allclose(out.value, push(z, features[::-1]).value)  # the features steer it


def test_a_continuous_posterior_starts_near_the_gaussian_and_can_leave_it():
    z, features = jax.random.normal(KEY, (6, 3)), jax.random.normal(jax.random.key(1), (6, 4))
    flow = flow_of("ffjord")

    @eqx.filter_jit
    @eqx.filter_grad(has_aux=True)
    def pushed(flow):
        out = flow.forward(z, condition=features, key=KEY)
        return jnp.sum(out.value**2), out.value

    grads, value = pushed(flow)
    np.testing.assert_allclose(value, z, atol=0.35)  # 0.7 with a usual start
    last = grads.parts[0].inner.dynamics.weights[-1]
    assert float(jnp.max(jnp.abs(last))) > 0.1, "weights that start at zero have a gradient"


@pytest.mark.parametrize("kind", ["orthogonal", "householder", "triangular"])
def test_a_sylvester_posterior_starts_as_the_gaussian_and_can_leave_it(kind):
    z, features = jax.random.normal(KEY, (6, 3)), jax.random.normal(jax.random.key(1), (6, 4))

    @eqx.filter_jit
    @eqx.filter_grad(has_aux=True)
    def pushed(flow):
        out = flow.forward(z, condition=features, key=KEY)
        return jnp.sum(out.value**2), (out.value, out.log_det)

    grads, (value, log_det) = pushed(flow_of(kind))
    np.testing.assert_array_equal(value, z)
    np.testing.assert_array_equal(log_det, 0)
    for part in grads.parts:
        outer = part.inner.outer
        for grad in (part.shared, part.linear.bias):
            assert float(jnp.min(jnp.abs(grad[outer]))) > 0
            np.testing.assert_array_equal(grad[~outer], 0)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_low_rank_layers_are_their_equation(scale):
    net = LowRankMLP(3, (5,), rank=2, matrix_scale=scale, nonlinearity="tanh", key=KEY)
    condition = jax.random.normal(jax.random.key(1), (net.condition_size,))
    t, h = jnp.asarray(0.3), jax.random.normal(jax.random.key(2), (3,))
    expected, start = h, 0

    def cut(*shape):
        nonlocal start
        start += (size := int(np.prod(shape)))
        return condition[start - size : start].reshape(shape)

    for number, (weight, time, bias) in enumerate(zip(net.weights, net.times, net.biases, strict=True)):
        n, m = weight.shape
        u, v, v_time, own = scale * cut(2, n).T, cut(2, m).T, cut(2), cut(n)
        whole = jnp.concatenate([time[:, None], weight], axis=1) + u @ jnp.concatenate([v_time[None], v]).T
        expected = whole @ jnp.append(t, expected) + bias + own
        expected = jnp.tanh(expected) if number == 0 else expected
    assert start == net.condition_size
    np.testing.assert_allclose(net(t, h, condition), expected, rtol=1e-12)
    np.testing.assert_allclose(net(t, h, net.prepare(condition)), expected, rtol=1e-12)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("kind", "size"), [("none", 0), ("bias", 8), ("full", 5 * 4 + 5 + 3 * 6 + 3)])
def test_other_amortizations(kind, size):
    net = LowRankMLP(3, (5,), amortization=kind, key=KEY)
    assert net.condition_size == size
    t, z, zero = jnp.asarray(0.3), jnp.ones(3), jnp.zeros(size)
    plain = LowRankMLP(3, (5,), amortization="none", key=KEY)(t, z)
    np.testing.assert_allclose(net(t, z, zero), plain, rtol=1e-12)  # what depends on x is added to what does not
    if size:
        assert not np.allclose(net(t, z, zero + 1), plain)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("hidden", [(), (5,), (5, 4)])
@pytest.mark.parametrize("kind", ["low-rank", "bias", "full", "none"])
def test_the_trace_in_closed_form_is_the_sum_of_the_jacobians_diagonal(hidden, kind):
    net = LowRankMLP(3, hidden, amortization=kind, rank=2, key=KEY)
    condition = jax.random.normal(jax.random.key(1), (net.condition_size,)) if kind != "none" else None
    t, z = jnp.asarray(0.3), jax.random.normal(jax.random.key(2), (3,))
    dz, trace = Exact()(Given(net, condition), t, z)
    assert net.has_closed_form
    for given in (condition, net.prepare(condition, trace=True)):
        found = net.value_and_divergence(t, z, given)
        np.testing.assert_allclose(found[0], dz, rtol=1e-12)
        np.testing.assert_allclose(found[1], trace, rtol=1e-10)
        np.testing.assert_allclose(net(t, z, given), dz, rtol=1e-12)
    assert not LowRankMLP(3, (5, 5, 5), key=KEY).has_closed_form


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("hidden", [(5,), (5, 4), (5, 4, 6)])
@pytest.mark.parametrize("kind", ["low-rank", "bias", "full", "none"])
def test_hutchinsons_estimate_is_the_same_when_the_noise_is_prepared(hidden, kind):
    net = LowRankMLP(3, hidden, amortization=kind, rank=2, key=KEY)
    condition = jax.random.normal(jax.random.key(1), (net.condition_size,)) if kind != "none" else None
    t, z = jnp.asarray(0.3), jax.random.normal(jax.random.key(2), (3,))
    estimator = Hutchinson(probes=2)
    for f in (Given(net, condition), Given(net, net.prepare(condition))):
        noise = estimator.noise(f, z, key=KEY)
        assert isinstance(noise, Prepared)
        expected = estimator(f, t, z, noise.eps)  # by two products with the Jacobian
        for found, value in zip(estimator(f, t, z, noise), expected, strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-10)
    assert not LowRankMLP(3, (), key=KEY).has_forms


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("gradient", ["checkpointed", "adjoint"])
def test_prepared_noise_has_the_gradient_of_products_with_the_jacobian(gradient):
    """A regulariser asks for the products, so that the noise is used as it was drawn; both weigh nothing here."""
    net = LowRankMLP(3, (5, 4), rank=2, nonlinearity="tanh", key=KEY)
    z, features = (jax.random.normal(jax.random.key(i), (2, n)) for i, n in ((1, 3), (2, 4)))
    solver = Solver(rtol=1e-7, atol=1e-7, gradient=gradient)

    def loss(flow):
        out = flow.forward(z, condition=features, train=True, key=KEY)
        return jnp.sum(out.value**2 + out.log_det[:, None])

    found = []
    for regularizers in ((), (JacobianFrobenius(),)):
        flow = CNF(net, training=Numerics(Hutchinson(), solver, regularizers))
        flow = Amortized(flow, net.part_sizes, 4, key=KEY)
        value, grads = eqx.filter_jit(eqx.filter_value_and_grad(loss))(flow)
        found.append((value, *jax.tree.leaves((grads.linear, grads.inner.dynamics))))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-7)


@pytest.mark.usefixtures("x64")
def test_flows_and_their_gradients_do_not_depend_on_which_exact_trace():
    net = LowRankMLP(3, (5, 4), rank=2, nonlinearity="tanh", key=KEY)
    z, features = (jax.random.normal(jax.random.key(i), (2, n)) for i, n in ((1, 3), (2, 4)))

    def loss(flow, features):
        out = flow.forward(z, condition=features, train=True, key=KEY)
        return jnp.sum(out.value**2 + out.log_det[:, None])

    found = []
    for divergence, gradient in ((Exact(), "checkpointed"), (ClosedForm(), "adjoint")):
        numerics = Numerics(divergence, Solver(rtol=1e-7, atol=1e-7, gradient=gradient))  # pyright: ignore[reportArgumentType]
        flow = Amortized(CNF(net, training=numerics), net.part_sizes, 4, key=KEY)
        found.append(jax.tree.leaves(eqx.filter_jit(eqx.filter_grad(loss))(flow, features).linear))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("x64")
def test_orthonormal_columns_are_those_of_gram_and_schmidt():
    for scale in ((1.0, 1.0, 1.0), (1e-4, 1.0, 100.0)):
        matrix = jax.random.normal(KEY, (6, 3)) * jnp.asarray(scale)
        q = orthonormal(matrix)
        np.testing.assert_allclose(q.T @ q, np.eye(3), atol=1e-10)
        r = np.asarray(q.T @ matrix)
        np.testing.assert_allclose(np.tril(r, -1), 0, atol=1e-10)
        assert (np.diag(r) > 0).all()


@pytest.mark.usefixtures("x64")
def test_orthonormal_columns_do_not_jump():
    around = [jnp.asarray([[x, 1.0], [1.0, 0.2], [0.5, -1.0]]) for x in (-1e-9, 1e-9)]  # LAPACK's sign is that of x
    np.testing.assert_allclose(orthonormal(around[0]), orthonormal(around[1]), atol=1e-8)
    check_grads(lambda matrix: orthonormal(jnp.asarray(matrix)), (around[0],), order=1, modes=("rev",))


def test_orthonormal_columns_do_not_need_lapack():
    """Whose decompositions of many matrices, two of them at once, stood still on two cores."""
    loss = lambda matrices: jnp.sum(jax.vmap(orthonormal)(matrices) ** 3)
    program = jax.jit(jax.value_and_grad(loss)).lower(jnp.ones((2, 3, 2))).as_text()
    assert "lapack" not in program.lower()


def test_a_sylvester_flow_says_that_it_has_no_inverse():
    layer = Sylvester(3, "triangular")
    with pytest.raises(NotImplementedError, match="no inverse"):
        layer.inverse(jnp.zeros((1, 3)), condition=jnp.zeros((1, layer.condition_size)))


@pytest.mark.parametrize("shape", [(28, 28, 1), (28, 20, 1)])
def test_shapes_of_encoder_and_decoder(shape):
    encoder, z = Encoder(shape, key=KEY), jax.ShapeDtypeStruct((64,), jnp.float32)
    assert eqx.filter_eval_shape(encoder, jax.ShapeDtypeStruct(shape, jnp.float32)).shape == (256,)
    for outputs in (1, 256):
        decoder = Decoder(shape, 64, outputs=outputs, key=KEY)
        assert eqx.filter_eval_shape(decoder, z).shape == (*shape[:2], outputs)


@pytest.mark.usefixtures("x64")
def test_the_last_two_layers_for_grey_levels_are_computed_as_one():
    decoder, x = Decoder((4, 8, 1), 2, outputs=7, key=KEY), jnp.ones(2)
    h = decoder.first(x).reshape(1, 2, -1)
    for layer in decoder.layers:
        h = layer(h)
    assert decoder.wide is not None
    np.testing.assert_allclose(decoder(x), decoder.last(decoder.wide(h)), rtol=1e-10)


def test_sides_that_cannot_be_halved_twice_are_refused():
    with pytest.raises(ValueError, match="multiples of 4"):
        Encoder((28, 30, 1), key=KEY)


def test_pixels_sum_to_one():
    logit = jnp.asarray([[[0.3]]])
    black_or_white = [jnp.exp(Bernoulli().log_prob(logit, jnp.full((1, 1, 1), x))) for x in (0.0, 1.0)]
    assert float(sum(black_or_white)) == pytest.approx(1, rel=1e-6)
    told = jax.random.normal(KEY, (1, 1, 256))
    levels = jax.vmap(lambda x: Categorical().log_prob(told, x.reshape(1, 1, 1)))(jnp.arange(256.0))
    assert float(jnp.sum(jnp.exp(levels))) == pytest.approx(1, rel=1e-5)
    mean = jnp.sum(jnp.exp(levels) * jnp.arange(256.0)) / 255
    np.testing.assert_allclose(Categorical().mean(told)[0, 0, 0], mean, rtol=1e-5)


class Net(eqx.Module):
    """One linear layer, from an image or a latent point."""

    linear: eqx.nn.Linear
    shape: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, x):
        return self.linear(x.ravel()).reshape(self.shape)


def small_vae(flow=None, latent=1, features=4) -> VAE:
    keys = jax.random.split(KEY, 3)
    encoder = Net(eqx.nn.Linear(4, features, key=keys[0]), (features,))
    decoder = Net(jax.tree.map(lambda p: 2 * p, eqx.nn.Linear(latent, 4, key=keys[1])), (2, 2, 1))
    posterior = Posterior(features, latent, flow or Identity(), key=keys[2])
    return VAE(encoder, posterior, decoder, Bernoulli(), latent, (2, 2, 1))


def all_images() -> jax.Array:
    return jnp.asarray([[(i >> b) & 1 for b in range(4)] for i in range(16)], jnp.float32).reshape(16, 2, 2, 1)


def exact_log_prob(vae: VAE) -> jax.Array:
    """∫ p(x | z) N(z) dz over a line."""
    z = jnp.linspace(-8, 8, 4001)[:, None]
    told = jax.vmap(vae.decoder)(z)
    joint = jax.vmap(lambda x: jax.vmap(lambda told: Bernoulli().log_prob(told, x))(told))(all_images())
    joint = joint - 0.5 * z[:, 0] ** 2 - 0.5 * jnp.log(2 * jnp.pi)
    return jax.nn.logsumexp(joint, axis=1) + jnp.log(z[1, 0] - z[0, 0])


def test_importance_sampling_finds_the_likelihood_and_the_bound_is_below():
    vae, x = small_vae(flow_of("ffjord", latent=1)), all_images()
    wide = lambda vae: vae.posterior.variance.bias  # a posterior that is too narrow has weights of infinite variance
    vae = eqx.tree_at(wide, vae, jnp.full(1, 3.0))
    exact = exact_log_prob(vae)
    assert float(jnp.sum(jnp.exp(exact))) == pytest.approx(1, abs=1e-4)
    found = vae.log_prob(x, samples=20_000, chunk=4000, key=KEY)
    np.testing.assert_allclose(found, exact, atol=0.03)
    bound = eqx.filter_jit(lambda vae, key: vae.elbo(x, key=key).value)
    bounds = jnp.mean(jnp.stack([bound(vae, jax.random.key(i)) for i in range(100)]), axis=0)
    assert float(jnp.max(bounds - exact)) < 0.05
    assert float(jnp.mean(bounds)) < float(jnp.mean(exact))


def test_the_bound_without_a_flow_has_the_kl_of_gaussians():
    vae, x = small_vae(latent=2), all_images()
    features = jax.vmap(vae.encoder)(x)
    mean, variance = (jax.vmap(layer)(features) for layer in (vae.posterior.mean, vae.posterior.variance))
    variance = jax.nn.softplus(variance)
    expected = 0.5 * jnp.sum(mean**2 + variance - 1 - jnp.log(variance), axis=1)
    found = jnp.mean(jnp.stack([vae.elbo(x, key=jax.random.key(i)).kl for i in range(2000)]), axis=0)
    np.testing.assert_allclose(found, expected, atol=0.12)


def test_the_weight_of_the_kl_rises_over_the_warm_up():
    vae, x = small_vae(), all_images()
    elbo = vae.elbo(x, train=True, key=KEY)
    likelihood, kl = jnp.mean(elbo.log_likelihood), jnp.mean(elbo.kl)
    for step, weight in ((0, 0.1), (4, 0.5), (9, 1.0), (1000, 1.0)):
        loss, progress = NegativeElbo(10).at(jnp.asarray(step))(vae, x, KEY)
        assert float(loss) == pytest.approx(float(weight * kl - likelihood), rel=1e-5)
        assert float(progress.metrics["negative_elbo"]) == pytest.approx(float(kl - likelihood), rel=1e-5)


def test_variances_are_kept_within_limits():
    posterior = Posterior(4, 2, Identity(), limits=(0.01, 0.02), key=KEY)
    features = 50 * jax.random.normal(KEY, (500, 4))
    drawn = posterior.sample(features, key=KEY)
    spread = drawn.z - jax.vmap(posterior.mean)(features)
    assert 0.009 < float(jnp.var(spread)) < 0.021


def test_samples_and_reconstructions_are_images():
    vae = small_vae()
    x = vae.sample(50, key=KEY)
    assert x.shape == (50, 2, 2, 1)
    assert set(np.unique(x)) == {0.0, 1.0}
    back = vae.reconstruct(all_images(), key=KEY)
    assert back.shape == (16, 2, 2, 1)
    assert 0 < float(back.min()) < float(back.max()) < 1


def test_the_scale_of_an_amortised_map_is_a_factor_of_what_it_learns_too():
    net = LowRankMLP(3, (5,), key=KEY)
    make = lambda scale: Amortized(make_cnf(net, (3,)), net.condition_size, 4, scale=scale, key=KEY)
    condition = lambda flow: jnp.sum(flow._inner_condition(jnp.ones((1, 4))))
    small, usual = make(0.1), make(1.0)
    assert jnp.array_equal(small.linear.weight, usual.linear.weight)
    assert float(condition(small)) == pytest.approx(0.1 * float(condition(usual)), rel=1e-5)
    slope = eqx.filter_grad(condition)(small).linear.weight
    np.testing.assert_allclose(slope, 0.1 * jnp.ones_like(slope), rtol=1e-6)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("kind", ["low-rank", "bias", "full"])
def test_a_condition_in_parts_is_the_same_as_one_that_is_cut_up(kind):
    net = LowRankMLP(3, (5,), amortization=kind, rank=2, matrix_scale=0.5, nonlinearity="tanh", key=KEY)
    whole, parts = (Amortized(make_cnf(net, (3,)), size, 4, key=KEY) for size in (net.condition_size, net.part_sizes))
    rows = [linear[name] for linear, sizes in zip(parts.linear, net.part_sizes, strict=True) for name in sizes]
    stacked = [jnp.concatenate([getattr(row, name) for row in rows]) for name in ("weight", "bias")]
    whole = eqx.tree_at(lambda flow: (flow.linear.weight, flow.linear.bias), whole, stacked)
    z, features = jnp.ones((2, 3)), jax.random.normal(KEY, (2, 4))
    one, other = (flow.forward(z, condition=features, key=KEY) for flow in (whole, parts))
    np.testing.assert_allclose(other.value, one.value, rtol=1e-12)
    np.testing.assert_allclose(other.log_det, one.log_det, rtol=1e-10)
    back = parts.inverse(other.value, condition=features, key=KEY)
    np.testing.assert_allclose(back.value, z, rtol=1e-4)


def test_amortised_maps_need_their_condition():
    net = LowRankMLP(3, (5,), key=KEY)
    flow = Amortized(make_cnf(net, (3,)), net.condition_size, 4, key=KEY)
    with pytest.raises(ValueError, match="condition is missing"):
        flow.forward(jnp.zeros((2, 3)), key=KEY)
