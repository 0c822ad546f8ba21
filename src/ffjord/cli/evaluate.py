"""`ffjord evaluate`."""

import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ffjord.choices import DivergenceName
from ffjord.cli import autoencoder, comparison
from ffjord.cli.common import Cluster, RunPath, new_file, parse, print_table
from ffjord.data.pictures import is_image
from ffjord.errors import InputError
from ffjord.progress import rows_bar
from ffjord.runs import Run, write_json

_EXAMPLES = """\
  ffjord evaluate runs/toy/pinwheel
  ffjord evaluate pretrained/toy-8gaussians --limit 10000
  ffjord evaluate pretrained/toy-8gaussians --within 0.01
  ffjord evaluate runs/vae/frey --importance 500"""


_METHODS = ("dopri5", "rk4", "bosh3")
"""Of the fixed steps that --within chooses from."""


@dataclass(frozen=True)
class Arguments:
    """Test likelihood of a run: fresh points, exact trace, tight tolerance. Writes results.json into the run."""

    run: RunPath
    limit: int | None = None
    """Use only the first so many test points."""
    draws: int = 1
    """Of images: average over so many draws of their dequantisation and of the trace's noise; of an autoencoder, of its
    latent points."""
    importance: int | None = None
    """Of an autoencoder: also the likelihood, by so many samples of its posterior an image (importance sampling)."""
    trace: DivergenceName | None = None
    """Another trace than that of the run's settings: exact takes a product with the Jacobian for every dimension."""
    tolerance: float | None = None
    """Another rtol and atol than those of the run's settings."""
    within: float | None = None
    """Also look for the fewest evaluations in fixed steps (of dopri5, rk4 or bosh3) that keep the likelihood of the
    validation points within so many nats."""
    data_dir: Path | None = None
    """Directory of the data's files, in place of the one that the run was trained with."""
    out: Path | None = None
    """Where to write the results; results.json in the run if not given."""
    overwrite: bool = False
    """Replace an existing file that --out names."""
    cluster: Cluster = field(default_factory=Cluster)


def main(argv: Sequence[str]) -> int:
    given = parse(Arguments, argv, "evaluate", _EXAMPLES)
    if given.limit is not None and given.limit < 2:
        raise InputError(f"--limit must be at least 2; got {given.limit}.")
    if given.draws < 1:
        raise InputError(f"--draws must be at least 1; got {given.draws}.")
    if given.importance is not None and given.importance < 1:
        raise InputError(f"--importance must be at least 1; got {given.importance}.")
    if given.tolerance is not None and not 0 < given.tolerance < 1:
        raise InputError(f"--tolerance must be between 0 and 1; got {given.tolerance}.")
    if given.within is not None and not 0 < given.within < math.inf:
        raise InputError(f"--within must be a positive number of nats; got {given.within}.")
    if given.out is not None:
        new_file(given.out, (".json",), overwrite=given.overwrite)
    from ffjord import compilation, devices

    given.cluster.join()
    compilation.enable_cache()
    run = _solved_by(Run.open(given.run).with_data_dir(given.data_dir), given.trace, given.tolerance)
    _check_kind(run, given)
    with devices.together():
        results = evaluate(run, given.limit, given.within, draws=given.draws, importance=given.importance)
    if not devices.is_writer():
        return 0
    return show_and_write(run, results, given.out)


def _check_kind(run: Run, given: Arguments) -> None:
    """Refuses what is not for the run's kind of model."""
    if given.draws > 1 and not is_image(run.experiment.data.name) and not run.is_autoencoder:
        raise InputError("--draws is for images, whose pixels are dequantised by noise; leave it out.")
    if given.importance is not None and not run.is_autoencoder:
        raise InputError(f"--importance is for autoencoders; the likelihood of {run.path} is known without it.")
    if given.within is not None and run.is_autoencoder:
        raise InputError(f"--within is for flows, and {run.path} is an autoencoder; leave it out.")


def show_and_write(run: Run, results: dict[str, Any], out: Path | None = None) -> int:
    """Shows what `evaluate` found, and writes it: into the run, if no other file is named."""
    print_table(_shown(run, results), title=f"{run.experiment.name} ({run.path})")
    return _write(out or run.results, results, required=out is not None)


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


