"""Diffrax as in its own example of a continuous normalizing flow: a solve a sample, the divergence by reverse mode."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from .jax_net import Net
from .work import Work


def _log_prob(net, x, eps, end_time, tolerance, exact):
    def field(t, state, args):
        f, pullback = jax.vjp(lambda z: net(t, z), state[0])
        if exact:
            (jacobian,) = jax.vmap(pullback)(jnp.eye(x.size, dtype=x.dtype))
            return f, jnp.trace(jacobian)
        (product,) = pullback(eps)
        return f, jnp.sum(product * eps)

    start = (x, jnp.zeros((), x.dtype))
    solution = _solve(field, end_time, 0.0, start, tolerance)
    z, log_det = jax.tree.map(lambda y: y[0], solution.ys)
    return jnp.sum(jax.scipy.stats.norm.logpdf(z)) + log_det, solution.stats["num_steps"]


def _solve(field, t0, t1, start, tolerance):
    return diffrax.diffeqsolve(
        diffrax.ODETerm(field),
        diffrax.Dopri5(),
        t0,
        t1,
        None,
        start,
        stepsize_controller=diffrax.PIDController(tolerance, tolerance),
    )


class Peer:
    def __init__(self, work: Work, *, double: bool = False):
        dtype = jnp.float64 if double else jnp.float32
        self.work, self.net, self.x = work, Net(work, dtype), jnp.asarray(work.points(), dtype)
        self.rule = optax.adam(0.0)
        self.state = self.rule.init(eqx.filter(self.net, eqx.is_array))

    def _settings(self, tolerance: float):
        return self.work.end_time, jnp.asarray(tolerance, self.x.dtype)

    def train(self, tolerance: float) -> dict:
        settings = self._settings(tolerance)
        for _ in range(self.work.train_steps):
            self.net, self.state, loss, steps = _train(self.net, self.state, self.x, self.rule, settings)
        return {"nfe": 6 * float(jnp.mean(steps)), "value": float(loss)}

    def score(self, tolerance: float) -> dict:
        value, steps = _score(self.net, self.x, self._settings(tolerance))
        return {"nfe": 6 * float(jnp.mean(steps)), "value": np.asarray(value, np.float64).tolist()}

    def sample(self, tolerance: float) -> dict:
        x, steps = _sample(self.net, self.x, self._settings(tolerance))
        return {"nfe": 6 * float(jnp.mean(steps)), "value": float(x.mean())}

    def estimate(self, tolerance: float) -> dict:
        """Log-densities as a training step has them, with the given noise."""
        eps = jnp.asarray(self.work.noise(), self.x.dtype)
        value, _ = _estimate(self.net, self.x, eps, self._settings(tolerance))
        return {"value": np.asarray(value, np.float64).tolist()}

    def push(self, tolerance: float) -> dict:
        """Samples from the given points of the base."""
        z = jnp.asarray(self.work.base_points(), self.x.dtype)
        x, _ = _push(self.net, z, self._settings(tolerance))
        return {"value": np.asarray(x, np.float64).tolist()}


@eqx.filter_jit
def _train(net, state, x, rule, settings):
    eps = jax.random.normal(jax.random.key(0), x.shape, x.dtype)

    def loss(net):
        log_prob, steps = _estimate(net, x, eps, settings)
        return -jnp.mean(log_prob), steps

    (value, steps), grads = eqx.filter_value_and_grad(loss, has_aux=True)(net)
    updates, state = rule.update(grads, state)
    return eqx.apply_updates(net, updates), state, value, steps


@eqx.filter_jit
def _score(net, x, settings):
    return jax.vmap(lambda x: _log_prob(net, x, None, *settings, True))(x)


@eqx.filter_jit
def _estimate(net, x, eps, settings):
    return jax.vmap(lambda x, eps: _log_prob(net, x, eps, *settings, False))(x, eps)


@eqx.filter_jit
def _sample(net, x, settings):
    return _push(net, jax.random.normal(jax.random.key(0), x.shape, x.dtype), settings)


@eqx.filter_jit
def _push(net, z, settings):
    end_time, tolerance = settings

    def one(z):
        solution = _solve(lambda t, z, args: net(t, z), 0.0, end_time, z, tolerance)
        return solution.ys[0], solution.stats["num_steps"]

    return jax.vmap(one)(z)
