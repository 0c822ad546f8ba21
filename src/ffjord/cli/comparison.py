"""A fitted table's flow beside simpler densities, on the same test rows and in the same units."""

from typing import TYPE_CHECKING, Any

from ffjord.runs import Run

if TYPE_CHECKING:
    import numpy as np


def compare(run: Run, log_prob: "np.ndarray", shift: float) -> dict[str, Any]:
    """Test likelihoods of simpler densities, and by how much they are worse than the flow's, row by row.

    `log_prob` are the flow's of the first test rows, in standardised units; the table's units add `shift` to a negative
    log-likelihood.
    """
    from ffjord.table.rows import prepared
    from ffjord.yardsticks import yardsticks

    found, n = prepared(run.experiment.file, run.experiment.seed), len(log_prob)
    weights = None if found.test.weights is None else found.test.weights[:n]
    results = {}
    for one in yardsticks(found, seed=run.experiment.seed):
        mean, error = _moments(one.log_prob[:n], weights)
        worse_by, worse_by_error = _moments(log_prob.astype("float64") - one.log_prob[:n], weights)
        nll = {"test_nll": shift - mean, "test_nll_stderr": error}
        results[one.name] = nll | {"worse_by": worse_by, "worse_by_stderr": worse_by_error} | one.about
    return results


def shown(found: dict[str, Any]) -> str:
    """One of these results, in words."""
    worse, error = found["worse_by"], found["worse_by_stderr"]
    about = [f"{abs(worse):.2f} ± {error:.2f} {'worse' if worse >= 0 else 'better'} than the flow"]
    about += [f"{found['components']} components"] if "components" in found else []
    about += [f"bandwidth {found['bandwidth']:.2g}"] if "bandwidth" in found else []
    about += ["covariance singular, with a ridge"] if "ridge" in found else []
    if found.get("training_rows") != found.get("all_training_rows"):
        about += [f"from {found['training_rows']:,} of {found['all_training_rows']:,} training rows"]
    return f"{found['test_nll']:.4f} ± {found['test_nll_stderr']:.4f} nats ({'; '.join(about)})"


def _moments(values: "np.ndarray", weights: "np.ndarray | None") -> tuple[float, float]:
    from ffjord.scoring import Moments

    moments = Moments()
    moments.add(values, weights)
    return moments.mean, moments.standard_error
