"""This library's continuous posterior."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

import ffjord
from ffjord.bijections.base import Transformed
from ffjord.compilation import compiled
from ffjord.divergence import AbstractDivergence
from ffjord.dynamics.low_rank import LowRankMLP

from .posterior_work import WORKS, layers
from .work import Work


@compiled
def _solve(cnf: ffjord.CNF, z: jax.Array, condition: Any, key: jax.Array) -> Transformed:
    return cnf.forward(z, condition=condition, train=True, key=key)


@compiled
@eqx.filter_value_and_grad(has_aux=True)
def _loss(given: tuple, z: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    cnf, condition = given
    out = _solve(cnf, z, condition, key)
    return 0.5 * jnp.sum(out.value**2) - jnp.sum(out.log_det), out.report.nfe


class Peer:
    """One flow with one probe of Gaussian noise, checkpointed gradients."""

    amortization = "low-rank"
    divergence: AbstractDivergence = ffjord.Hutchinson("gaussian")

    def __init__(self, work: Work):
        given, (_, rank) = layers(work), WORKS[work.name]
        how = {"amortization": self.amortization, "rank": rank, "nonlinearity": work.nonlinearity}
        net = LowRankMLP(work.dim, work.hidden, **how, key=jax.random.key(0))
        arrays = tuple(tuple(jnp.asarray(layer[name]) for layer in given) for name in ("weight", "time", "bias"))
        net = eqx.tree_at(lambda net: (net.weights, net.times, net.biases), net, arrays)
        solver = ffjord.Solver(rtol=work.tolerance, atol=work.tolerance)
        self.cnf = ffjord.CNF(net, end_time=work.end_time, training=ffjord.Numerics(self.divergence, solver))
        flat = lambda part: jnp.asarray(part.reshape(work.batch, -1))
        parts = [{name: flat(layer[name]) for name in ("u", "v", "v_time", "b")} for layer in given]
        self.condition = parts if self.amortization == "low-rank" else None
        self.z = jnp.asarray(work.points())

    def solve(self, tolerance: float) -> dict:
        out = _solve(self.cnf, self.z, self.condition, jax.random.key(0))
        return {"nfe": int(out.report.nfe), "value": float(jnp.sum(out.value**2))}

    def train(self, tolerance: float) -> dict:
        (loss, nfe), grads = _loss((self.cnf, self.condition), self.z, jax.random.key(0))
        jax.block_until_ready(grads)
        return {"nfe": int(nfe), "value": float(loss)}


class Unamortized(Peer):
    amortization = "none"


class Exact(Peer):
    """With the trace in closed form: for one hidden layer."""

    divergence = ffjord.ClosedForm()


class ExactUnamortized(Exact):
    amortization = "none"
