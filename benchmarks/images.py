"""A convolutional training step against torchdiffeq's, alone, and in memory: part of `make bench`.

One flow over 28 × 28 images with the paper's network (three layers of 64 filters, softplus, the time as a channel), the
same weights for all, dopri5 at tolerance 1e-5, one probe of Gaussian noise. Every library is in a process of its own;
times are the best of interleaved repetitions. The share of the machine's rate counts, for every evaluation, the
convolutions of the value, of the product with the Jacobian, and of the gradients of both (six times the network), and
compares them with the rate of XLA's convolutions of 64 filters, twenty after another in one program, the better of a
batch of 16 and one of 64, measured before and after the steps in the same run. A checkpointed gradient computes the
network anew, which is not counted. Memory is what XLA plans for a step beside its inputs; torchdiffeq's direct gradient
keeps all that the network has computed at every evaluation.

Writes benchmarks/IMAGES.md.
"""

import argparse
import os
import platform
import time
from importlib import metadata
from pathlib import Path
from typing import get_args

from benchmarks.compare import Worker, measure
from benchmarks.peers.conv_work import SIDE, operations
from benchmarks.peers.work import Work
from ffjord.choices import Gradient

WORK = Work("images", SIDE**2, (64, 64, 64), "softplus", 16)
OURS = {"checkpointed": "conv_ours", "adjoint": "conv_ours:Adjoint"}
PEERS = {"torchdiffeq, adjoint": "conv_torch", "torchdiffeq, direct": "conv_torch:Direct"}
FACTOR = 6
"""Operations of an evaluation in training, in evaluations of the network."""
GOAL = 1.5
MEMORY_BATCH = 8


def convolution_rate(repeats: int = 10, depth: int = 20) -> float:
    """Operations a second of 3 × 3 convolutions with 64 filters, one after another: the best of two sizes of batch."""
    import jax
    import jax.numpy as jnp

    from ffjord.compilation import compiled
    from ffjord.xla_convolution import convolution

    kernel = jnp.full((3, 3, 64, 64), 1 / (9 * 64))
    run = compiled(lambda x: jax.lax.fori_loop(0, depth, lambda _, x: convolution(x, kernel, 1), x))

    def rate(batch: int) -> float:
        x, best = jnp.ones((batch, SIDE, SIDE, 64)), float("inf")
        run(x).block_until_ready()
        for _ in range(repeats):
            began = time.perf_counter()
            run(x).block_until_ready()
            best = min(best, time.perf_counter() - began)
        return 2 * depth * batch * SIDE**2 * kernel.size / best

    return max(rate(batch) for batch in (16, 64))


def times(repeats: int) -> dict[str, dict]:
    """Seconds and evaluations of a training step of each."""
    workers = {name: Worker(module, WORK) for name, module in (OURS | PEERS).items()}
    best = measure(workers, "train", [(name, WORK.tolerance) for name in workers], repeats)
    for worker in workers.values():
        worker.close()
    return {name: answer for (name, _), answer in best.items()}


def memory(steps: tuple[int, ...] = (4, 8, 16, 32)) -> dict[str, list[float]]:
    """Megabytes of a training step by the number of steps of rk4, for every gradient: what XLA plans beside inputs."""
    import equinox as eqx
    import jax

    import ffjord
    from ffjord.dynamics import ConvNet
    from ffjord.objectives import likelihood

    net = ConvNet(1, WORK.hidden, layer="concat", nonlinearity="softplus", key=jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (MEMORY_BATCH, SIDE, SIDE, 1))

    def planned(gradient: Gradient, count: int) -> float:
        solver = ffjord.Solver(method="rk4", num_steps=count, gradient=gradient)
        cnf = ffjord.CNF(net, training=ffjord.Numerics(ffjord.Hutchinson("gaussian"), solver))
        flow = ffjord.Flow(ffjord.StandardNormal((SIDE, SIDE, 1)), cnf)
        step = eqx.filter_jit(eqx.filter_value_and_grad(likelihood, has_aux=True))
        plan = step.lower(flow, x, jax.random.key(0)).compile().compiled.memory_analysis()
        return plan.temp_size_in_bytes / 1e6

    return {gradient: [planned(gradient, count) for count in steps] for gradient in get_args(Gradient)}


def report(found: dict[str, dict], rate: float, planned: dict[str, list[float]], repeats: int) -> str:
    """benchmarks/IMAGES.md."""
    names = ("jax", "torch", "torchdiffeq")
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in names)
    best = min((found[name] for name in OURS), key=lambda answer: answer["seconds"])
    lines = [
        "# Convolutional training steps",
        "",
        f"Made by `python -m benchmarks.images --repeats {repeats}` on {os.cpu_count()} shared {platform.machine()} "
        f"cores. {versions}.",
        "",
        *(__doc__ or "").split("\n\n", 1)[1].rsplit("\n\n", 1)[0].strip().splitlines(),
        "",
        f"Batch {WORK.batch}. Convolutions alone: {rate / 1e9:.0f} GFLOP/s. The goal is a ratio of {GOAL} to "
        "torchdiffeq.",
        "",
        "| library | ms a step | NFE | ms an evaluation | ours is faster by | share of the rate |",
        "|---|---|---|---|---|---|",
    ]
    for name, answer in found.items():
        if "failed" in answer:
            lines.append(f"| {name} | failed: {answer['failed'][:60]} | | | | |")
            continue
        seconds, nfe = answer["seconds"], answer["nfe"]
        share = FACTOR * operations(WORK) * nfe / seconds / rate
        cells = [f"{1e3 * seconds:.0f}", f"{nfe:.0f}", f"{1e3 * seconds / nfe:.1f}"]
        cells += ["", f"{share:.0%}"] if name in OURS else [f"{seconds / best['seconds']:.1f}", ""]
        lines.append(f"| {'ours, ' if name in OURS else ''}{name} | {' | '.join(cells)} |")
    lines += [
        "",
        f"Memory of a training step of {MEMORY_BATCH} images in MB, by the number of steps of rk4:",
        "",
        "| gradient | 4 | 8 | 16 | 32 |",
        "|---|---|---|---|---|",
        *(f"| {name} | {' | '.join(f'{value:.0f}' for value in values)} |" for name, values in planned.items()),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    before, found = convolution_rate(), times(repeats)
    text = report(found, max(before, convolution_rate()), memory(), repeats)
    Path(__file__).with_name("IMAGES.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
