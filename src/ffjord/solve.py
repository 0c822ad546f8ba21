"""The one door to the ODE solver.

A path is solved over the unit interval: a caller whose time runs from t0 to t1 substitutes t = t0 + s (t1 - t0).
Direction and length of time are then part of the vector field, so that a learned end time gets its gradient like
any other parameter, in every gradient mode.

This module decides who shares a step size, in which norm the error is measured, how gradients are taken, and what
is said when a solve fails. Below it, `runge_kutta` makes the steps of the explicit methods, Diffrax those of the
implicit one.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, get_args

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Int

from ffjord import devices
from ffjord.choices import Gradient, MethodName, Steps
from ffjord.implicit import Counting, Kvaerno5
from ffjord.parameters import Buffer
from ffjord.runge_kutta import (
    FINISHED,
    TOO_MANY,
    Control,
    Method,
    Plan,
    equal_steps,
    mirrored,
    solve_explicit,
    solve_openly,
    solve_recorded,
)

OK, STEP_LIMIT, STEP_TOO_SMALL, NOT_FINITE, OTHER = range(5)

_ADVICE = "loosen rtol/atol, raise max_steps, use the stiff solver kvaerno5, or train with more weight decay"
MESSAGES = {
    OK: "solved",
    STEP_LIMIT: f"the ODE solve reached its step limit before the end of the path; {_ADVICE}.",
    STEP_TOO_SMALL: f"the ODE solver's step became too small to go on (dynamics stiff or not finite); {_ADVICE}.",
    NOT_FINITE: "the ODE solve left the finite numbers; check the input's scale and the weights, or use smaller steps.",
    OTHER: "the ODE solver gave up (for an implicit solver: Newton's method did not converge); loosen rtol/atol.",
}


class State(NamedTuple):
    """What is integrated along a path: z, ∫Tr(df/dz)dt, and any penalties. Also their rates of change."""

    z: Array
    log_det: Array
    penalties: dict[str, Array]


Field = Callable[[Float[Array, ""], Any, Any], State]
"""(s, z, context) -> State of rates, for one sample; a pytree."""


class Stats(NamedTuple):
    """What a solve cost and how it ended: scalars where the batch shares its steps, else one entry a sample."""

    nfe: Int[Array, "*n"]
    """Number of evaluations of the dynamics, rejected steps and the implicit method's iterations included."""
    accepted: Int[Array, "*n"]
    rejected: Int[Array, "*n"]
    outcome: Int[Array, "*n"]
    """0 if solved, else a key of `MESSAGES`."""
    times: Float[Array, "*n k"] | None = None
    """If the solver records them: 0, the part of the path done after each accepted step, and ones to the end."""


class _AdaptedSteps(diffrax.PIDController):
    """Steps by the error, of which the first is a set part of the path.

    Diffrax would check a first step that is handed to it by a callback from the compiled program; and JAX keeps no
    program with callbacks in its compilation cache.
    """

    def init(self, terms: Any, t0: Any, t1: Any, y0: Any, dt0: Any, args: Any, func: Any, error_order: Any) -> Any:
        return super().init(terms, t0, t1, y0, _FIRST_STEP * (t1 - t0), args, func, error_order)


_EXPLICIT = {
    "dopri5": Method.of(diffrax.Dopri5()),
    "tsit5": Method.of(diffrax.Tsit5()),
    "dopri8": Method.of(diffrax.Dopri8()),
    "bosh3": Method.of(diffrax.Bosh3()),
    "heun": Method.of(diffrax.Heun()),
    "euler": Method(1, (), (), (1.0,), (0.0,), False),
    "midpoint": Method.of(diffrax.Midpoint()),
    "rk4": Method(
        4, ((0.5,), (0.0, 0.5), (0.0, 0.0, 1.0)), (0.5, 0.5, 1.0), (1 / 6, 1 / 3, 1 / 3, 1 / 6), (0.0,) * 4, False
    ),
}
_FIXED = ("euler", "midpoint", "rk4")
_IMPLICIT = "kvaerno5"
_WITH_PRODUCTS = 2
"""How many steps are kept with their matrix products, where these are dear. More would cost what they save in solves of
one or two steps, since room for them has to be cleared (docs/performance.md)."""
_FIRST_STEP = 0.15
"""Of the implicit method; part of the path."""


