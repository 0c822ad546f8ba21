"""Flows over images: their structure, their densities against the whole Jacobian, and the experiments with them."""

import dataclasses
import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ffjord.bijections import Chain, EachPlace, Levels, Logit, MaskedCoupling, continuous_parts, map_continuous_parts
from ffjord.divergence import Skipped
from ffjord.dynamics import UNet
from ffjord.experiments.build import build_flow, build_objective, build_source
from ffjord.experiments.catalog import find
from ffjord.experiments.config import ModelConfig, SolveConfig
from ffjord.experiments.images import COMPARED_IMAGES, IMAGES
from ffjord.flow import Flow
from ffjord.matching import FlowMatching
from ffjord.models import build_image_model
from tests.test_linear import perturbed

pytestmark = pytest.mark.usefixtures("x64")

KEY = jax.random.key(0)
SMALL = ModelConfig(dynamics="conv", hidden=(2,), layer="concat", nonlinearity="tanh", scales=2, logit=0.05)
SOLVE = SolveConfig(method="rk4", num_steps=60, test_divergence="exact")


def abstract(shape, model, **kwargs) -> Flow:
    """The flow's structure, with shapes for arrays."""
    return eqx.filter_eval_shape(lambda: build_image_model(shape, model, SOLVE, key=KEY, **kwargs))


def built(shape, model) -> Flow:
    return eqx.filter_jit(lambda: build_image_model(shape, model, SOLVE, key=KEY))()


def nodes(tree, kind):
    """All parts of that kind, from the base to the data."""
    is_kind = lambda node: isinstance(node, kind)
    return [node for node in jax.tree.leaves(tree, is_leaf=is_kind) if is_kind(node)]


def channels_of(flow):
    """The channels that every continuous part sees, from the base to the data."""
    parts: list[Any] = continuous_parts(flow)
    return [part.dynamics.layers[-1].inner.bias.size for part in parts]


@pytest.mark.parametrize(
    ("scales", "channels"),
    [(1, [1]), (2, [2, 4, 1]), (3, [4, 8, 2, 4, 1])],
)
def test_every_scale_has_its_flows(scales, channels):
    flow = abstract((8, 8, 1), dataclasses.replace(SMALL, flows=2, scales=scales))
    assert channels_of(flow) == [c for c in channels for _ in range(2)]
    assert flow.event_shape == (8, 8, 1)
    assert eqx.filter_eval_shape(flow.bijection.forward, jnp.zeros((2, 8, 8, 1))).value.shape == (2, 8, 8, 1)


def test_real_nvp_takes_turns():
    flow = abstract((4, 4, 1), dataclasses.replace(SMALL, kind="real-nvp", flows=2))
    couplings = nodes(flow, MaskedCoupling)
    assert [c.shape for c in couplings] == [(2, 2, 2)] * 2 + [(2, 2, 4)] * 2 + [(4, 4, 1)] * 2
    assert [c.pattern for c in couplings] == ["checkerboard"] * 2 + ["channels"] * 2 + ["checkerboard"] * 2
    assert [c.flipped for c in couplings] == [False, True] * 3


MODELS = {
    "ffjord": dataclasses.replace(SMALL, norm="act"),
    "glow": dataclasses.replace(SMALL, kind="glow"),
    "real-nvp": dataclasses.replace(SMALL, kind="real-nvp"),
}


@pytest.mark.parametrize("kind", MODELS)
def test_densities_are_those_of_the_whole_jacobian_and_of_samples(kind):
    flow = perturbed(built((4, 4, 1), MODELS[kind]), scale=0.1)
    samples = flow.sample_and_log_prob(2, key=KEY)
    points_only = map_continuous_parts(
        lambda cnf: eqx.tree_at(lambda c: c.testing.divergence, cnf, Skipped()), flow.bijection
    )

    @eqx.filter_jit
    def brute(bijection, base, x):
        one = lambda x: bijection.inverse(x[None]).value[0]
        jacobians = jax.vmap(jax.jacrev(one))(x).reshape(len(x), x[0].size, -1)
        return base.log_prob(bijection.inverse(x).value) + jnp.linalg.slogdet(jacobians)[1]

    expected = brute(points_only, flow.base, samples.x)
    np.testing.assert_allclose(samples.log_prob, expected, atol=1e-6)
    np.testing.assert_allclose(flow.log_prob(samples.x), expected, atol=1e-6)


