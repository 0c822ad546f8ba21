"""The variance of the trace's estimate with and without the bottleneck trick, at the same weights."""

from collections.abc import Iterable, Sequence
from statistics import mean
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ffjord.bijections import CNF, Numerics, continuous_parts
from ffjord.choices import NoiseKind
from ffjord.divergence import Bottleneck, Hutchinson, Skipped
from ffjord.report.subject import with_divergence
from ffjord.report.variance import log_prob_draws
from ffjord.runs import Run

ESTIMATORS = {"hutchinson": Hutchinson, "bottleneck": Bottleneck}


def variances(run: Run, cells: Iterable[tuple[str, NoiseKind]], *, images: int, repeats: int) -> list[dict[str, Any]]:
    """A row for each (trace, noise): the variance of the trace and of log p over the noise, and the matrix's size."""
    flow, x = run.flow(), np.asarray(run.source().test(images))
    (cnf,) = continuous_parts(flow)
    z = with_divergence(flow, lambda cnf: Skipped()).density(x).z
    of_trace, rows = trace_variances(cnf, z), []
    for trace, noise in cells:
        noisy = with_divergence(flow, lambda cnf, trace=trace, noise=noise: ESTIMATORS[trace](noise))
        draws = log_prob_draws(noisy, x, repeats=repeats, key=jax.random.key(1))
        variance, size = of_trace[trace, noise]
        own = {"trace": trace, "noise": noise, "size": size, "trace_variance": variance}
        rows.append(own | {"log_prob_variance": float(draws.var(axis=0, ddof=1).mean())})
    return rows


def trace_variances(
    cnf: CNF, z: Float[Array, "n *event"], fractions: Sequence[float] = (0.0, 0.5, 1.0)
) -> dict[tuple[str, str], tuple[float, int]]:
    """Variance of one probe's εᵀAε, and A's size, by trace and noise: meaned over the paths from z and over times.

    With B = (A + Aᵀ)/2 it is 2‖B‖²_F for Gaussian ε and 2(‖B‖²_F - Σ B_ii²) for Rademacher ε. A is df/dz (D × D), or
    with the trick (dh/dz)(dg/dh) (H × H).
    """
    found: dict[tuple[str, str], list[float]] = {}
    sizes: dict[str, int] = {}
    for fraction in fractions:
        for trace, a in zip(ESTIMATORS, _on_paths(cnf, jnp.asarray(fraction, z.dtype), z), strict=True):
            b = (a + jnp.swapaxes(a, 1, 2)) / 2
            whole, diagonal = jnp.sum(b**2, axis=(1, 2)), jnp.sum(jnp.diagonal(b, axis1=1, axis2=2) ** 2, axis=1)
            found.setdefault((trace, "gaussian"), []).append(float(jnp.mean(2 * whole)))
            found.setdefault((trace, "rademacher"), []).append(float(jnp.mean(2 * (whole - diagonal))))
            sizes[trace] = a.shape[-1]
    return {name: (mean(values), sizes[name[0]]) for name, values in found.items()}


def jacobians(
    f: Any, t: Float[Array, ""], z: Float[Array, "*event"]
) -> tuple[Float[Array, "d d"], Float[Array, "h h"]]:
    """df/dz and (dh/dz)(dg/dh) of f = g ∘ h at a point, as matrices. Their traces are the same (equation 9)."""
    h = f.encode(t, z)
    inner = jax.jacfwd(lambda z: f.encode(t, z))(z).reshape(h.size, z.size)
    outer = jax.jacfwd(lambda h: f.decode(t, h))(h).reshape(z.size, h.size)
    return outer @ inner, inner @ outer


@eqx.filter_jit
def _on_paths(cnf: CNF, fraction: Array, z: Array) -> tuple[Array, Array]:
    """Both Jacobians at z(t), after a fraction of the way from z(0) = z."""
    alone = eqx.tree_at(lambda cnf: cnf.testing, cnf, Numerics(Skipped(), cnf.testing.solver))
    moved, t = alone.until(fraction).forward(z).value, cnf.end_time * fraction
    return jax.vmap(lambda z: jacobians(cnf.dynamics, t, z))(moved)