def _solved_by(run: Run, trace: DivergenceName | None, tolerance: float | None) -> Run:
    """The run with other numerics in testing, where they are given."""
    solve = run.experiment.solve
    if trace is not None:
        solve = dataclasses.replace(solve, test_divergence=trace)
    if tolerance is not None:
        solve = dataclasses.replace(solve, test_rtol=tolerance, test_atol=tolerance)
    return Run(run.path, dataclasses.replace(run.experiment, solve=solve))


def evaluate(
    run: Run,
    limit: int | None = None,
    within: float | None = None,
    *,
    draws: int = 1,
    importance: int | None = None,
    kept: list | None = None,
) -> dict[str, Any]:
    """Negative log-likelihood of test points under the best model, with its standard error and the solver's report.

    That of a fitted table is in the table's own units, beside those of simpler densities on the same rows; that of
    images is in bits a dimension too, averaged over `draws` draws of noise. With `within`, also that of the fewest
    fixed steps which keep it within so many nats on the validation points. Of an autoencoder it is the negative bound,
    and with `importance` the likelihood by so many samples. The log-densities of all points, or their bounds, are added
    to the list `kept`, if there is one; those of images whose density is known are not.
    """
    import jax
    import numpy as np

    from ffjord.parameters import count_parameters

    flow, source, layout = run.model(), run.source(), run.layout()
    shift = 0.0 if layout is None else layout.log_scale
    key, solve = jax.random.key(run.experiment.seed), run.experiment.solve
    fixed = None if within is None else _fewest_steps(flow, source.validation(), within, key)
    kept = [] if kept is None and layout is not None else kept
    began = time.perf_counter()
    results = {
        "experiment": run.experiment.name,
        **(
            autoencoder.scored(run, flow, source, limit, draws, importance, kept, key)
            if run.is_autoencoder
            else _scored_images(flow, source, limit, draws, key)
            if is_image(run.experiment.data.name)
            else _scored(flow, source, limit, key, shift, kept)
        ),
        "divergence": _divergence(flow),
        "method": solve.method,
        "rtol": solve.test_rtol,
        "atol": solve.test_atol,
        "parameters": count_parameters(flow),
        "seed": run.experiment.seed,
        "seconds": round(time.perf_counter() - began, 2),
    }
    if layout is not None and kept is not None:
        results["yardsticks"] = comparison.compare(run, np.concatenate(kept), shift)
    if fixed is not None:
        of_validation = {"validation_nll": fixed.nll + shift, "validation_nll_adaptive": fixed.adaptive_nll + shift}
        scored = _scored(fixed.flow, source, limit, key, shift)
        how = {"within": within, "method": fixed.method, "steps": list(fixed.steps)}
        results["fixed_steps"] = how | scored | of_validation
    return results


def _scored(
    flow: Any, source: Any, limit: int | None, key: Any, shift: float, kept: list | None = None
) -> dict[str, Any]:
    """What the test points say of a flow, whose units add `shift` to the negative log-likelihood.

    All log-densities are added to the list `kept`, if there is one.
    """
    import numpy as np

    from ffjord.scoring import Moments, score_blocks

    n = source.num_test if limit is None else min(limit, source.num_test)
    log_prob, costs = Moments(), []
    blocks, conditions, weights = _test_rows(source, limit)
    with rows_bar("scoring") as progress:
        for scores in score_blocks(flow, blocks, n, conditions=conditions, progress=progress, key=key):
            done = log_prob.count
            log_prob.add(scores.log_prob, None if weights is None else weights[done : done + len(scores.log_prob)])
            costs.append(scores[1:])
            if kept is not None:
                kept.append(scores.log_prob)
    nfe, accepted, rejected = np.mean(costs, axis=0).tolist()
    return {
        "test_nll": shift - log_prob.mean,
        "test_nll_stderr": log_prob.standard_error,
        "points": log_prob.count,
        "nfe": nfe,
        "accepted_steps": accepted,
        "rejected_steps": rejected,
    }


