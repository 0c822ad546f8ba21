"""How near training and scoring come to the rate at which the machine multiplies matrices."""

import dataclasses
import itertools
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from benchmarks.compare import WORKS
from benchmarks.peers.ours import Peer
from benchmarks.peers.work import Work
from ffjord.compilation import compiled

TASKS = ("train", "score")
GOALS = {"table, wide (43)": 0.6, "table, wide (63)": 0.6}
STAGES = 6
"""Evaluations of a step of dopri5: the first of its seven stages is the last one of the step before."""
SIZE, ROUNDS, AT_LEAST = 2048, 7, 0.3
"""Size of the machine's products; rounds of repetitions; seconds that a task is repeated for in each of them."""


COLUMNS = (
    *("work", "D, hidden, batch", "task", "NFE", "accepted, rejected", "GFLOP", "ms", "GFLOP/s"),
    *("products meanwhile", "share", "goal"),
)
TEXT = """
The operations that the matrix products of a solve need, divided by the time from the call to the numbers, as a share of
the rate at which JAX multiplies two float32 matrices of size {size} on this machine. These products are timed between
the repetitions, and the share is of the best of all of them, {rate:.0f} GFLOP/s. The best one among a row's own
repetitions is in the table (the lowest is {least:.0f}) and tells how steady the machine was. Times are the best of
{rounds} rounds. All solve with dopri5 and tolerance 1e-5; the trace is estimated with one probe in training, and exact
in scores.

Needed are 2 n Σ in · out operations an evaluation for the network's value, as many for the probe's tangent, and twice
the two for the pullback of each of the {stages} evaluations of an accepted step. Evaluations of rejected steps and the
one that estimates the first step are needed forwards. The exact trace of two hidden layers needs one product with an
H × H matrix a sample and A1 A3 once an evaluation; that of three, D tangents from the second layer on. Not counted:
what the gradient computes once more, the nonlinearities, sums, the optimiser. Counted although it could be done
without, less than 4% in any row: the first layer's tangent, which but for its gate is the same all along a solve, and
all of the last product of the tangents of an exact trace, of which the diagonal is enough.
"""


class Solve(NamedTuple):
    """What a solve took."""

    nfe: float
    accepted: float
    rejected: float


# Counting.


def value_operations(work: Work) -> float:
    """Of one evaluation of the network: 2 n Σ in · out."""
    return 2.0 * work.batch * sum(n_in * n_out for n_in, n_out in _shapes(work))


def trace_operations(work: Work) -> float:
    """Of the exact trace, beside the value.

    With two hidden layers it is s2ᵀ (A2 ∘ (A1 A3)ᵀ) s1: one product with an H × H matrix a sample, and A1 A3 once.
    With more it takes D tangents; those of the first layer are its columns, whatever the sample.
    """
    if len(work.hidden) == 2:
        first, second = work.hidden
        return 2.0 * work.batch * first * second + 2.0 * first * work.dim * second
    return 2.0 * work.batch * work.dim * sum(n_in * n_out for n_in, n_out in _shapes(work)[1:])


def needed(work: Work, task: str, solve: Solve) -> float:
    """Operations in matrix products that a task needs.

    In training an evaluation is a value and one tangent, as dear as the value; its pullback takes twice as much, by the
    weights and by the input. Pulled back are `STAGES` evaluations an accepted step: the very first counts, the very
    last does not, since nothing but the error's estimate depends on it.
    """
    if task == "score":
        return solve.nfe * (value_operations(work) + trace_operations(work))
    forward = 2 * value_operations(work)
    return solve.nfe * forward + STAGES * solve.accepted * 2 * forward


def _shapes(work: Work) -> list[tuple[int, int]]:
    return list(itertools.pairwise((work.dim, *work.hidden, work.dim)))


# Measuring.


