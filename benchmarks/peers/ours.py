"""This library."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import ffjord
from ffjord.bijections.cnf import _AugmentedDynamics
from ffjord.divergence import automatic
from ffjord.dynamics import MLP
from ffjord.experiments import TrainConfig
from ffjord.flow import _points, _without_divergence
from ffjord.objectives import likelihood
from ffjord.solve import integrate
from ffjord.training.optimizer import optimizer
from ffjord.training.state import start
from ffjord.training.step import compile_steps

from .work import NAMES, Work


class Peer:
    """With one probe of Gaussian noise in training, as the peers have it."""

    def __init__(self, work: Work, *, double: bool = False):
        dtype = jnp.float64 if double else jnp.float32
        mlp = MLP(work.dim, work.hidden, nonlinearity=work.nonlinearity, layer="concatsquash", key=jax.random.key(0))
        for i, arrays in enumerate(work.weights()):
            for name, path in NAMES.items():
                where = lambda m, i=i, path=path: _get(m.layers[i], path)
                mlp = eqx.tree_at(where, mlp, jnp.asarray(arrays[name], dtype).reshape(where(mlp).shape))
        mlp = jax.tree.map(lambda a: a.astype(dtype) if eqx.is_inexact_array(a) else a, mlp)
        exact = automatic(mlp, (work.dim,), max_products=1024)
        solver = ffjord.Solver(rtol=jnp.asarray(1e-5, dtype), atol=jnp.asarray(1e-5, dtype))
        numerics = ffjord.Numerics(ffjord.Hutchinson("gaussian"), solver), ffjord.Numerics(exact, solver)
        cnf = ffjord.CNF(mlp, end_time=work.end_time, training=numerics[0], testing=numerics[1])
        self.work, self.flow = work, ffjord.Flow(ffjord.StandardNormal((work.dim,)), cnf)
        config = TrainConfig(learning_rate=1e-30, weight_decay=0.0, clip=None, schedule="constant")
        self.x, self.steps = jnp.asarray(work.points(), dtype), compile_steps(likelihood, optimizer(config), None)
        self.batches = jnp.repeat(self.x[None], work.train_steps, axis=0)
        self.state = functools.cache(lambda tol: start(self.tight(tol), optimizer(config), average=False))
        self.tight = functools.cache(lambda tol: _tight(self.flow, tol))
        self.sampling_nfe = functools.cache(self._sampling_nfe)

    def train(self, tolerance: float) -> dict:
        _, metrics = self.steps(self.state(tolerance), self.batches, jax.random.key(0))
        return {"nfe": float(metrics["nfe"][0]), "value": float(metrics["loss"][0])}

    def score(self, tolerance: float) -> dict:
        density = self.tight(tolerance).density(self.x)
        return {"nfe": float(density.report.nfe), "value": np.asarray(density.log_prob, np.float64).tolist()}

    def sample(self, tolerance: float) -> dict:
        x = self.tight(tolerance).sample(self.work.batch, key=jax.random.key(0))
        return {"nfe": self.sampling_nfe(tolerance), "value": float(x.mean())}

    def estimate(self, tolerance: float) -> dict:
        """Log-densities as a training step has them, with the given noise."""
        eps = jnp.asarray(self.work.noise(), self.x.dtype)[:, None]
        return {"value": np.asarray(_estimate(self.tight(tolerance), self.x, eps), np.float64).tolist()}

    def push(self, tolerance: float) -> dict:
        """Samples from the given points of the base."""
        z = jnp.asarray(self.work.base_points(), self.x.dtype)
        return {"value": np.asarray(_push(self.tight(tolerance), z), np.float64).tolist()}

    def _sampling_nfe(self, tolerance: float) -> float:
        """Asked for in the first repetition, which does not count: `Flow.sample` hands out points alone."""
        return float(_points(self.tight(tolerance), self.work.batch, None, jax.random.key(0)).report.nfe)


@eqx.filter_jit
def _estimate(flow: ffjord.Flow, x: jax.Array, eps: jax.Array) -> jax.Array:
    cnf: Any = flow.bijection
    numerics, zero = cnf.training, jnp.zeros((), x.dtype)
    field = _AugmentedDynamics(cnf.dynamics, numerics.divergence, (), cnf.end_time.astype(x.dtype), zero)
    state, _ = integrate(field, x, ((eps, None), None), numerics.solver, cnf.backward_nfe.array)
    return flow.base.log_prob(state.z) + state.log_det


@eqx.filter_jit
def _push(flow: ffjord.Flow, z: jax.Array) -> jax.Array:
    return _without_divergence(flow.bijection).forward(z).value


def _tight(flow: ffjord.Flow, tolerance: float) -> ffjord.Flow:
    """The flow with another tolerance; nothing is compiled anew."""
    where = lambda f: [
        getattr(getattr(f.bijection, part).solver, name)
        for part in ("training", "testing")
        for name in ("rtol", "atol")
    ]
    return eqx.tree_at(where, flow, [jnp.asarray(tolerance, flow.dtype)] * 4)


def _get(layer, path: str):
    for name in path.split("."):
        layer = getattr(layer, name)
    return layer