def _as_buffer(grid: ArrayLike | Sequence[float] | Buffer | None) -> Buffer | None:
    """A grid as an array that no optimiser changes and no model counts among its parameters."""
    if grid is None or isinstance(grid, Buffer):
        return grid
    values = jnp.asarray(grid)
    return Buffer(values.astype(jnp.result_type(values, float)))


class Solver(eqx.Module):
    """How to integrate a path.

    **Arguments:**

    - `method`: `dopri5` (the paper's), `tsit5`, `dopri8`, `bosh3`, `heun`: explicit, adaptive; `kvaerno5`: implicit,
        for stiff flows; `euler`, `midpoint`, `rk4`: `num_steps` steps of equal length.
    - `grid`: times 0 = s_0 < … < s_n = 1 between which any explicit method makes its steps, whatever the error. In a
        flow they are fractions of its time, 0 at the base and 1 at the data, for both ways alike. An array: other times
        compile nothing, and as more ones may follow the first, neither do fewer of them.
    - `rtol`, `atol`: tolerances of the adaptive methods. Python numbers are compiled in; pass arrays to vary them
        without compiling again.
    - `steps`: who shares a step size. `batch`: all samples step together, the error is averaged over them (the
        paper's way, the cheapest). `worst`: they step together, as the sample with the largest error needs. `sample`:
        each has its own steps (always so for the implicit method).
    - `gradient`: `checkpointed` (exact gradient of the discrete solve, few states kept), `adjoint` (the paper's
        continuous adjoint, constant memory), `direct` (by JAX itself: much memory and time, but forward-mode
        derivatives too).
    - `max_steps`: where to give up. `checkpoints`: how many states `checkpointed` keeps.
    - `record`: whether an explicit solve also tells where its steps were (`Stats.times`); it then has no gradient.
    """

    method: MethodName = eqx.field(static=True, default="dopri5")
    rtol: float | Float[Array, ""] = 1e-5
    atol: float | Float[Array, ""] = 1e-5
    steps: Steps = eqx.field(static=True, default="batch")
    gradient: Gradient = eqx.field(static=True, default="checkpointed")
    max_steps: int = eqx.field(static=True, default=4096)
    num_steps: int = eqx.field(static=True, default=20)
    checkpoints: int = eqx.field(static=True, default=64)
    grid: Buffer | None = eqx.field(converter=_as_buffer, default=None)
    record: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        for name, kinds in (("method", MethodName), ("steps", Steps), ("gradient", Gradient)):
            if getattr(self, name) not in get_args(kinds):
                raise ValueError(f"{name} must be one of {', '.join(get_args(kinds))}; got {getattr(self, name)!r}.")
        for name in ("max_steps", "num_steps", "checkpoints"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}.")
        for name in ("rtol", "atol"):
            value = getattr(self, name)
            if isinstance(value, float | int) and not value > 0:
                raise ValueError(f"{name} must be positive; got {value}.")
        if self.method == _IMPLICIT and (self.grid is not None or self.record):
            raise ValueError(
                f"grid and record must be left out with {_IMPLICIT}, which finds its own steps; use an explicit method "
                "such as dopri5."
            )
        if self.grid is not None:
            _check_grid(self.grid.array)

    def shares_steps(self) -> bool:
        """Whether the whole batch takes the same steps."""
        return self.steps != "sample" and self.method != _IMPLICIT

    def is_adaptive(self) -> bool:
        """Whether the error decides on the steps."""
        return self.grid is None and self.method not in _FIXED

    def along(self, start: Float[Array, ""], end: Float[Array, ""]) -> "Solver":
        """The solver of a path from `start` to `end`, whose grid is that of time: mirrored if the path runs back."""
        if self.grid is None:
            return self
        grid = self.grid.value
        return dataclasses.replace(self, grid=Buffer(jnp.where(end < start, mirrored(grid), grid)))


def _check_grid(grid: Array) -> None:
    """Refuses what is no way from 0 to 1; under a transformation the values are not known."""
    if grid.ndim != 1 or len(grid) < 2:
        raise ValueError(f"grid must be a list of at least two times; got an array of shape {grid.shape}.")
    if isinstance(grid, Tracer):
        return
    times = np.asarray(grid)
    if not (times[0] == 0 and times[-1] == 1 and np.all(np.diff(times) >= 0)):
        raise ValueError(f"grid must rise from 0 to 1; got {np.array2string(times, threshold=8, precision=4)}.")


