"""This library against its peers, on the same work: `make bench`.

Every peer runs in a process of its own, and the repetitions are interleaved, so that a noisy moment of the machine hits
all of them. A time is the best of the repetitions (of one where it takes more than ten seconds). All solve with dopri5;
in training all estimate the trace with one probe of Gaussian noise; scores have the exact trace. An error is the root
mean square distance from a float64 solve with tolerance 1e-10, with the same noise and the same points: of the
log-density with one probe for training, of the exact log-density for scores, of the points for samples. Equal
tolerances do not give equal errors (libraries measure errors in different norms), so that a ratio is taken at equal
accuracy too: ours with the loosest tolerance whose error is not above the peer's (by more than a twentieth). The time
of a training step is the mean over several steps in a row, which this library takes in one compiled call. NFE of
Diffrax's example is the mean over samples, each of which has its own steps.

One thing favours this library and should be taken off in the reader's mind: the constants of its first step were chosen
with the evaluations of these very networks in view, the trained flow's among them.

Writes benchmarks/RESULTS.md.
"""

import argparse
import json
import math
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy as np

from benchmarks.peers.work import Work

ROOT = Path(__file__).parent.parent
WORKS = {
    work.name: work
    for work in (
        Work("toy", 2, (64, 64, 64), "tanh", 512, train_steps=10),
        Work("table, narrow", 6, (60, 60, 60), "tanh", 10_000),
        Work("table, wide (43)", 43, (860, 860), "softplus", 1000),
        Work("table, wide (63)", 63, (1260, 1260), "softplus", 500),
        Work("trained flow", 2, (64, 64, 64), "tanh", 512, train_steps=4, end_time=0.5, pretrained="toy-checkerboard"),
    )
}
GOALS = {
    "toy": {"train": 3, "score": 3, "sample": 3},
    "table, narrow": {"train": 2, "score": 2, "sample": 2},
    "table, wide (43)": {"train": 1.5, "score": 15},
    "table, wide (63)": {"train": 1.5, "score": 20},
    "trained flow": {"train": 3, "score": 3},
}
PEERS = {
    "zuko": "zuko_cnf",
    "torchdyn": "torchdyn_cnf",
    "torchdiffeq, adjoint": "torchdiffeq_ffjord",
    "torchdiffeq, direct": "torchdiffeq_ffjord:Direct",
    "Diffrax's example": "diffrax_example",
}
TASKS = {"train": "estimate", "score": "score", "sample": "push"}
"""What is timed, and what shows how exactly a library does it."""
TOLERANCES = tuple(float(f"{tolerance:.1e}") for tolerance in np.logspace(-2, -7, 21))
PATIENCE = 10.0
"""Seconds after which one repetition is enough."""


class Worker:
    """A peer at work in a process of its own."""

    def __init__(self, module: str, work: Work, **options: object):
        command = [sys.executable, "-m", "benchmarks.worker", module, work.to_json(), json.dumps(options)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT
        )
        self._answer()

    def do(self, task: str, tolerance: float) -> dict:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{task} {tolerance}\n")
        self.process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def _answer(self) -> dict:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"failed": "the process ended", "seconds": math.inf}


Run = tuple[str, float]
"""Who, and at which tolerance."""


def measure(workers: dict[str, Worker], task: str, runs: list[Run], repeats: int) -> dict[Run, dict]:
    """The best of several interleaved repetitions of each; the first call, which compiles, does not count."""
    best: dict[Run, dict] = {}
    slow = set()
    for round_number in range(repeats + 1):
        for run in runs:
            if run in slow or "failed" in best.get(run, {}):
                continue
            name, tolerance = run
            answer = workers[name].do(task, tolerance)
            if round_number == 0 and "failed" not in answer:
                continue
            if "failed" in answer or answer["seconds"] < best.get(run, {"seconds": math.inf})["seconds"]:
                best[run] = answer
            if answer["seconds"] > PATIENCE:
                slow.add(run)
    return best


def error(answer: dict, reference: np.ndarray) -> float:
    """The root mean square distance of a worker's values from the right ones."""
    if "failed" in answer:
        return math.nan
    return float(np.sqrt(np.mean((np.asarray(answer["value"]) - reference) ** 2)))


def loosest(ours: Worker, task: str, limit: float, reference: np.ndarray) -> float:
    """The loosest tolerance at which our values are as good as `limit`, or the tightest that is tried."""
    for tolerance in TOLERANCES:
        if error(ours.do(task, tolerance), reference) <= 1.05 * limit:
            return tolerance
    return TOLERANCES[-1]


