"""Seconds from the start of a new process to its first score and to its first training step."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

ROUNDS = 3
SETUP = """
import json, sys, time
began, ready = float(sys.argv[1]), {}
import jax
import numpy as np
import ffjord
from ffjord import CNF, MLP, Flow, StandardNormal
from ffjord.compilation import enable_cache
"""
SCORE = """
ready["imports"] = time.monotonic() - began
enable_cache()
flow = Flow(StandardNormal((2,)), CNF(MLP(2, (64, 64, 64), key=jax.random.key(0))))
x = np.random.default_rng(0).normal(size=(512, 2)).astype(np.float32)
assert np.all(np.isfinite(flow.log_prob(x)))
"""
TRAIN = """
from ffjord.experiments import TrainConfig
from ffjord.objectives import likelihood
from ffjord.training.optimizer import optimizer
from ffjord.training.state import start
from ffjord.training.step import compile_steps
ready["imports"] = time.monotonic() - began
enable_cache()
flow = Flow(StandardNormal((2,)), CNF(MLP(2, (64, 64, 64), key=jax.random.key(0))))
x = np.random.default_rng(0).normal(size=(512, 2)).astype(np.float32)
rule = optimizer(TrainConfig())
state, metrics = compile_steps(likelihood, rule, None)(start(flow, rule, average=False), x[None], jax.random.key(1))
assert np.isfinite(metrics["loss"][0])
"""
SAY = """
print(json.dumps(ready | {"result": time.monotonic() - began}))
"""
PROGRAMS = {"score": SETUP + SCORE + SAY, "train": SETUP + TRAIN + SAY}
"""What the processes run, with default numerics. The clock is one for all processes, so that their start counts."""
CACHES = ("empty", "warm", "off")
TEXT = """
Seconds from the start of a new Python process until all that it needs is imported, and until the first scores, or the
first training step, of the toy are there (D = 2, hidden 64-64-64, batch 512, default numerics). Compiled programs are
kept by `ffjord.compilation.enable_cache()`, as in the commands: in a new and empty folder; in one that a process which
did the same has filled (warm); or not at all, with `FFJORD_CACHE=off`. Scores and training steps have processes of
their own. Every figure is the best of {rounds}. The files of the packages have been read before, so that the disk is
not what is measured.
"""


# Measuring.


def measure(quick: bool) -> dict:
    """The best of several rounds for every task and state of the cache, and how many rounds there were."""
    best: dict[tuple[str, str], dict] = {}
    rounds = 1 if quick else ROUNDS
    for _ in range(rounds):
        for task in PROGRAMS:
            for cache, times in _round(task):
                old = best.get((task, cache), times)
                best[task, cache] = {name: min(times[name], old[name]) for name in times}
                print(task, cache, times, flush=True)
    rows = [{"task": task, "cache": cache, **times} for (task, cache), times in best.items()]
    return {"rounds": rounds, "rows": rows}


def _round(task: str) -> Iterator[tuple[str, dict]]:
    """One process after another: with a new folder for the cache, with the same one again, without a cache."""
    with tempfile.TemporaryDirectory() as folder:
        for cache in CACHES:
            yield cache, _start(task, "off" if cache == "off" else folder)


def _start(task: str, cache: str) -> dict:
    environment = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    command = [sys.executable, "-c", PROGRAMS[task], str(time.monotonic())]
    done = subprocess.run(
        command, env=environment | {"FFJORD_CACHE": cache}, check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout)


# Telling.


def as_markdown(found: dict) -> list[str]:
    """Title, text and table."""
    times = {(row["task"], row["cache"]): row for row in found["rows"]}
    cell = lambda task, cache, name: f"{times[task, cache][name]:.1f}"
    line = lambda cache: " | ".join(cell(task, cache, name) for task in PROGRAMS for name in ("imports", "result"))
    return [
        "First result",
        *TEXT.format(rounds=found["rounds"]).strip().splitlines(),
        "",
        "| compiled programs | imports | first score | imports | first training step |",
        "|---|---|---|---|---|",
        *(f"| {cache} | {line(cache)} |" for cache in CACHES),
    ]
