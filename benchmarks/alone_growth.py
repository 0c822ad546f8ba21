"""How time and memory of a training step grow: with the dimension, the batch, the solver's steps, the network's width.

All solves take a fixed number of steps of rk4, so that the number of evaluations does not depend on the size.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

import ffjord
from ffjord.choices import Gradient
from ffjord.reproduce.adjoint_memory import compiled_step, timed

ROUNDS = 5
STEPS = 8
"""Solver's steps where they are not what grows."""


TEXT = """
One training step (loss and gradient; Hutchinson's trace with one probe) with a fixed number of steps of rk4, so that
the number of evaluations is the same for all sizes: {evaluations}, or four times the steps. Time: the best of {rounds}
repetitions, which go round the sizes. Memory of the compiled step: what XLA says that the program it compiled takes for
inputs, outputs and everything between; not the memory of the process. Exponents: slopes of log time and log memory over
log size, fitted to the upper half of the sizes. In theory: when the matrix products, and what they leave for the
gradient, outweigh all else. All points are in [alone.json](alone.json).

![time and memory of a training step against dimension, batch, solver steps and width](growth.png)
"""


class Case(NamedTuple):
    """One training step to measure."""

    dim: int
    hidden: tuple[int, ...]
    batch: int
    num_steps: int = STEPS
    gradient: Gradient = "checkpointed"


class Curve(NamedTuple):
    """What grows, from where to where, and what stays as it is."""

    axis: str
    setting: str
    gradient: Gradient
    sizes: tuple[int, ...]
    case: Callable[[int], Case]
    in_theory: tuple[str, str]
    """Exponents of time and memory at large sizes."""


def _doubling(first: int, last: int) -> tuple[int, ...]:
    return tuple(first << i for i in range((last // first).bit_length()))


def _by_steps(gradient: Gradient, last: int, memory: str) -> Curve:
    case = lambda n: Case(2, (64, 64, 64), 512, n, gradient)
    return Curve("solver steps", "D = 2, hidden 64-64-64, batch 512", gradient, _doubling(8, last), case, ("1", memory))


def _simple(axis: str, setting: str, sizes: tuple[int, ...], case: Callable[[int], Case], *theory: str) -> Curve:
    return Curve(axis, f"{setting}, {STEPS} steps", "checkpointed", sizes, case, (theory[0], theory[1]))


CURVES = (
    _simple("dimension", "hidden 64-64, batch 256", _doubling(2, 512), lambda d: Case(d, (64, 64), 256), "1", "1"),
    _simple("batch", "D = 2, hidden 64-64-64", _doubling(64, 16384), lambda n: Case(2, (64, 64, 64), n), "1", "1"),
    _by_steps("checkpointed", 512, "0"),
    _by_steps("adjoint", 512, "0"),
    _by_steps("direct", 128, "at most 1"),
    _simple("width", "D = 8, batch 256", _doubling(32, 1024), lambda w: Case(8, (w, w), 256), "2", "1 to 2"),
)


# Measuring.


def measure(quick: bool) -> dict:
    """All curves, with a point for every size, and how often each was measured."""
    curves = [curve._replace(sizes=curve.sizes[:2]) for curve in CURVES] if quick else CURVES
    rounds = 2 if quick else ROUNDS
    return {"rounds": rounds, "curves": [_measure(curve, rounds) for curve in curves]}


def _measure(curve: Curve, rounds: int) -> dict:
    """One curve; the repetitions go round all sizes, so that a noisy moment does not hit one of them alone."""
    steps = [_compile(curve.case(size)) for size in curve.sizes]
    best = [math.inf] * len(steps)
    for _ in range(rounds):
        best = [min(old, timed(step)) for old, (step, _) in zip(best, steps, strict=True)]
    points = [
        {"size": size, "seconds": seconds, "bytes": memory}
        for size, seconds, (_, memory) in zip(curve.sizes, best, steps, strict=True)
    ]
    found = {name: getattr(curve, name) for name in ("axis", "setting", "gradient", "in_theory")} | {"points": points}
    print(_line(found), flush=True)
    return found


def _compile(case: Case) -> tuple[Callable[[], Any], int]:
    """A compiled training step, without the optimiser, and its memory."""
    solver = ffjord.Solver(method="rk4", num_steps=case.num_steps, gradient=case.gradient)
    mlp = ffjord.MLP(case.dim, case.hidden, key=jax.random.key(0))
    cnf = ffjord.CNF(mlp, training=ffjord.Numerics(ffjord.Hutchinson("gaussian"), solver))
    flow = ffjord.Flow(ffjord.StandardNormal((case.dim,)), cnf)
    return compiled_step(flow, jax.random.normal(jax.random.key(1), (case.batch, case.dim)), jax.random.key(2))


# Telling.


def values(curve: dict, name: str) -> np.ndarray:
    """`size`, `seconds` or `bytes` of all points."""
    return np.array([point[name] for point in curve["points"]], float)


def upper_half(curve: dict) -> slice:
    """Points that exponents are fitted to: the larger ones, where fixed costs matter less."""
    return slice(len(curve["points"]) // 2 if len(curve["points"]) > 3 else 0, None)


def exponent(curve: dict, name: str) -> float:
    """p of `name` ∝ size^p over the upper half, by least squares of the logarithms."""
    part = upper_half(curve)
    return float(np.polyfit(np.log(values(curve, "size")[part]), np.log(values(curve, name)[part]), 1)[0])


def number(x: float) -> str:
    """Two digits after the point, and no sign before zero."""
    return f"{round(x, 2) + 0.0:.2f}"


def as_markdown(found: dict) -> list[str]:
    """Title, text, picture and table."""
    return [
        "Growth",
        *TEXT.format(evaluations=4 * STEPS, rounds=found["rounds"]).strip().splitlines(),
        "",
        "| grows | sizes | fixed | gradient | ms | time's exponent | in theory | MB | memory's exponent | in theory |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *map(_line, found["curves"]),
    ]


def _line(curve: dict) -> str:
    size, seconds, memory = (values(curve, name) for name in ("size", "seconds", "bytes"))
    ends = lambda x, form: f"{x[0]:{form}} … {x[-1]:{form}}"
    time_theory, memory_theory = curve["in_theory"]
    return (
        f"| {curve['axis']} | {ends(size, '.0f')} | {curve['setting']} | {curve['gradient']} "
        f"| {ends(1e3 * seconds, '.1f')} | {number(exponent(curve, 'seconds'))} | {time_theory} "
        f"| {ends(memory / 1e6, '.2f')} | {number(exponent(curve, 'bytes'))} | {memory_theory} |"
    )
