"""Explicit Runge-Kutta solves over the unit interval, with the exact gradient of what they computed.

The methods are Diffrax's tables of coefficients, and the steps are chosen as Diffrax's controller chooses them. The
loop is our own because training spends its time in it: rejected steps are not differentiated, no stage is computed more
than once more in the gradient, and one state a step is kept; of the first steps of a wide network the matrix products
too, so that these are not computed again.

A step takes (y, k), the state and its rate, to (y', k'):

    k_1 = k,   k_i = f(s + c_i h, y + h Σ_j a_ij k_j),   y' = y + h Σ_i b_i k_i,   k' = f(s + h, y')

where k' is the last stage of a method that reuses it (dopri5, tsit5, bosh3, dopri8); others have no k, and start with
k_1 = f(s, y). Either the error decides on the lengths h of the steps, or a grid of times does. They are constants to
the gradient. At most `checkpoints` starts of steps are kept: when these are full every second one is let go, and in the
gradient the steps between two that were kept are made again.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ffjord.products import Linearised, are_worth_keeping, linearised

Rates = Callable[[Array, Any, Any], Any]
Norm = Callable[[Any], Array]

RUNNING, FINISHED, TOO_MANY, TOO_SMALL = range(4)

_SAFETY, _SHRINK, _GROW = 0.9, 0.2, 10.0
_SHRINK_FIRST = 0.02
"""The first step is a guess: if it was too long, what its error says is followed at once."""
_GUESS, _PROBE = 0.15, 0.05
"""The first step of a method without an estimate of it, and how far the estimate looks: parts of the path."""
_REACH, _WHOLE = 2.0, 0.18
"""How far a step gets for each unit of what is estimated, and where trying the whole path at once begins to pay;
measured for dopri5 on trained and untrained flows (docs/performance.md)."""


class Method(NamedTuple):
    """A table of coefficients: a_i, c_i of the stages from the second on, b, and b less that of the embedded method."""

    order: int
    a: tuple[tuple[float, ...], ...]
    c: tuple[float, ...]
    b: tuple[float, ...]
    b_error: tuple[float, ...]
    reuses_last: bool
    """Whether the last stage is the first of the next step."""

    @classmethod
    def of(cls, solver: diffrax.AbstractERK) -> "Method":
        """One of Diffrax's methods."""
        tableau: Any = solver.tableau
        floats = lambda values: tuple(float(value) for value in values)
        rows = tuple(floats(row) for row in tableau.a_lower)
        order: Any = solver.order(None)  # pyright: ignore[reportArgumentType]
        return cls(order, rows, floats(tableau.c), floats(tableau.b_sol), floats(tableau.b_error), bool(tableau.fsal))

    def cost(self, steps: Array, *, adaptive: bool) -> Array:
        """Evaluations that so many steps take, with the one that estimates the first where the error decides."""
        return len(self.a) * steps + 1 + adaptive if self.reuses_last else len(self.b) * steps


class Control(NamedTuple):
    """What decides on the steps: a grid of times if there is one, else the error, held to the tolerances."""

    rtol: Any
    atol: Any
    grid: Array | None = None
    """0 = s_0 < … < s_n = 1, how much of the path is done after each step. The solve ends where it meets the first 1:
    more of them may follow, so that grids of several lengths are arrays of one shape."""


class Plan(NamedTuple):
    """What of a solve is known when it is compiled."""

    method: Method
    max_steps: int
    """Where to give up; with a grid, how many steps it can hold."""
    checkpoints: int
    direction: int
    """1 from 0 to 1, -1 from 1 to 0."""
    with_products: int = 0
    """Of how many steps, from the first on, the gradient may keep the matrix products too."""


class Outcome(NamedTuple):
    """How a solve ended."""

    status: Array
    accepted: Array
    rejected: Array


class _Record(NamedTuple):
    """Steps taken, for the gradient: their times and lengths, and the states before every `stride`-th of them."""

    times: Array
    lengths: Array
    stride: Array
    kept: Any
    products: Any = None
    """The first steps' (y, k), and the matrix products of their stages, where these are kept."""


class _Loop(NamedTuple):
    s: Array
    h: Array
    y: Any
    k: Any
    outcome: Outcome
    record: _Record | None