def integrate(
    field: Field, z: Float[Array, "n *event"], context: Any, solver: Solver, backward_nfe: Float[Array, ""]
) -> tuple[State, Stats]:
    """Integrates `field` over the unit interval for every sample of a batch.

    **Arguments:**

    - `field`: rates of change at one sample.
    - `z`: starting points.
    - `context`: a pytree with a leading batch axis, given to `field` sample by sample (noise, conditions).
    - `backward_nfe`: ignored, but with the continuous adjoint its *gradient* is the NFE of the backward solve.

    **Returns:** the final state and what the solve reports. Where a solve failed the state is NaN, never a number
    that could be taken for an answer.
    """
    from ffjord.adjoint import solve_with_adjoint  # the adjoint solves by this module's own `solve`

    # Tolerances may be arrays inside a model that is differentiated; they are not parameters.
    solver = jax.tree.map(lambda leaf: jax.lax.stop_gradient(leaf) if eqx.is_array(leaf) else leaf, solver)
    run = solve_with_adjoint if solver.gradient == "adjoint" else _solve_discrete
    if not solver.shares_steps():
        one = lambda z, context: run((field, z, context, backward_nfe), solver, None)
        state, stats = jax.vmap(one)(z, context)
        return _fail_loudly(state, stats)

    def on_rows(shared: Any, rows: Any, axis: str | None) -> tuple[State, Stats]:
        field, backward_nfe, solver = shared
        return run((field, *rows, backward_nfe), solver, axis)

    shared, rows = (_Batched(field), backward_nfe, solver), (z, context)
    if solver.gradient == "direct":  # JAX differentiates the norm too, which it cannot across devices
        return _fail_loudly(*on_rows(shared, rows, None))
    return _fail_loudly(*devices.on_each(on_rows, shared, rows))


def solve(
    rates: Callable[[Array, Any, Any], Any],
    start: Any,
    args: Any,
    solver: Solver,
    *,
    norm: Callable[[Any], Array],
    driving: int,
    reverse: bool = False,
) -> tuple[Any, Stats]:
    """One call of the solver, over [0, 1] or backwards. `rates` depends on the state's first `driving` leaves alone."""
    if solver.method == _IMPLICIT:
        return _solve_implicit(rates, start, args, solver, norm, driving, reverse)
    method, grid = _EXPLICIT[solver.method], _grid(solver, jax.tree.leaves(start)[0].dtype, reverse)
    plan = Plan(
        method,
        max_steps=solver.max_steps if grid is None else len(grid) - 1,
        checkpoints=solver.checkpoints,
        direction=-1 if reverse else 1,
        with_products=_WITH_PRODUCTS if solver.shares_steps() else 0,
    )
    run = solve_openly if solver.gradient == "direct" else solve_explicit
    run = solve_recorded if solver.record else run
    control = Control(solver.rtol, solver.atol, grid)
    state, (status, accepted, rejected), *times = run(rates, start, args, control, norm, plan)
    outcome = jnp.select([status == FINISHED, status == TOO_MANY], [OK, STEP_LIMIT], STEP_TOO_SMALL)
    nfe = method.cost(accepted + rejected, adaptive=grid is None)
    return state, Stats(nfe, accepted, rejected, outcome, *times)


def _grid(solver: Solver, dtype: Any, reverse: bool) -> Array | None:
    """The times of a solve that has its steps given, seen from where it starts."""
    if solver.is_adaptive():
        return None
    grid = equal_steps(solver.num_steps) if solver.grid is None else solver.grid.value
    return (mirrored(grid) if reverse else grid).astype(dtype)