def _scored_images(flow: Any, source: Any, limit: int | None, draws: int, key: Any) -> dict[str, Any]:
    """What the test images say of a flow, in bits a dimension and in nats an image."""
    import math

    from ffjord.bits import bits_per_dim, to_nats

    with rows_bar("scoring") as progress:
        found = bits_per_dim(flow, source, limit=limit, draws=draws, progress=progress, key=key)
    size = math.prod(source.event_shape)
    return {
        "bits_per_dim": found.bits_per_dim,
        "bits_per_dim_stderr": found.stderr,
        "trace_stderr": found.trace_stderr,
        "trace_variance_nats": found.trace_variance,
        "noise_stderr": found.noise_stderr,
        "draws": found.draws,
        "test_nll": to_nats(found.bits_per_dim, size, source.levels),
        "test_nll_stderr": found.stderr * size * math.log(2),
        "points": found.images,
        "nfe": found.nfe,
        "accepted_steps": found.accepted,
        "rejected_steps": found.rejected,
    }


def _test_rows(source: Any, limit: int | None) -> tuple[Any, Any, Any]:
    """Test points and their conditions in blocks, and all their weights. Rows that have such are in memory anyway."""
    from ffjord.data.source import Held

    if not isinstance(source.validation(), Held):
        return source.test_blocks(limit), None, None
    held = source.test(limit)
    return [held.x], None if held.condition is None else [held.condition], held.weight


def _fewest_steps(flow: Any, validation: Any, within: float, key: Any) -> Any:
    from ffjord.data.source import Held
    from ffjord.fixed_steps import fewest_steps

    rows = Held.of(validation)
    try:
        return fewest_steps(flow, rows.x, conditions=rows.condition, within=within, method=_METHODS, key=key)
    except ValueError as error:
        raise InputError(f"--within {within:g}: {error}") from error


def _divergence(flow) -> str:
    """Names of the divergences that the flow's continuous parts use in testing."""
    from ffjord.bijections import continuous_parts

    return ", ".join(sorted({type(part.testing.divergence).__name__ for part in continuous_parts(flow)}))


def _shown(run: Run, results: dict[str, Any]) -> dict[str, str]:
    shown = {
        **(_bits(results) if "bits_per_dim" in results else {}),
        **(autoencoder.shown(results) if "negative_elbo" in results else {"test NLL": _nll(results)}),
        "points": f"{results['points']:,}",
        **(_solved(results) if results["divergence"] else {}),
        "parameters": f"{results['parameters']:,}",
    }
    if run.experiment.paper:
        shown["in the paper"] = run.experiment.paper
    shown |= {name: comparison.shown(found) for name, found in results.get("yardsticks", {}).items()}
    if fixed := results.get("fixed_steps"):
        steps = " + ".join(map(str, fixed["steps"]))
        shown["fixed steps"] = f"{steps} of {fixed['method']}, NFE {fixed['nfe']:.0f}, test NLL {_nll(fixed)}"
    return shown


def _bits(results: dict[str, Any]) -> dict[str, str]:
    """What there is to tell of images."""
    noise = results["noise_stderr"]
    part = "exact" if not results["trace_stderr"] else f"{results['trace_stderr']:.2g} of the error"
    return {
        "bits/dim": f"{results['bits_per_dim']:.4f} ± {results['bits_per_dim_stderr']:.4f}",
        "due to the trace": part,
        **({} if noise is None else {"due to all noise": f"{noise:.2g} of the error, {results['draws']} draws"}),
    }


def _solved(results: dict[str, Any]) -> dict[str, str]:
    """What there is to tell of the solves of a continuous flow."""
    return {
        "trace": results["divergence"],
        "solver": f"{results['method']}, rtol {results['rtol']:g}, atol {results['atol']:g}",
        "NFE": f"{results['nfe']:.0f}",
        "steps": f"{results['accepted_steps']:.1f} accepted, {results['rejected_steps']:.1f} rejected",
    }


def _nll(results: dict[str, Any]) -> str:
    return f"{results['test_nll']:.4f} ± {results['test_nll_stderr']:.4f} nats"
