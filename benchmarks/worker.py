"""One peer in a process of its own: takes the names of tasks on its standard input, answers with times and values.

The time of `train` is that of one of the work's training steps in a row.
"""

import importlib
import json
import os
import sys
import time


def main(peer: str, work: str, options: str) -> None:
    answers, sys.stdout = os.fdopen(os.dup(1), "w"), sys.stderr  # libraries may print; the answers stay apart
    if json.loads(options).get("double") and ("ours" in peer or "diffrax" in peer):
        import jax

        jax.config.update("jax_enable_x64", True)
    module, _, name = peer.partition(":")
    from benchmarks.peers.work import Work

    given = Work.from_json(work)
    made = getattr(importlib.import_module(f"benchmarks.peers.{module}"), name or "Peer")(given, **json.loads(options))
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        began = time.perf_counter()
        task, tolerance = line.split()
        try:
            answer = getattr(made, task)(float(tolerance))
        except Exception as error:
            answer = {"failed": f"{type(error).__name__}: {error}"[:300]}
        seconds = (time.perf_counter() - began) / (given.train_steps if task == "train" else 1)
        print(json.dumps(answer | {"seconds": seconds}), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
