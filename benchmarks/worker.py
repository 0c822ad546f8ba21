"""One peer in a process of its own: takes the names of tasks on its standard input, answers with times and values."""

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

    made = getattr(importlib.import_module(f"benchmarks.peers.{module}"), name or "Peer")(
        Work.from_json(work), **json.loads(options)
    )
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        began = time.perf_counter()
        try:
            task, tolerance = line.split()
            answer = getattr(made, task)(float(tolerance))
        except Exception as error:
            answer = {"failed": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(answer | {"seconds": time.perf_counter() - began}), file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
