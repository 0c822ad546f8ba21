"""Time and peak memory of `ffjord score` on files of ten thousand to ten million rows: results/scoring_memory.md.

    taskset -c 0 python benchmarks/scoring_memory.py
    taskset -c 0 python benchmarks/scoring_memory.py --largest 1000000

Every file is scored by a process of its own, whose peak resident memory the system reports when it ends. The program
that the first of them compiles is kept for the others, so that all do the same work; that first one is not counted.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ffjord.data import TOYS
from ffjord.data.points import write_rows

MODEL = "toy-1d"
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
BLOCK = 100_000
RESULTS = Path(__file__).parent.parent / "results" / "scoring_memory.md"


class Measured(NamedTuple):
    """One file: its kind and rows, and what scoring it took."""

    kind: str
    rows: int
    seconds: float
    megabytes: float


def make_file(path: Path, rows: int) -> None:
    """Points of the toy, block by block."""
    draw = lambda i: TOYS["1d"](min(BLOCK, rows - i * BLOCK), np.random.default_rng(i)).astype(np.float32)
    blocks = map(draw, range(-(-rows // BLOCK)))
    write_rows(path, blocks, names=["x1"], shape=(rows, 1), dtype=np.float32)


def measure(points: Path, rows: int, cache: Path) -> Measured:
    """Scores a file in a process of its own."""
    scores = points.with_name(f"scores{points.suffix}")
    command = ["score", f"pretrained/{MODEL}", str(points), "--out", str(scores), "--overwrite"]
    began = time.perf_counter()
    child = subprocess.Popen([sys.executable, "-m", "ffjord", *command], env=os.environ | {"FFJORD_CACHE": str(cache)})
    _, status, usage = os.wait4(child.pid, 0)
    assert status == 0, f"ffjord {' '.join(command)} failed"
    return Measured(points.suffix, rows, time.perf_counter() - began, usage.ru_maxrss / 1024)


def as_markdown(found: list[Measured], largest: int) -> str:
    """results/scoring_memory.md."""
    option = "" if largest == max(SIZES) else f" --largest {largest}"
    cores = len(os.sched_getaffinity(0))
    machine = f"{cores} of {os.cpu_count()} shared {platform.machine()} cores"
    lines = [
        "# Memory and speed of scoring",
        "",
        f"`ffjord score pretrained/{MODEL} FILE --out SCORES` on files of points of the toy, scores in a file of the",
        "same kind: seconds from start to end of the command (its start takes about five), and the peak of its",
        f"resident memory. Made by `python benchmarks/scoring_memory.py{option}` on {machine}.",
        "",
        "| file | rows | seconds | rows per second | peak memory |",
        "|---|---|---|---|---|",
    ]
    for m in found:
        speed = m.rows / m.seconds
        lines.append(f"| {m.kind} | {m.rows:,} | {m.seconds:.1f} | {speed:,.0f} | {m.megabytes:.0f} MB |")
    return "\n".join([*lines, ""])


def main(largest: int) -> None:
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_file(folder / "warm.npy", SIZES[0])
        measure(folder / "warm.npy", SIZES[0], folder / "cache")
        for kind in (".npy", ".csv"):
            for rows in (size for size in SIZES if size <= largest):
                points = folder / f"points{kind}"
                make_file(points, rows)
                found.append(measure(points, rows, folder / "cache"))
                print(found[-1], flush=True)
    RESULTS.write_text(as_markdown(found, largest))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=max(SIZES), help="leave out larger files")
    main(parser.parse_args().largest)
