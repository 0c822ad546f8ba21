"""MADE, MAF and IAF: what every flow promises, the order of columns, and that they learn."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ffjord.arrays import load_arrays, save_arrays
from ffjord.bijections import ActNorm, Chain, MovingNorm
from ffjord.choices import ModelKind
from ffjord.data import TOYS, FreshSamples
from ffjord.experiments.config import ModelConfig, TrainConfig
from ffjord.models import build_model
from ffjord.models.autoregressive import maf
from ffjord.objectives import likelihood
from ffjord.parameters import trainable
from ffjord.training import Silent, initial_state, train

pytestmark = pytest.mark.usefixtures("x64")

D, C = 3, 2
KEY = jax.random.key(0)
X = np.random.default_rng(0).normal(size=(4, D))
GIVEN = np.random.default_rng(1).normal(size=(4, C))
MODELS = {"made": 1, "maf": 2, "iaf": 2}


def built(kind: ModelKind, *, condition_size: int = 0, seed: int = 0, **settings):
    model = ModelConfig(kind=kind, **{"flows": MODELS.get(kind, 2), "hidden": (5, 5)} | settings)
    return build_model(D, model, condition_size=condition_size, key=jax.random.key(seed))


def randomised(tree, seed: int = 0):
    """Every trained array with arbitrary numbers in it."""
    rng = np.random.default_rng(seed)
    trained, rest = eqx.partition(tree, trainable(tree))
    return eqx.combine(jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape) / 2), trained), rest)


@eqx.filter_jit
def findings(flow, x, condition, key):
    """Log-densities of x and of samples, with a gradient; what they should be; and x there and back."""
    samples = flow.sample_and_log_prob(len(x), condition=condition, key=key)
    twice = None if condition is None else jnp.concatenate([condition, condition])

    def loss(flow):
        log_prob = flow.log_prob(jnp.concatenate([x, samples.x]), condition=twice)
        return -jnp.mean(log_prob), log_prob

    def to_base(x, condition):
        given = None if condition is None else condition[None]
        z = flow.bijection.inverse(x[None], condition=given).value[0]
        return z, z

    grad, log_prob = eqx.filter_grad(loss, has_aux=True)(flow)
    jacobian, z = jax.vmap(jax.jacrev(to_base, has_aux=True))(x, condition)
    brute = flow.base.log_prob(z) + jnp.linalg.slogdet(jacobian)[1]
    back = flow.bijection.forward(z, condition=condition).value
    return log_prob, jnp.concatenate([brute, samples.log_prob]), back, grad


def check_promises(flow, x, condition, blank, path, *, atol=1e-9):
    """What every flow promises, and that a model built alike can take up its weights."""
    log_prob, expected, back, grad = findings(flow, x, condition, KEY)
    np.testing.assert_allclose(log_prob, expected, atol=atol)
    np.testing.assert_allclose(back, x, atol=atol)
    leaves = jax.tree.leaves(eqx.filter(grad, trainable(flow)))
    assert all(bool(jnp.all(jnp.isfinite(leaf)) & jnp.any(leaf != 0)) for leaf in leaves)
    save_arrays(path, flow)
    arrays = lambda flow: eqx.filter(flow, eqx.is_array)
    assert not eqx.tree_equal(arrays(blank), arrays(flow))
    assert eqx.tree_equal(arrays(load_arrays(path, blank)), arrays(flow))


@pytest.mark.parametrize("condition_size", [0, C])
@pytest.mark.parametrize("kind", MODELS)
def test_every_model_keeps_every_promise(kind, condition_size, tmp_path):
    flow = randomised(built(kind, condition_size=condition_size))
    assert flow.condition_shape == ((C,) if condition_size else None)
    blank = built(kind, condition_size=condition_size, seed=1)
    check_promises(flow, X, GIVEN if condition_size else None, blank, tmp_path / "weights.npz")


@pytest.mark.parametrize("kind", MODELS)
def test_models_built_alike_share_their_compiled_programs(kind):
    static = [eqx.partition(built(kind, seed=seed), eqx.is_array)[1] for seed in (0, 1)]
    assert eqx.tree_equal(*static)


@pytest.mark.parametrize("kind", MODELS)
def test_densities_depend_on_the_condition(kind):
    flow = randomised(built(kind, condition_size=C))
    moved = [flow.log_prob(X, condition=GIVEN + 0.1 * np.eye(C)[i]) for i in range(C)]
    assert np.all(np.abs(np.stack(moved) - flow.log_prob(X, condition=GIVEN)) > 1e-6)


@pytest.mark.parametrize("kind", MODELS)
def test_an_untrained_model_is_its_base(kind):
    np.testing.assert_allclose(built(kind).log_prob(X), -0.5 * (X**2).sum(1) - D / 2 * np.log(2 * np.pi), rtol=1e-12)


@eqx.filter_jit
def jacobian(bijection, direction, x, condition=None):
    return jax.jacfwd(lambda x: getattr(bijection, direction)(x[None], condition=condition).value[0])(x)


def assert_triangular(matrix):
    """Every column depends on itself, by a positive factor, and on all before it."""
    assert bool(jnp.all(jnp.diag(matrix) > 0))
    assert bool(jnp.all(jnp.triu(matrix, 1) == 0))
    assert bool(jnp.all(matrix[jnp.tril_indices(D, -1)] != 0))


@pytest.mark.parametrize("condition_size", [0, C])
def test_columns_of_a_made_depend_on_those_before(condition_size):
    flow = randomised(built("made", condition_size=condition_size))
    condition = GIVEN[:1] if condition_size else None
    assert_triangular(jacobian(flow.bijection, "inverse", X[0], condition))


@pytest.mark.parametrize(
    ("kind", "direction", "first", "second"), [("maf", "inverse", -1, 0), ("iaf", "forward", 0, -1)]
)
def test_the_order_of_columns_is_reversed_from_layer_to_layer(kind, direction, first, second):
    """Untrained layers are identities: of two layers and the reversal R between them, T R or R T is left."""
    flow = built(kind, flows=2)

    def with_one_trained(place):
        part = lambda flow: flow.bijection.parts[place]
        trained = eqx.tree_at(part, flow, randomised(part(flow)))
        return jacobian(trained.bijection, direction, X[0])

    assert_triangular(with_one_trained(first)[::-1])
    assert_triangular(with_one_trained(second)[:, ::-1])


@pytest.mark.parametrize(("norm", "kind"), [("none", ActNorm), ("moving", MovingNorm)])
def test_normalisations_between_layers_are_set_from_data(norm, kind):
    x = np.random.default_rng(2).normal([3.0, -1.0, 0.0], [2.0, 0.1, 1.0], (50, D))
    chain = maf(D, ModelConfig(flows=2, hidden=(5,), norm=norm), key=KEY).bijection
    assert isinstance(chain, Chain)
    chain = eqx.tree_at(lambda chain: chain.parts[-1], chain, randomised(chain.parts[-1]))
    _, norm, reversal, last = chain.calibrate(jnp.asarray(x), key=KEY).parts
    assert isinstance(norm, kind)
    seen = norm.inverse(reversal.inverse(last.inverse(jnp.asarray(x)).value).value).value
    np.testing.assert_allclose(seen.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(seen.std(0), 1, atol=1e-2)


@pytest.mark.parametrize("kind", MODELS)
def test_one_column_is_a_gaussian(kind):
    """Nothing comes before the first column: its map is affine, and so known from two points."""
    model = ModelConfig(kind=kind, flows=MODELS[kind], hidden=(4,))
    flow = randomised(build_model(1, model, key=KEY))
    low, high = flow.bijection.forward(jnp.asarray([[-1.0], [1.0]])).value[:, 0]
    x = np.linspace(-3, 3, 5)
    mean, deviation = (low + high) / 2, (high - low) / 2
    expected = -0.5 * ((x - mean) / deviation) ** 2 - np.log(deviation) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(flow.log_prob(x[:, None]), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "maf", "hidden": (8, 4)}, r"hidden must be one positive width.*; got \(8, 4\)"),
        ({"kind": "iaf", "hidden": ()}, r"hidden must be one positive width.*; got \(\)"),
        ({"kind": "maf", "hidden": (1,)}, "hidden must be at least 2 wide for 3 columns; got 1"),
        ({"kind": "maf", "hidden": (2,), "condition_size": C}, "hidden must be at least 3 wide for 3 columns; got 2"),
        ({"kind": "made", "flows": 2}, "flows must be 1; got 2. For more, set kind to maf"),
    ],
)
def test_errors_name_the_setting(settings, message):
    with pytest.raises(ValueError, match=message):
        built(**settings)


def masks(flow):
    return [leaf for leaf in jax.tree.leaves(flow) if eqx.is_array(leaf) and leaf.dtype == bool]


@pytest.mark.usefixtures("x32")
def test_a_maf_learns_what_one_gaussian_cannot():
    source = FreshSamples(TOYS["moons"], batch_size=128, seed=0, num_validation=2000)
    config = TrainConfig(steps=200, batch_size=128, learning_rate=1e-2, validate_every=100)
    flow = build_model(2, ModelConfig(kind="maf", flows=3, hidden=(16, 16), nonlinearity="relu"), key=KEY)
    loss = lambda model: {"loss": -float(jnp.mean(model.log_prob(source.validation())))}
    state = train(
        initial_state(flow, source, config, seed=0), source, likelihood, loss, config, seed=0, recorder=Silent()
    )
    x = np.asarray(source.validation(), np.float64)
    gaussian = 0.5 * np.linalg.slogdet(np.cov(x.T, bias=True))[1] + 1 + np.log(2 * np.pi)
    assert float(state.best_loss) < gaussian - 0.4
    assert len(masks(flow)) == 9
    assert eqx.tree_equal(masks(state.best), masks(flow))
    assert float(jacobian(state.best.bijection.parts[-1], "inverse", x[0].astype(np.float32))[0, 1]) == 0