def test_the_untrained_unet_is_the_density_of_its_pixels_map():
    model = ModelConfig(dynamics="unet", hidden=(2,), blocks=1, frequencies=1, nonlinearity="swish", logit=0.05)
    flow = built((2, 2, 1), model)
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(flow) if eqx.is_inexact_array(leaf))
    x = jnp.asarray(np.random.default_rng(0).uniform(size=(3, 2, 2, 1)))
    z = Logit(0.05).inverse(x)
    np.testing.assert_allclose(flow.log_prob(x), flow.base.log_prob(z.value) + z.log_det, rtol=1e-10)


def test_flow_matching_of_an_untrained_unet_is_the_mean_squared_velocity():
    model = ModelConfig(dynamics="unet", hidden=(2,), blocks=1, frequencies=1, nonlinearity="swish", logit=0.05)
    flow = built((4, 4, 1), model)
    x = jnp.asarray(np.random.default_rng(0).uniform(size=(2000, 4, 4, 1)))
    loss, _ = eqx.filter_jit(FlowMatching())(flow, x, KEY)
    pixels = Logit(0.05).inverse(x).value
    np.testing.assert_allclose(loss, 1 + jnp.mean(pixels**2), rtol=0.05)


def test_calibration_reaches_norms_inside_of_scales():
    x = np.random.default_rng(0).integers(0, 4, (200, 2, 4, 1)) / 4 + 0.1
    model = dataclasses.replace(SMALL, kind="glow", gaussianize="levels")
    flow = eqx.filter_jit(lambda: build_image_model((2, 4, 1), model, levels=4, key=KEY))()
    assert flow.rows_to_calibrate() == 2**14
    calibrated: Any = flow.calibrate(jnp.asarray(x), key=KEY).bijection
    scale, levels = calibrated.parts
    half, _, linear, norm = scale.inner.parts
    pixels = levels.inverse(jnp.asarray(x)).value
    assert isinstance(levels, Levels)
    blocks = np.stack([pixels[:, i::2, j::2, 0] for i in range(2) for j in range(2)], axis=-1)
    np.testing.assert_allclose(norm.inner.shift, blocks.mean((0, 1, 2)), atol=1e-10)
    np.testing.assert_allclose(norm.inner.log_scale, np.log(blocks.std((0, 1, 2)) + 1e-6), atol=1e-10)
    rest = Chain(scale.inner.parts[1:]).inverse(jnp.asarray(blocks)).value[..., :2]
    innermost = half.inner.parts[-1]
    assert isinstance(linear, EachPlace)
    np.testing.assert_allclose(innermost.inner.shift, rest.mean((0, 1, 2)), atol=1e-10)


