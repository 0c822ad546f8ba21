"""This library on its own: how near the machine's limit, how it grows, how soon the first result comes.

    python -m benchmarks.alone [limit] [growth] [start]

Writes benchmarks/ALONE.md, benchmarks/growth.png and benchmarks/alone.json.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent.parent

# Each measurement runs in a process of its own, so that its peak memory is its own.


def fresh(function: str, **arguments: object) -> dict:
    """Calls a function of this module in a new process; adds its peak memory beyond that of the imports, in MB."""
    command = [sys.executable, "-m", "benchmarks.alone", "--call", function, json.dumps(arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def best_of(function, repeats: int = 5) -> float:
    function()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    return min(times)


def peak_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


# Against the limit.


def share_of_limit(dim: int, width: int, batch: int) -> dict:
    """Rates of scoring and training two hidden layers, and of a matrix product of the same sizes, in GFLOP/s.

    An evaluation of the network takes 2 (2 D H + H²) operations a row, its exact trace 2 H² more, and the weights' part
    of the trace 2 D H² once; a training step needs three times its solve (the solve and both products of the gradient),
    and repeats the solve's evaluations a second time, which is not counted as needed.
    """
    import jax
    import jax.numpy as jnp

    from benchmarks.peers.ours import Exact
    from benchmarks.peers.work import Work

    peer = Exact(Work("wide", dim, (width, width), "softplus", batch))
    rng = np.random.default_rng(0)
    x, w = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in ((batch, width), (width, width)))
    product = jax.jit(lambda x, w: x @ w)
    rate = 2 * batch * width**2 / best_of(lambda: product(x, w).block_until_ready(), 20)
    one = batch * 2 * (2 * dim * width + 2 * width**2) + 2 * dim * width**2
    figures = {"matmul": rate}
    for task, factor in (("score", 1), ("train", 3)):
        nfe = getattr(peer, task)(1e-5)["nfe"]
        seconds = best_of(lambda task=task: getattr(peer, task)(1e-5), 5)
        figures[task] = factor * one * nfe / seconds
    figures["matmul"] = max(rate, 2 * batch * width**2 / best_of(lambda: product(x, w).block_until_ready(), 20))
    return figures


def limit() -> tuple[str, dict]:
    lines = [
        "| D | hidden | batch | matrix product | scoring | share | training | share |",
        "|---|---|---|---|---|---|---|---|",
    ]
    all_figures = {}
    for dim, width, batch in ((43, 860, 1000), (63, 1260, 500)):
        f = fresh("share_of_limit", dim=dim, width=width, batch=batch)
        all_figures[f"{dim}-{width}"] = f
        share = lambda task, f=f: f"{f[task] / 1e9:.0f} GFLOP/s | {100 * f[task] / f['matmul']:.0f}%"
        sizes = f"| {dim} | {width}-{width} | {batch} | {f['matmul'] / 1e9:.0f} GFLOP/s"
        lines.append(f"{sizes} | {share('score')} | {share('train')} |")
    return "\n".join(lines), all_figures


# Growth.


def training_step(dim: int, width: int, batch: int, steps: int, gradient: str) -> dict:
    """Time and memory of a training step with Hutchinson's estimate and `steps` steps of rk4."""
    import equinox as eqx
    import jax

    import ffjord
    from ffjord.dynamics import MLP

    solver = ffjord.Solver(method="rk4", num_steps=steps, gradient=gradient)
    mlp = MLP(dim, (width, width), nonlinearity="tanh", layer="concatsquash", key=jax.random.key(0))
    numerics = ffjord.Numerics(ffjord.Hutchinson("rademacher"), solver)
    flow = ffjord.Flow(ffjord.StandardNormal((dim,)), ffjord.CNF(mlp, training=numerics))
    x = jax.random.normal(jax.random.key(1), (batch, dim))

    @eqx.filter_jit
    def gradient_of(flow, x):
        return eqx.filter_grad(lambda f: -f.density(x, train=True, key=jax.random.key(2)).log_prob.mean())(flow)

    before = peak_mb()
    seconds = best_of(lambda: jax.block_until_ready(gradient_of(flow, x)), 3)
    return {"seconds": seconds, "mb": peak_mb() - before}


BASE = {"dim": 32, "width": 256, "batch": 512, "steps": 10, "gradient": "checkpointed"}
GROWTH = {
    "dim": [2, 8, 32, 128, 512],
    "batch": [128, 512, 2048, 8192],
    "width": [64, 128, 256, 512, 1024],
    "steps": [5, 10, 20, 40, 80, 160],
}


