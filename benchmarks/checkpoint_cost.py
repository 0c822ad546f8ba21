"""What checkpoints cost, as a share of the training time.

    python benchmarks/checkpoint_cost.py [--steps 1000]

Checkpoints are written in the background. Here each is waited for, so that the whole of its work is measured and none
of it hides behind the training: an upper limit. Writes results/checkpoint_cost.md.
"""

import argparse
import dataclasses
import os
import platform
import tempfile
import time
from pathlib import Path

from ffjord.experiments import find
from ffjord.runs import Run
from ffjord.training.recorder import RunRecorder
from ffjord.training.run import train_run

ROOT = Path(__file__).parent.parent


class Meter:
    """Times of all checkpoints: until training could go on, and until everything was on the disk."""

    def __init__(self):
        self.held_up: list[float] = []
        self.whole: list[float] = []
        self.save = RunRecorder.save

    def __call__(self, recorder, state):
        began = time.perf_counter()
        self.save(recorder, state)
        self.held_up.append(time.perf_counter() - began)
        recorder.checkpoints.wait()
        self.whole.append(time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    given = parser.parse_args()
    experiment = find("toy/8gaussians")
    experiment = dataclasses.replace(experiment, train=dataclasses.replace(experiment.train, steps=given.steps))
    meter, moments = Meter(), []
    RunRecorder.save = lambda recorder, state: meter(recorder, state)
    with tempfile.TemporaryDirectory() as folder:
        run = Run.create(Path(folder) / "run", experiment)
        train_run(run, run.source(), show=lambda row: moments.append(time.perf_counter()))
        total = time.perf_counter() - moments[1]
    machine = f"{os.cpu_count()} shared {platform.machine()} cores"
    share = lambda times: f"{1e3 * sum(times) / len(times):.0f} ms each, {100 * sum(times) / total:.2f}% of the time"
    text = "\n".join(
        [
            "# What checkpoints cost",
            "",
            f"`python benchmarks/checkpoint_cost.py --steps {given.steps}` on {machine}: {given.steps} steps of "
            f"toy/8gaussians with the usual {len(meter.whole)} checkpoints, {total:.0f} s after compilation.",
            "",
            f"- training is held up: {share(meter.held_up)}",
            f"- all work, were none of it in the background: {share(meter.whole)}",
            "",
        ]
    )
    (ROOT / "results" / "checkpoint_cost.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
