"""What large pages of memory bring to a training step (`ffjord.cli.large_pages`): part of `make bench`.

    python -m benchmarks.large_pages [--repeats 10]

Every case is a compiled training step with optimiser, in processes with and without large pages that take turns; its
time is that of the processor, the least of all calls. Writes benchmarks/LARGE_PAGES.md.
"""

import argparse
import dataclasses
import os
import platform
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

CASES = {
    "toy/8gaussians": ("2 columns, 64-64-64, batch 256", (256, 2)),
    "table/miniboone": ("43 columns, 860-860, batch 1000", (1000, 43)),
    "vae/caltech-none": ("autoencoder, no flow, batch 25", (25, 28, 28, 1)),
    "vae/caltech-orthogonal": ("autoencoder, Sylvester posterior, batch 25", (25, 28, 28, 1)),
    "vae/caltech-fast": ("autoencoder, FFJORD posterior, batch 25", (25, 28, 28, 1)),
}
ROUNDS = 2
"""Processes of each kind."""


def least_seconds(name: str, repeats: int) -> float:
    """Of a training step on random data; in this process, with the memory that it was started with."""
    import jax
    import numpy as np

    from ffjord.experiments import find
    from ffjord.models import build_model
    from ffjord.objectives import Likelihood
    from ffjord.training.optimizer import optimizer, stages
    from ffjord.training.state import start
    from ffjord.training.step import compile_steps
    from ffjord.vae import NegativeElbo, build_vae

    experiment, shape, is_vae = find(name), CASES[name][1], name.startswith("vae/")
    rng, key = np.random.default_rng(0), jax.random.key(0)
    if is_vae:
        model = build_vae(shape[1:], 2, experiment.model, experiment.solve, key=key)  # pyright: ignore[reportArgumentType]
        batch, objective = rng.integers(0, 2, shape).astype(np.float32), NegativeElbo(0)
    else:
        model = build_model(shape[1], experiment.model, experiment.solve, key=key)
        batch, objective = rng.normal(size=shape).astype(np.float32), Likelihood()
    config = dataclasses.replace(experiment.train, average=0.999)
    rule = optimizer(stages(config)[0])
    steps, state = compile_steps(objective, rule, config.average), start(model, rule, average=True)
    found = []
    for _ in range(repeats + 2):  # of which the first compiles, and the second touches the memory
        began = time.process_time()
        state, metrics = steps(state, batch[None], key)
        jax.block_until_ready((state.step, metrics["loss"]))
        found.append(time.process_time() - began)
    return min(found[2:])


def measured(name: str, repeats: int) -> tuple[float, float]:
    """Seconds without and with large pages."""
    best = [float("inf")] * 2
    for _ in range(ROUNDS):
        for i, words in enumerate(("glibc.malloc.hugetlb=0", "glibc.malloc.hugetlb=1")):
            command = [sys.executable, "-m", "benchmarks.large_pages", "--case", name, "--repeats", str(repeats)]
            done = subprocess.run(
                command, env=os.environ | {"GLIBC_TUNABLES": words}, stdout=subprocess.PIPE, check=True
            )
            best[i] = min(best[i], float(done.stdout))
    return best[0], best[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=10, help="calls in a process")
    parser.add_argument("--case", choices=list(CASES), help="only print the seconds of this one, here")
    given = parser.parse_args()
    if given.case:
        print(least_seconds(given.case, given.repeats))
        return
    modes = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text().strip()
    lines = [
        "# Large pages",
        "",
        f"Made by `python -m benchmarks.large_pages --repeats {given.repeats}` on {os.cpu_count()} shared "
        f"{platform.machine()} cores; jax {metadata.version('jax')}, large pages: {modes}.",
        "",
        "A training step with random data, in ms of the processor, the least of all calls; processes took turns.",
        "",
        "| step | | small pages | large pages | saved |",
        "|---|---|---|---|---|",
    ]
    for name, (about, _) in CASES.items():
        small, large = measured(name, given.repeats)
        lines.append(f"| {name} | {about} | {1e3 * small:.0f} | {1e3 * large:.0f} | {1 - large / small:.0%} |")
        print(lines[-1], flush=True)
    Path(__file__).with_name("LARGE_PAGES.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