def measure(quick: bool) -> dict:
    """A row for every work and task, and how they were measured."""
    works = [_small(WORKS[name]) for name in ("toy", "table, wide (43)")] if quick else list(WORKS.values())
    size, rounds = (SIZE // 4, 2) if quick else (SIZE, ROUNDS)
    products = _products(size)
    rows = []
    for work in works:
        peer = Peer(work)
        for task in TASKS:
            rows.append(_row(work, task, _task(peer, task), products, rounds))
            print(_line(rows[-1], rows[-1]["product_rate"]), flush=True)
    return {"size": size, "rounds": rounds, "rows": rows}


def _row(work: Work, task: str, do: Callable[[], Solve], products: list[Callable[[], float]], rounds: int) -> dict:
    """The best of interleaved repetitions of the task and of the machine's products."""
    solve, seconds, rate = do(), math.inf, 0.0
    for _ in range(rounds):
        seconds = min(seconds, _best(do))
        rate = max(rate, *(product() for product in products))
    return {
        "work": work.name,
        "sizes": f"{work.dim}, {'-'.join(map(str, work.hidden))}, {work.batch:,}",
        "task": task,
        **solve._asdict(),
        "operations": needed(work, task, solve),
        "seconds": seconds,
        "product_rate": rate,
    }


def _task(peer: Peer, task: str) -> Callable[[], Solve]:
    """One training step or one batch of scores, done when its numbers are there."""
    tolerance = peer.work.tolerance

    def train() -> Solve:
        _, metrics = peer.steps(peer.state(tolerance), peer.x[None], jax.random.key(0))
        return Solve(*(float(metrics[name][0]) for name in Solve._fields))

    def score() -> Solve:
        density = jax.block_until_ready(peer.tight(tolerance).density(peer.x))
        return Solve(*(float(getattr(density.report, name)) for name in Solve._fields))

    return {"train": train, "score": score}[task]


def _products(size: int) -> list[Callable[[], float]]:
    """Functions that multiply two matrices and tell the rate: one with XLA's settings, one with ours."""
    x = jax.random.normal(jax.random.key(0), (size, size), jnp.float32)
    product = lambda a, b: a @ b
    multiply = [jax.jit(product), compiled(product)]
    for function in multiply:
        jax.block_until_ready(function(x, x))
    return [lambda f=f: 2 * size**3 / _seconds(lambda: jax.block_until_ready(f(x, x))) for f in multiply]


def _best(do: Callable[[], Any]) -> float:
    """The least time of repetitions, of which there are as many as fit in `AT_LEAST` seconds and at least one."""
    end, best = time.perf_counter() + AT_LEAST, math.inf
    while math.isinf(best) or time.perf_counter() < end:
        best = min(best, _seconds(do))
    return best


def _seconds(do: Callable[[], Any]) -> float:
    began = time.perf_counter()
    do()
    return time.perf_counter() - began


def _small(work: Work) -> Work:
    return dataclasses.replace(work, batch=work.batch // 16)


# Telling.


def as_markdown(found: dict) -> list[str]:
    """Title, text and table."""
    rates = [row["product_rate"] for row in found["rows"]]
    rate, least = max(rates), min(rates)
    text = TEXT.format(**found, rate=rate / 1e9, least=least / 1e9, stages=STAGES)
    return [
        "Against the limit",
        *text.strip().splitlines(),
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|---" * len(COLUMNS) + "|",
        *(_line(row, rate) for row in found["rows"]),
    ]


def _line(row: dict, rate: float) -> str:
    speed, goal = row["operations"] / row["seconds"], GOALS.get(row["work"])
    return (
        f"| {row['work']} | {row['sizes']} | {row['task']} | {row['nfe']:.0f} "
        f"| {row['accepted']:.0f}, {row['rejected']:.0f} | {row['operations'] / 1e9:.3g} | {1e3 * row['seconds']:.1f} "
        f"| {speed / 1e9:.1f} | {row['product_rate'] / 1e9:.0f} | {speed / rate:.0%} "
        f"| {'' if goal is None else f'≥ {goal:.0%}'} |"
    )