WRONG = [
    ((28, 28, 1), {"scales": 4}, r"scales: a block of 7 × 7 pixels cannot be squeezed.*use fewer scales"),
    ((4, 6, 1), {"scales": 3}, r"scales: a block of 2 × 3 pixels cannot be squeezed"),
    ((4, 4), {}, r"shape must be \(height, width, channels\); got \(4, 4\)"),
    ((4, 4, 1), {"flows": 0}, "flows must be at least 1; got 0"),
    ((4, 4, 1), {"scales": 0}, "scales must be at least 1; got 0"),
    ((4, 4, 1), {"blocks": 0}, "blocks must be at least 1; got 0"),
    ((4, 4, 1), {"hidden": ()}, r"hidden must be positive numbers of filters; got \(\)"),
    ((4, 4, 1), {"hidden": (2, 0)}, r"hidden must be positive numbers of filters; got \(2, 0\)"),
    ((4, 4, 1), {"kind": "maf"}, "kind must be ffjord, glow or real-nvp for images; got 'maf'"),
    (
        (4, 4, 1),
        {"dynamics": "mlp"},
        "one of conv, encoder-decoder, unet, mixture for images; got 'mlp'",
    ),
    ((4, 4, 1), {"norm": "batch"}, "norm must be none, moving or act; got 'batch'"),
    ((4, 4, 1), {"gaussianize": "radial"}, "gaussianize must be none or levels for images; got 'radial'"),
    ((4, 4, 1), {"logit": 0.7}, "alpha must be between 0 and 0.5; got 0.7"),
    ((4, 4, 1), {"kind": "glow", "scales": 1}, r"at least two channels, of which a coupling changes half"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("shape", "changes", "message"), WRONG)
def test_wrong_settings_are_named(shape, changes, message):
    with pytest.raises(ValueError, match=message):
        abstract(shape, dataclasses.replace(SMALL, **changes))


# Experiments


@pytest.mark.parametrize("name", [e.name for e in [*IMAGES, *COMPARED_IMAGES]])
def test_every_experiment_builds(name):
    experiment = find(name)
    source: Any = build_source(experiment)
    flow = eqx.filter_eval_shape(lambda: build_flow(experiment, source))
    assert flow.event_shape == source.event_shape
    pixels = flow.bijection.parts[-1]
    assert isinstance(pixels, Levels if experiment.model.gaussianize == "levels" else Logit)
    assert not isinstance(pixels, Levels) or pixels.count == source.levels
    build_objective(experiment.train, experiment.solve, experiment.matching, experiment.regularization)
    if experiment.train.objective == "flow-matching":
        assert len(continuous_parts(flow)) == 1
    assert type(experiment).from_dict(experiment.to_dict()) == experiment


def test_names_are_unique():
    names = [e.name for e in [*IMAGES, *COMPARED_IMAGES]]
    assert len(names) == len(set(names))
    assert all(name.startswith("image/") for name in names)


@pytest.mark.usefixtures("x32")
def test_parameters_are_finite_and_of_single_precision():
    experiment = find("image/digits")
    flow = eqx.filter_jit(lambda: build_flow(experiment, build_source(experiment)))()
    leaves = [leaf for leaf in jax.tree.leaves(flow) if eqx.is_inexact_array(leaf)]
    assert {leaf.dtype for leaf in leaves} == {jnp.dtype("float32")}
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in leaves)


PAPER = {"image/mnist": (55_000, 3, 1e-6), "image/cifar10": (45_000, 4, 0.05)}


@pytest.mark.parametrize("name", [*PAPER, "image/mnist-single"])
def test_the_papers_settings(name):
    experiment = find(name)
    model, solve, train = experiment.model, experiment.solve, experiment.train
    images, scales, alpha = PAPER.get(name, (55_000, 1, 1e-6))
    assert train.batch_size == 900
    assert abs(train.steps * 900 / images - 500) < 0.1
    assert (train.learning_rate, train.schedule, train.warmup, train.objective) == (1e-3, "drop", 1000, "likelihood")
    assert (model.kind, model.layer, model.nonlinearity, model.end_time) == ("ffjord", "concat", "softplus", 1.0)
    assert (model.scales, model.logit, model.gaussianize, model.norm) == (scales, alpha, "none", "none")
    assert (solve.method, solve.rtol, solve.atol, solve.gradient) == ("dopri5", 1e-5, 1e-5, "adjoint")
    assert (solve.divergence, solve.noise, solve.probes) == ("hutchinson", "rademacher", 1)
    single = name == "image/mnist-single"
    assert (model.dynamics, model.hidden, model.flows) == (
        ("encoder-decoder", (64, 64, 128, 128), 1) if single else ("conv", (64, 64, 64), 2)
    )


@pytest.mark.parametrize(
    ("name", "channels"),
    [("image/mnist", [4, 8, 2, 4, 1]), ("image/cifar10", [24, 48, 12, 24, 6, 12, 3])],
)
def test_the_papers_flows_have_the_numbers_of_their_convolutions(name, channels):
    experiment = find(name)
    flow = eqx.filter_eval_shape(lambda: build_flow(experiment, build_source(experiment)))
    assert channels_of(flow) == [c for c in channels for _ in range(2)]
    numbers = sum(leaf.size for part in continuous_parts(flow) for leaf in jax.tree.leaves(part.dynamics))
    layers = [(c, 64, 64, 64, c) for c in channels]
    expected = sum(9 * (m + 1) * n + n for sizes in layers for m, n in itertools.pairwise(sizes))
    assert numbers == 2 * expected


@pytest.mark.parametrize("name", ["image/digits-fast", "image/mnist-fast", "image/cifar10-fast"])
def test_ours_are_one_unet_each(name):
    experiment = find(name)
    flow = eqx.filter_eval_shape(lambda: build_flow(experiment, build_source(experiment)))
    (part,) = continuous_parts(flow)
    assert isinstance(getattr(part.dynamics, "network", part.dynamics), UNet)
    assert experiment.train.objective == "flow-matching"
