"""The network for the peers in JAX."""

import equinox as eqx
import jax
import jax.numpy as jnp

from .work import Work

NONLINEARITIES = {"tanh": jnp.tanh, "softplus": jax.nn.softplus}


class Net(eqx.Module):
    """f(t, z) at one sample."""

    layers: list[dict[str, jax.Array]]
    nonlinearity: str = eqx.field(static=True)

    def __init__(self, work: Work, dtype):
        self.layers = [{name: jnp.asarray(array, dtype) for name, array in layer.items()} for layer in work.weights()]
        self.nonlinearity = work.nonlinearity

    def __call__(self, t, z):
        *hidden, last = self.layers
        for layer in hidden:
            z = NONLINEARITIES[self.nonlinearity](_layer(layer, t, z))
        return _layer(last, t, z)


def _layer(p, t, x):
    return (p["weight"] @ x + p["bias"]) * jax.nn.sigmoid(t * p["gate"] + p["gate_bias"]) + t * p["shift"]