def solve_explicit(
    rates: Rates, start: Any, args: Any, control: Control, norm: Norm, plan: Plan
) -> tuple[Any, Outcome]:
    """Integrates d state/ds = rates(s, state, args); differentiable, in reverse mode, by `start` and `args`."""
    return _solve((start, args), control, rates, norm, plan)


def solve_openly(rates: Rates, start: Any, args: Any, control: Control, norm: Norm, plan: Plan) -> tuple[Any, Outcome]:
    """The same, differentiable by JAX itself in forward and reverse mode, at the price of much memory and time."""
    loop = _run((start, args), control, rates, norm, plan, record=False, bounded=True)
    return loop.y, loop.outcome


def solve_recorded(
    rates: Rates, start: Any, args: Any, control: Control, norm: Norm, plan: Plan
) -> tuple[Any, Outcome, Array]:
    """The same, not differentiable, and the accepted steps as a grid of `max_steps` (the form of `Control.grid`)."""
    loop = _run((start, args), control, rates, norm, plan._replace(checkpoints=1), record=True)
    assert loop.record is not None
    times, _ = _signed(loop.record.times, loop.record.lengths, plan)
    is_start = jnp.arange(plan.max_steps) < loop.outcome.accepted
    return loop.y, loop.outcome, jnp.append(jnp.where(is_start, times, 1), 1)


def equal_steps(count: int) -> Array:
    """The grid of `count` steps of equal length."""
    return jnp.asarray(np.arange(count + 1) / count)


def mirrored(grid: Array) -> Array:
    """The same steps from the other end: 1 - s_n, …, 1 - s_0, and ones where there were ones to spare.

    The first 1 becomes the 0 in front; all others stay behind the 1 that s_0 = 0 becomes.
    """
    return jnp.concatenate([jnp.zeros_like(grid[:1]), jnp.sort(jnp.where(grid < 1, 1 - grid, 1))[:-1]])


@eqx.filter_custom_vjp
def _solve(inputs: Any, control: Control, rates: Rates, norm: Norm, plan: Plan) -> tuple[Any, Outcome]:
    loop = _run(inputs, control, rates, norm, plan, record=False)
    return loop.y, loop.outcome


@_solve.def_fwd
def _forward(perturbed: Any, inputs: Any, control: Control, rates: Rates, norm: Norm, plan: Plan):
    del perturbed
    loop = _run(inputs, control, rates, norm, plan, record=True, products=True)
    return (loop.y, loop.outcome), (loop.record, loop.outcome.accepted)