def _solve_implicit(
    rates: Callable[[Array, Any, Any], Any],
    start: Any,
    args: Any,
    solver: Solver,
    norm: Any,
    driving: int,
    reverse: bool,
) -> tuple[Any, Stats]:
    leaves, structure = jax.tree.flatten(start)  # Diffrax's loop fails at a state with an empty tuple in it
    whole = lambda leaves: jax.tree.unflatten(structure, leaves)
    flat_rates = lambda s, leaves, args: jax.tree.leaves(rates(s, whole(leaves), args))
    flat_norm = lambda error: norm(whole(error))
    dtype = leaves[0].dtype
    begin, end = np.asarray((1.0, 0.0) if reverse else (0.0, 1.0), dtype)
    smallest = 4 * float(jnp.finfo(dtype).eps)
    controller = _AdaptedSteps(solver.rtol, solver.atol, norm=flat_norm, dtmin=smallest, force_dtmin=False)
    every, few = diffrax.DirectAdjoint(), diffrax.RecursiveCheckpointAdjoint(solver.checkpoints)
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(flat_rates),  # pyright: ignore[reportArgumentType]
        Kvaerno5(driving, solver.rtol, solver.atol),
        begin,
        end,
        None,
        leaves,
        args,
        saveat=diffrax.SaveAt(t1=True, controller_state=True),
        stepsize_controller=Counting(controller),
        max_steps=solver.max_steps,
        adjoint=every if solver.gradient == "direct" else few,
        throw=False,
    )
    assert solution.ys is not None
    assert isinstance(solution.controller_state, tuple)
    nfe = solution.controller_state[0].astype(jnp.int32)
    outcome = jnp.full_like(nfe, OTHER)
    for code, result in (
        (OK, diffrax.RESULTS.successful),
        (STEP_LIMIT, diffrax.RESULTS.max_steps_reached),
        (STEP_TOO_SMALL, diffrax.RESULTS.dt_min_reached),
    ):
        outcome = jnp.where(solution.result == result, code, outcome)
    stats = Stats(nfe, solution.stats["num_accepted_steps"], solution.stats["num_rejected_steps"], outcome)
    return whole([y[-1] for y in solution.ys]), stats


def start_state(field: Field, z: Array, context: Any) -> State:
    """z with all integrals at zero."""
    rates = jax.eval_shape(field, jax.ShapeDtypeStruct((), z.dtype), z, context)
    zeros = jax.tree.map(lambda rate: jnp.zeros(rate.shape, rate.dtype), rates)
    return zeros._replace(z=z)


def error_norm(solver: Solver, axis: str | None = None) -> Callable[[Any], Array]:
    """The size of a scaled error of (z, log_det, ...); penalties are carried along but do not steer the steps.

    Where the rows are spread over the devices of a mesh's `axis`, the size is that of all of them.
    """
    if solver.steps == "worst" and solver.shares_steps():
        largest = lambda error: jnp.max(jax.vmap(lambda *parts: jnp.max(_rms(parts)))(*error[:2]))
        return largest if axis is None else lambda error: jax.lax.pmax(largest(error), axis)
    if axis is None:
        return lambda error: jnp.max(_rms(error[:2]))
    return lambda error: jnp.sqrt(jnp.max(jax.lax.pmean(_rms(error[:2]) ** 2, axis)))


class _Batched(eqx.Module):
    """A field of one sample, applied to a batch that shares the time."""

    field: Field

    def __call__(self, s: Array, z: Array, context: Any) -> State:
        return jax.vmap(self.field, in_axes=(None, 0, 0))(s, z, context)


def _solve_discrete(inputs: tuple[Field, Array, Any, Array], solver: Solver, axis: str | None) -> tuple[State, Stats]:
    field, z, context, _ = inputs
    rates = lambda s, state, args: args[0](s, state.z, args[1])
    start = start_state(field, z, context)
    return solve(rates, start, (field, context), solver, norm=error_norm(solver, axis), driving=1)


def _rms(parts: Sequence[Array]) -> Array:
    """The parts' root mean squares, of which the largest counts: log_det is one number but as important as all of z."""
    return jnp.stack([optimistix.rms_norm(part) for part in parts])


def _fail_loudly(state: State, stats: Stats) -> tuple[State, Stats]:
    """Marks results that are not finite, and blanks those of failed solves."""
    finite = jnp.isfinite(state.log_det) & jnp.all(jnp.isfinite(state.z), axis=tuple(range(1, state.z.ndim)))
    finite = finite if stats.outcome.ndim else jnp.all(finite)
    outcome = jnp.where((stats.outcome == OK) & ~finite, NOT_FINITE, stats.outcome)

    def blank(x: Array) -> Array:
        solved = (outcome == OK).reshape(outcome.shape + (1,) * (x.ndim - outcome.ndim))
        return jnp.where(solved, x, jnp.nan)

    return jax.tree.map(blank, state), stats._replace(outcome=outcome)
