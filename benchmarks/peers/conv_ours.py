"""This library's convolutional flow."""

import equinox as eqx
import jax
import jax.numpy as jnp

import ffjord
from ffjord.dynamics import ConvNet
from ffjord.experiments import TrainConfig
from ffjord.objectives import likelihood
from ffjord.training.optimizer import optimizer
from ffjord.training.state import start
from ffjord.training.step import compile_steps

from .conv_work import SIDE, images, kernels
from .work import Work


class Peer:
    """One flow, one probe of Gaussian noise, checkpointed gradients."""

    gradient = "checkpointed"

    def __init__(self, work: Work):
        net = ConvNet(1, work.hidden, layer="concat", nonlinearity="softplus", key=jax.random.key(0))
        for i, arrays in enumerate(kernels(work)):
            where = lambda net, i=i: (net.layers[i].inner.kernel, net.layers[i].inner.bias)
            net = eqx.tree_at(where, net, (jnp.asarray(arrays["kernel"]), jnp.asarray(arrays["bias"])))
        solver = ffjord.Solver(rtol=work.tolerance, atol=work.tolerance, gradient=self.gradient)
        cnf = ffjord.CNF(net, training=ffjord.Numerics(ffjord.Hutchinson("gaussian"), solver))
        flow = ffjord.Flow(ffjord.StandardNormal((SIDE, SIDE, 1)), cnf)
        config = TrainConfig(learning_rate=1e-30, weight_decay=0.0, clip=None, schedule="constant")
        self.x, self.steps = jnp.asarray(images(work))[None], compile_steps(likelihood, optimizer(config), None)
        self.state = start(flow, optimizer(config), average=False)

    def train(self, tolerance: float) -> dict:
        _, metrics = self.steps(self.state, self.x, jax.random.key(0))
        return {"nfe": float(metrics["nfe"][0]), "value": float(metrics["loss"][0])}


class Adjoint(Peer):
    gradient = "adjoint"