def compare(work: Work, repeats: int) -> list[dict]:
    """The table's rows of one work: one for every peer and task."""
    exact = Worker("ours", work, double=True)
    references = {values: np.asarray(exact.do(values, 1e-10)["value"]) for values in TASKS.values()}
    exact.close()
    workers = {"ours": Worker("ours", work)} | {name: Worker(module, work) for name, module in PEERS.items()}
    rows = []
    for task, values in TASKS.items():
        reference = references[values]
        errors = {name: error(worker.do(values, work.tolerance), reference) for name, worker in workers.items()}
        matched = {name: loosest(workers["ours"], values, errors[name], reference) for name in PEERS}
        our_runs = [("ours", tolerance) for tolerance in sorted({work.tolerance, *matched.values()})]
        best = measure(workers, task, our_runs + [(name, work.tolerance) for name in PEERS], repeats)
        for name in PEERS:
            peer, mine, fair = (
                best[run] for run in ((name, work.tolerance), ("ours", work.tolerance), ("ours", matched[name]))
            )
            rows.append(
                {"work": work.name, "task": task, "peer": name, "failed": peer.get("failed")}
                | {"seconds": peer["seconds"], "ours": mine["seconds"], "ours_matched": fair["seconds"]}
                | {"nfe": peer.get("nfe"), "our_nfe": mine["nfe"], "matched_nfe": fair["nfe"]}
                | {"error": errors[name], "our_error": errors["ours"], "matched": matched[name]}
            )
            print(_line(rows[-1]), flush=True)
    for worker in workers.values():
        worker.close()
    return rows


def _line(row: dict) -> str:
    if row["failed"]:
        return f"| {row['work']} | {row['task']} | {row['peer']} | failed: {row['failed'][:60]} | | | | | | |"
    count = lambda value: "" if value is None else f"{value:.0f}"
    return (
        f"| {row['work']} | {row['task']} | {row['peer']} | {1e3 * row['seconds']:.1f} | {1e3 * row['ours']:.1f} "
        f"| {count(row['nfe'])} / {count(row['our_nfe'])} | {row['error']:.0e} / {row['our_error']:.0e} "
        f"| {row['seconds'] / row['ours']:.1f} "
        f"| {1e3 * row['ours_matched']:.1f} ({row['matched']:g}, {count(row['matched_nfe'])}) "
        f"| {row['seconds'] / row['ours_matched']:.1f} |"
    )


def report(rows: list[dict], repeats: int) -> str:
    """benchmarks/RESULTS.md."""
    names = ("ffjord", "jax", "diffrax", "torch", "zuko", "torchdyn", "torchdiffeq")
    left = [name for name in WORKS if name not in {row["work"] for row in rows}]
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in names)
    lines = [
        "# Speed against peers",
        "",
        f"Made by `python -m benchmarks.compare --repeats {repeats}` (`make bench`: five times) on {os.cpu_count()} "
        f"shared {platform.machine()} cores, best of the interleaved repetitions. {versions}.",
        "",
        *(__doc__ or "").split("\n\n", 1)[1].strip().splitlines(),
        "",
        *([f"Not measured in this run: {'; '.join(left)}.", ""] if left else []),
        "## Against the goals",
        "",
        "The smallest ratio over all peers, at equal accuracy.",
        "",
        "| work | task | goal | ratio to the best peer | the best peer |",
        "|---|---|---|---|---|",
    ]
    for work in dict.fromkeys(row["work"] for row in rows):
        for task in TASKS:
            several = [row for row in rows if (row["work"], row["task"]) == (work, task) and not row["failed"]]
            if several:
                best = min(several, key=lambda row: row["seconds"] / row["ours_matched"])
                ratio, goal = best["seconds"] / best["ours_matched"], GOALS[work].get(task)
                lines.append(f"| {work} | {task} | {goal or ''} | {ratio:.1f} | {best['peer']} |")
    lines += [
        "",
        "## All figures",
        "",
        "Times in milliseconds. NFE and error: the peer's / ours at the same tolerance, 1e-5.",
        "",
        "| work | task | peer | its ms | ours | NFE | error | ratio | at equal accuracy (tolerance, NFE) | ratio |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *map(_line, rows),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--works", nargs="*", choices=list(WORKS), default=list(WORKS))
    parser.add_argument("--text", action="store_true", help="measure nothing, write the text anew from results.json")
    given = parser.parse_args()
    text, kept = (ROOT / "benchmarks" / name for name in ("RESULTS.md", "results.json"))
    rows: list[dict] = json.loads(kept.read_text()) if given.text else []
    for name in given.works if not given.text else ():
        rows += compare(WORKS[name], given.repeats)
        kept.write_text(json.dumps(rows, indent=1) + "\n")
    text.write_text(report(rows, given.repeats))


if __name__ == "__main__":
    main()
