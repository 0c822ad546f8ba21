"""`ffjord evaluate`."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ffjord.cli.common import Cluster, RunPath, new_file, parse, print_table
from ffjord.errors import InputError
from ffjord.progress import rows_bar
from ffjord.runs import Run, write_json

_EXAMPLES = """\
  ffjord evaluate runs/toy/pinwheel
  ffjord evaluate pretrained/toy-8gaussians --limit 10000"""


@dataclass(frozen=True)
class Arguments:
    """Test likelihood of a run: fresh points, exact trace, tight tolerance. Writes results.json into the run."""

    run: RunPath
    limit: int | None = None
    """Use only the first so many test points."""
    out: Path | None = None
    """Where to write the results; results.json in the run if not given."""
    overwrite: bool = False
    """Replace an existing file that --out names."""
    cluster: Cluster = field(default_factory=Cluster)


def main(argv: Sequence[str]) -> int:
    given = parse(Arguments, argv, "evaluate", _EXAMPLES)
    if given.limit is not None and given.limit < 2:
        raise InputError(f"--limit must be at least 2; got {given.limit}.")
    if given.out is not None:
        new_file(given.out, (".json",), overwrite=given.overwrite)
    from ffjord import compilation, devices

    given.cluster.join()
    compilation.enable_cache()
    run = Run.open(given.run)
    with devices.together():
        results = evaluate(run, given.limit)
    if not devices.is_writer():
        return 0
    print_table(_shown(run, results), title=f"{run.experiment.name} ({given.run})")
    return _write(given.out or run.results, results, required=given.out is not None)


def _write(path: Path, results: dict[str, Any], *, required: bool) -> int:
    """Writes the results. A run that cannot be written (installed, or on a read-only disk) has shown them."""
    try:
        write_json(path, results)
    except OSError as error:
        message = f"{path} cannot be written ({error.strerror}); choose another place: --out FILE."
        if required:
            raise InputError(message) from error
        print(f"not written: {message}")
        return 0
    print(f"written to {path}")
    return 0


def evaluate(run: Run, limit: int | None = None) -> dict[str, Any]:
    """Negative log-likelihood of test points under the best model, with its standard error and the solver's report."""
    import jax
    import numpy as np

    from ffjord.parameters import count_parameters
    from ffjord.scoring import Moments, score_blocks

    flow, source = run.flow(), run.source()
    n = source.num_test if limit is None else min(limit, source.num_test)
    key, solve = jax.random.key(run.experiment.seed), run.experiment.solve
    log_prob, costs = Moments(), []
    began = time.perf_counter()
    with rows_bar("scoring") as progress:
        for scores in score_blocks(flow, source.test_blocks(limit), n, progress=progress, key=key):
            log_prob.add(scores.log_prob)
            costs.append(scores[1:])
    nfe, accepted, rejected = np.mean(costs, axis=0).tolist()
    return {
        "experiment": run.experiment.name,
        "test_nll": -log_prob.mean,
        "test_nll_stderr": log_prob.standard_error,
        "points": log_prob.count,
        "nfe": nfe,
        "accepted_steps": accepted,
        "rejected_steps": rejected,
        "divergence": _divergence(flow),
        "method": solve.method,
        "rtol": solve.test_rtol,
        "atol": solve.test_atol,
        "parameters": count_parameters(flow),
        "seed": run.experiment.seed,
        "seconds": round(time.perf_counter() - began, 2),
    }


def _divergence(flow) -> str:
    """Names of the divergences that the flow's continuous parts use in testing."""
    import jax

    from ffjord.bijections import CNF

    parts = jax.tree.leaves(flow.bijection, is_leaf=lambda part: isinstance(part, CNF))
    return ", ".join(sorted({type(p.testing.divergence).__name__ for p in parts if isinstance(p, CNF)}))


def _shown(run: Run, results: dict[str, Any]) -> dict[str, str]:
    return {
        "test NLL": f"{results['test_nll']:.4f} ± {results['test_nll_stderr']:.4f} nats",
        "points": f"{results['points']:,}",
        "trace": results["divergence"],
        "solver": f"{results['method']}, rtol {results['rtol']:g}, atol {results['atol']:g}",
        "NFE": f"{results['nfe']:.0f}",
        "steps": f"{results['accepted_steps']:.1f} accepted, {results['rejected_steps']:.1f} rejected",
        "parameters": f"{results['parameters']:,}",
        "in the paper": run.experiment.paper,
    }