def growth() -> tuple[str, dict]:
    found: dict[str, list[dict]] = {}
    for name, values in GROWTH.items():
        for gradient in ("checkpointed", "adjoint") if name == "steps" else ("checkpointed",):
            label = f"{name}, {gradient}" if name == "steps" else name
            found[label] = [
                {"value": value} | fresh("training_step", **BASE | {name: value, "gradient": gradient})
                for value in values
            ]
            print(label, found[label], flush=True)
    lines = ["| against | from | to | time grows as | memory grows as |", "|---|---|---|---|---|"]
    for label, rows in found.items():
        half = rows[len(rows) // 2 :]  # where the fixed costs no longer show
        slope = lambda key, half=half: np.polyfit(
            np.log([r["value"] for r in half]), np.log([r[key] for r in half]), 1
        )[0]
        ends = f"{rows[0]['value']} | {rows[-1]['value']}"
        lines.append(f"| {label} | {ends} | x^{slope('seconds'):.2f} | x^{slope('mb'):.2f} |")
    draw(found)
    return "\n".join([*lines, "", "![time and memory](growth.png)"]), found


def draw(found: dict[str, list[dict]]) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, len(GROWTH), figsize=(13, 6), sharey="row", layout="constrained")
    for label, rows in found.items():
        column = list(GROWTH).index(label.split(",")[0])
        for axis, key in zip(axes[:, column], ("seconds", "mb"), strict=True):
            style = {"marker": "o", "label": label.partition(", ")[2] or None}
            axis.loglog([r["value"] for r in rows], [r[key] for r in rows], **style)
            axis.grid(alpha=0.3)
        axes[1, column].set_xlabel(label.split(",")[0])
    axes[0, 0].set_ylabel("seconds a training step")
    axes[1, 0].set_ylabel("peak memory (MB)")
    axes[0, -1].legend()
    figure.savefig(ROOT / "benchmarks" / "growth.png", dpi=110)


# The first result.


def start() -> tuple[str, dict]:
    """Seconds of whole commands, from the shell's point of view, without and with compiled programs on the disk."""
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/points.npy", np.zeros((100, 2)))
        environment = os.environ | {"FFJORD_CACHE": f"{folder}/cache"}
        for cache in ("cold", "warm"):
            train = ["train", "toy/pinwheel", "--steps", "1", "--out", f"{folder}/{cache}"]
            score = ["score", "pretrained/toy-8gaussians", f"{folder}/points.npy", "--out", f"{folder}/{cache}.npy"]
            for name, words in (("first training step", train), ("first score", score)):
                began = time.perf_counter()
                subprocess.run(
                    [sys.executable, "-m", "ffjord", *words], check=True, env=environment, capture_output=True
                )
                figures[f"{name}, {cache}"] = time.perf_counter() - began
    lines = ["| command, from start to end | cold | warm |", "|---|---|---|"]
    for name in ("first training step", "first score"):
        lines.append(f"| {name} | {figures[f'{name}, cold']:.1f} s | {figures[f'{name}, warm']:.1f} s |")
    return "\n".join(lines), figures


PARTS = {
    "limit": (
        limit,
        "Against the limit",
        "Operations that the work needs, over time, against a matrix product in the same run.",
    ),
    "growth": (growth, "Growth", f"A training step with Hutchinson's estimate; apart from what varies: {BASE}."),
    "start": (
        start,
        "First result",
        "Compiled programs are kept in the user's cache directory; FFJORD_CACHE=off turns that off.",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=[], help=f"some of {', '.join(PARTS)}; all if none is given")
    parser.add_argument("--call", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.call:
        name, arguments = given.call
        print(json.dumps(globals()[name](**json.loads(arguments))))
        return
    store = ROOT / "benchmarks" / "alone.json"
    known = json.loads(store.read_text()) if store.exists() else {}
    for name in given.parts or PARTS:
        text, figures = PARTS[name][0]()
        known[name] = {"text": text, "figures": figures}
        print(text, flush=True)
    store.write_text(json.dumps(known, indent=1) + "\n")
    machine = f"{os.cpu_count()} shared {platform.machine()} cores"
    sections = [f"## {PARTS[n][1]}\n\n{PARTS[n][2]}\n\n{known[n]['text']}\n" for n in PARTS if n in known]
    head = f"# On its own\n\nMade by `make bench` (`python -m benchmarks.alone`) on {machine}.\n"
    (ROOT / "benchmarks" / "ALONE.md").write_text("\n".join([head, *sections]))


if __name__ == "__main__":
    main()