@_solve.def_bwd
def _backward(
    residuals: Any, grads: Any, perturbed: Any, inputs: Any, control: Control, rates: Rates, norm: Norm, plan: Plan
):
    """Pulls the gradient back over the accepted steps, last to first."""
    record, accepted = residuals
    start, args = inputs
    params, rest = eqx.partition(args, perturbed[1])
    grad_y = jax.tree.map(lambda y, g: jnp.zeros_like(y) if g is None else g, start, grads[0], is_leaf=_is_none)
    zero = (grad_y, jax.tree.map(jnp.zeros_like, params))
    known = 0 if record.products is None else jnp.minimum(accepted, len(jax.tree.leaves(record.products)[0]))

    def step(i, y, params):
        return _lone_step(rates, plan, record.times[i], record.lengths[i], y, eqx.combine(params, rest))

    def pull(i, y, grad):
        grad_y, grad_params = grad
        _, pullback = jax.vjp(lambda y, params: step(i, y, params), y, params)
        grad_y, more = pullback(grad_y)
        return grad_y, _sum(grad_params, more)

    def pull_known(i, grad):
        grad_y, grad_params = grad
        state, products = jax.tree.map(lambda x: x[i], record.products)
        s, h = record.times[i], record.lengths[i]
        (grad_y, grad_k), more = _linearised(rates, plan, s, h, state, args).pull(products, grad_y)
        grad_params = _sum(grad_params, eqx.filter(more, perturbed[1]))
        if not plan.method.reuses_last:
            return grad_y, grad_params
        _, pullback = jax.vjp(lambda y, params: rates(s, y, eqx.combine(params, rest)), state[0], params)
        return _sum((grad_y, grad_params), pullback(grad_k))

    longest = 1 << (-(-plan.max_steps // plan.checkpoints) - 1).bit_length()  # strides double
    local = jax.tree.map(lambda x: jnp.zeros((longest, *x.shape[1:]), x.dtype), record.kept)

    def segment(carry):
        number, grad = carry
        first = number * record.stride
        count = jnp.minimum(record.stride, accepted - first)
        y = jax.tree.map(lambda x: x[number], record.kept)
        again = lambda j, c: _put_and_advance(c, j, lambda y: step(first + j, y, params))
        buffer, y = jax.lax.fori_loop(0, count - 1, again, (local, y))
        grad = pull(first + count - 1, y, grad)
        back = lambda j, grad: pull(first + count - 2 - j, jax.tree.map(lambda x: x[count - 2 - j], buffer), grad)
        fewer = jnp.minimum(count, first + count - known) - 1
        return number - 1, jax.lax.fori_loop(0, fewer, back, grad)

    segments = -(-accepted // record.stride)
    goes_on = lambda carry: jnp.minimum((carry[0] + 1) * record.stride, accepted) > known
    _, grad = jax.lax.while_loop(goes_on, segment, (segments - 1, zero))
    if record.products is None:
        return grad
    return jax.lax.fori_loop(0, known, lambda j, grad: pull_known(known - 1 - j, grad), grad)


def _run(
    inputs: Any,
    control: Control,
    rates: Rates,
    norm: Norm,
    plan: Plan,
    *,
    record: bool,
    products: bool = False,
    bounded: bool = False,
) -> _Loop:
    start, args = inputs
    begin = _begin(plan, start)
    none = jnp.zeros((), jnp.int32)
    k = rates(begin, start, args) if plan.method.reuses_last else ()
    h = _first_step(start, k, args, control, rates, norm, plan)
    blank = _blank(start, begin, plan) if record else None
    if blank is not None and products:
        blank = blank._replace(products=_blank_products(rates, plan, begin, (start, k), args))
    first = _Loop(jnp.zeros_like(begin), h, start, k, Outcome(none, none, none), blank)
    advance = _adapted_step if control.grid is None else _grid_step
    goes_on = lambda loop: loop.outcome.status == RUNNING
    body = lambda loop: advance(loop, args, control, rates, norm, plan)
    if bounded:
        # Equinox nests loops of at most `base` steps and computes the inner ones anew. A grid's steps are known, and
        # one loop of them keeps everything once.
        base = 16 if control.grid is None else max(2, plan.max_steps)
        return eqxi.while_loop(goes_on, body, first, max_steps=plan.max_steps, kind="bounded", base=base)
    return jax.lax.while_loop(goes_on, body, first)


def _grid_step(loop: _Loop, args: Any, control: Control, rates: Rates, norm: Norm, plan: Plan) -> _Loop:
    assert control.grid is not None
    number = loop.outcome.accepted
    end = control.grid[number + 1]
    s, h = _signed(loop.s, end - loop.s, plan)
    y, k, _, products = _tried(loop, s, h, args, rates, plan)
    status = jnp.where(end >= 1, FINISHED, jnp.where(number + 1 == plan.max_steps, TOO_MANY, RUNNING))
    outcome = Outcome(status.astype(jnp.int32), number + 1, loop.outcome.rejected)
    return _Loop(end, loop.h, y, k, outcome, _recorded(loop, s, h, True, products, plan))


def _adapted_step(loop: _Loop, args: Any, control: Control, rates: Rates, norm: Norm, plan: Plan) -> _Loop:
    eps = jnp.finfo(loop.s.dtype).eps
    is_last = loop.s + loop.h >= 1 - 8 * eps
    h = jnp.where(is_last, 1 - loop.s, loop.h)
    s_signed, h_signed = _signed(loop.s, h, plan)
    y, k, error, products = _tried(loop, s_signed, h_signed, args, rates, plan)
    size = _size(error, loop.y, y, control, norm)
    size = jnp.where(jnp.isnan(size), jnp.inf, size)
    keep = size < 1
    grow = jnp.where(keep, _GROW, 1.0)
    shrink = jnp.where(loop.outcome.accepted == 0, _SHRINK_FIRST, _SHRINK)
    factor = jnp.clip(_SAFETY * jnp.where(size > 0, size, 1e-30) ** (-1 / plan.method.order), shrink, grow)
    accepted, rejected = loop.outcome.accepted + keep, loop.outcome.rejected + ~keep
    next_h = (h * factor).astype(h.dtype)
    status = jnp.where(next_h < 4 * eps, TOO_SMALL, jnp.where(accepted + rejected >= plan.max_steps, TOO_MANY, RUNNING))
    status = jnp.where(keep & is_last, FINISHED, status).astype(jnp.int32)
    pick = lambda new, old: jnp.where(keep, new, old)
    return _Loop(
        s=pick(loop.s + h, loop.s),
        h=next_h,
        y=jax.tree.map(pick, y, loop.y),
        k=jax.tree.map(pick, k, loop.k),
        outcome=Outcome(status, accepted, rejected),
        record=_recorded(loop, s_signed, h_signed, keep, products, plan),
    )


def _first_step(start: Any, k: Any, args: Any, control: Control, rates: Rates, norm: Norm, plan: Plan) -> Array:
    """How long the first step may be, from how fast the rate changes.

    If the rate k changes by the part ρ of itself along the path, a step h of a method of order p has an error of about
    |k| (ρ h)^p, up to a constant, and with |k| in units of the tolerance the longest step is about |k|^(-1/p) / ρ. For
    |k| stands the rate's size a tenth of the path on: it may begin with nothing.
    """
    begin = _begin(plan, start)
    if control.grid is not None or not plan.method.reuses_last:
        return jnp.full_like(begin, _GUESS)
    s, h = _signed(jnp.zeros_like(begin), jnp.full_like(begin, _PROBE), plan)
    later = rates(s + h, jax.tree.map(lambda y, k: y + h * k, start, k), args)
    size = lambda rate: _size(rate, start, start, control, norm)
    change = size(jax.tree.map(jnp.subtract, later, k)) / _PROBE
    order = min(plan.method.order, 5)  # of which the constants were measured
    estimate = (size(k) + 0.1 * change) ** (1 - 1 / order) / change
    step = jnp.where(estimate < _WHOLE, _REACH * estimate, 1.0)
    return jax.lax.stop_gradient(jnp.where(jnp.isfinite(estimate), jnp.maximum(step, 1e-3), _GUESS).astype(begin.dtype))


def _size(error: Any, y: Any, other: Any, control: Control, norm: Norm) -> Array:
    """The size of an error at states y and `other`, in units of the tolerance."""
    scaled = lambda e, a, b: e / (control.atol + control.rtol * jnp.maximum(jnp.abs(a), jnp.abs(b)))
    return norm(jax.tree.map(scaled, error, y, other))


def _tried(loop: _Loop, s: Array, h: Array, args: Any, rates: Rates, plan: Plan) -> tuple[Any, Any, Any, Any]:
    """A step from where the loop is: the new y and k, the local error, and the products if these are recorded."""
    state = loop.y, loop.k
    if loop.record is None or loop.record.products is None:
        return *_step(rates, plan, s, h, state, args), None
    y, ks, products, _ = _linearised(rates, plan, s, h, state, args)
    return y, *_ending(rates, plan, s, h, y, ks, args), products


def _step(rates: Rates, plan: Plan, s: Array, h: Array, state: Any, args: Any) -> tuple[Any, Any, Any]:
    """One step from (y, k): the new y and k, and the local error."""
    y, ks = _stages(rates, plan, s, h, state, args)
    return y, *_ending(rates, plan, s, h, y, ks, args)


def _lone_step(rates: Rates, plan: Plan, s: Array, h: Array, y: Any, args: Any) -> Any:
    """One step from y alone, as the gradient sees it: each evaluation belongs to the step that starts with it."""
    k = rates(s, y, args) if plan.method.reuses_last else ()
    return _stages(rates, plan, s, h, (y, k), args)[0]


def _linearised(rates: Rates, plan: Plan, s: Array, h: Array, state: Any, args: Any) -> Linearised:
    """`_stages`, to be pulled back to (y, k) and all arrays of `args`."""
    params, rest = eqx.partition(args, eqx.is_inexact_array)
    stages = lambda state, params: _stages(rates, plan, s, h, state, eqx.combine(params, rest))
    return linearised(stages, state, params, others=(s, h, rest))


def _stages(rates: Rates, plan: Plan, s: Array, h: Array, state: Any, args: Any) -> tuple[Any, list[Any]]:
    """The new y, and the rates that it is made of."""
    y, k = state
    _, rows, times, weights, _, reuses_last = plan.method
    *rows, weights = rows if reuses_last else (*rows, weights)
    ks = [k if reuses_last else rates(s, y, args)]
    for row, c in zip(rows, times[: len(rows)], strict=True):
        ks.append(rates(s + c * h, _combined(y, ks, row, h), args))
    return _combined(y, ks, weights, h), ks


def _ending(rates: Rates, plan: Plan, s: Array, h: Array, y: Any, ks: list[Any], args: Any) -> tuple[Any, Any]:
    """The rate at the new y, of a method that reuses it, and the local error."""
    method = plan.method
    if method.reuses_last:
        ks = [*ks, rates(s + method.c[-1] * h, y, args)]
    error = jax.tree.map(lambda e: h * e, _weighted(ks, method.b_error))
    return ks[-1] if method.reuses_last else (), error


def _combined(y: Any, ks: list[Any], weights: tuple[float, ...], h: Array) -> Any:
    return jax.tree.map(lambda y, sum: y + h * sum, y, _weighted(ks, weights))


def _weighted(ks: list[Any], weights: tuple[float, ...]) -> Any:
    """Σ w_i k_i, over the weights that are not zero."""
    pairs = [(weight, k) for weight, k in zip(weights, ks, strict=True) if weight != 0]
    if not pairs:
        return jax.tree.map(jnp.zeros_like, ks[0])
    weights, used = zip(*pairs, strict=True)
    return jax.tree.map(lambda *terms: sum(w * term for w, term in zip(weights, terms, strict=True)), *used)


def _blank(start: Any, s: Array, plan: Plan) -> _Record:
    size = min(plan.checkpoints, plan.max_steps)
    kept = jax.tree.map(lambda x: jnp.zeros((size, *x.shape), x.dtype), start)
    scalars = jnp.zeros(plan.max_steps, s.dtype)
    return _Record(scalars, scalars, jnp.ones((), jnp.int32), kept)


def _blank_products(rates: Rates, plan: Plan, s: Array, state: Any, args: Any) -> Any:
    """Room for the first steps' products, if they are worth it."""
    size = min(plan.with_products, plan.max_steps)
    if size == 0 or not are_worth_keeping(rates, s, state[0], args, calls=size * len(plan.method.b)):
        return None
    one = jax.eval_shape(lambda: (state, _linearised(rates, plan, s, s, state, args).products))
    return jax.tree.map(lambda x: jnp.zeros((size, *x.shape), x.dtype), one)


def _recorded(loop: _Loop, s: Array, h: Array, keep: Any, products: Any, plan: Plan) -> _Record | None:
    """The record with the step that starts from the loop's state, if it was kept."""
    if loop.record is None:
        return None
    number, size = loop.outcome.accepted, min(plan.checkpoints, plan.max_steps)
    times, lengths, stride, kept, room = loop.record
    place = jnp.where(keep, number, plan.max_steps)
    times, lengths = times.at[place].set(s, mode="drop"), lengths.at[place].set(h, mode="drop")
    full = keep & (number == size * stride)
    halve = lambda x: jnp.concatenate([x[::2], jnp.zeros_like(x[: size - -(-size // 2)])])
    kept = jax.lax.cond(full, lambda kept: jax.tree.map(halve, kept), lambda kept: kept, kept)
    stride = jnp.where(full, 2 * stride, stride)
    slot = jnp.where(keep & (number % stride == 0), number // stride, size)
    kept = jax.tree.map(lambda x, new: x.at[slot].set(new, mode="drop"), kept, loop.y)
    if room is not None:  # a step that is rejected is overwritten by the next
        put = lambda x, new: x.at[number].set(new, mode="drop")
        room = jax.tree.map(put, room, ((loop.y, loop.k), products))
    return _Record(times, lengths, stride, kept, room)


def _put_and_advance(carry: Any, j: Array, advance: Callable[[Any], Any]) -> Any:
    buffer, state = carry
    return jax.tree.map(lambda x, new: x.at[j].set(new), buffer, state), advance(state)


def _signed(s: Array, h: Array, plan: Plan) -> tuple[Array, Array]:
    """Time and step in the direction of the solve."""
    return (s, h) if plan.direction == 1 else (1 - s, -h)


def _begin(plan: Plan, like: Any) -> Array:
    return jnp.asarray(0.0 if plan.direction == 1 else 1.0, jax.tree.leaves(like)[0].dtype)


def _sum(a: Any, b: Any) -> Any:
    return jax.tree.map(jnp.add, a, b)


def _is_none(x: Any) -> bool:
    return x is None
