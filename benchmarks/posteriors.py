"""Solves of the autoencoders' posteriors, beside the same networks without amortisation and beside torchdiffeq's.

Every sample of a batch of 100 has its own low-rank weights, in the paper's architectures (latent 64). A solve gives z
and log q; a gradient is by z, all weights and all that depends on the image. dopri5 at tolerance 1e-5, one probe of
Gaussian noise for all, and for one hidden layer the trace in closed form beside it. What an encoder and its linear map
cost is not in it. Every library is in a process of its own, all with large pages of memory where Linux offers them, as
this library's commands have; times are the best of interleaved repetitions. The weights of each sample are read from
memory at every evaluation (the column MB), which is what amortisation costs.

Writes benchmarks/POSTERIORS.md.
"""

import argparse
import os
import platform
from importlib import metadata
from pathlib import Path

from benchmarks.compare import Worker, measure
from benchmarks.peers.posterior_work import WORKS, layers
from benchmarks.peers.work import Work

OURS = {"ours": "posterior_ours", "ours, unamortised": "posterior_ours:Unamortized"}
EXACT = {
    "ours, exact trace": "posterior_ours:Exact",
    "ours, exact trace, unamortised": "posterior_ours:ExactUnamortized",
}
PEERS = {"torchdiffeq, adjoint": "posterior_torch", "torchdiffeq, direct": "posterior_torch:Direct"}
TASKS = {"solve": "solve", "gradient": "train"}
UNAMORTISED_GOAL, PEER_GOAL = 2, 2


def megabytes(work: Work) -> float:
    """What is read of the samples' own weights at every evaluation of the network."""
    return sum(layer[name].nbytes for layer in layers(work) for name in ("u", "v", "v_time", "b")) / 1e6


def rows(work: Work, repeats: int) -> list[str]:
    """The table's rows of one architecture."""
    modules = OURS | (EXACT if len(work.hidden) == 1 else {}) | PEERS
    workers = {name: Worker(module, work) for name, module in modules.items()}
    lines = []
    for task, name in TASKS.items():
        best = measure(workers, name, [(who, work.tolerance) for who in workers], repeats)
        found = {who: answer for (who, _), answer in best.items()}
        for who, answer in found.items():
            cells = [work.name, f"{megabytes(work):.0f}", task, who, *_figures(found, who, answer)]
            lines.append(f"| {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    for worker in workers.values():
        worker.close()
    return lines


def _figures(found: dict[str, dict], who: str, answer: dict) -> list[str]:
    """Milliseconds, NFE, and the ratio that is asked of this row."""
    if "failed" in answer:
        return [f"failed: {answer['failed'][:60]}", "", "", ""]
    seconds, plain = answer["seconds"], found.get(f"{who}, unamortised")
    against_plain = f"{seconds / plain['seconds']:.1f}" if plain else ""
    best = min(found[name]["seconds"] for name in ("ours", "ours, exact trace") if name in found)
    return [f"{1e3 * seconds:.0f}", f"{answer['nfe']}", against_plain, f"{seconds / best:.1f}" if who in PEERS else ""]


def report(lines: list[str], repeats: int) -> str:
    """benchmarks/POSTERIORS.md."""
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("jax", "torch", "torchdiffeq"))
    return "\n".join(
        [
            "# Posteriors with weights of each sample's own",
            "",
            f"Made by `python -m benchmarks.posteriors --repeats {repeats}` on {os.cpu_count()} shared "
            f"{platform.machine()} cores. {versions}.",
            "",
            *(__doc__ or "").split("\n\n", 1)[1].rsplit("\n\n", 1)[0].strip().splitlines(),
            "",
            f"The goals are at most {UNAMORTISED_GOAL} times the time without amortisation, and {PEER_GOAL} times as "
            "fast as torchdiffeq.",
            "",
            "| architecture of | MB | task | who | ms | NFE | times the unamortised | ours is faster by |",
            "|---|---|---|---|---|---|---|---|",
            *lines,
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--works", nargs="*", choices=list(WORKS), default=list(WORKS))
    given = parser.parse_args()
    os.environ.setdefault("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")  # for the processes that are started from here
    lines = [line for name in given.works for line in rows(WORKS[name][0], given.repeats)]
    Path(__file__).with_name("POSTERIORS.md").write_text(report(lines, given.repeats))


if __name__ == "__main__":
    main()
