"""Can the numbers of a trained flow be trusted? One small function a question; each returns a `Verdict`.

The limits, and why:

- ∫p: within 0.01 of 1, or within 3 standard errors where it is estimated. An excess of 0.01 is 0.01 nats in every
    log-likelihood, less than any comparison of models here rests upon. It takes an effective sample size of 50 and
    3 standard errors of at most 0.1 to say anything.
- Log-densities, by the trace against by the map's Jacobian, and at the testing tolerance against a tenth of it in
    float64: 0.01 nats on average over the points (fails), 0.1 nats for the worst of them (warns).
- Round trip: 1e-3 standard deviations as root mean square over points and columns (fails), 1e-2 for the worst number
    (warns). Samples that far from where they belong cannot be told from right ones by eye or by any test here.
- Estimated trace: bias of the mean within 4 standard errors (once in 16,000 by chance) or 0.01 nats; not conclusive
    if 4 standard errors are more than 1 nat. Where testing itself uses the estimate, it warns if the noise moves the
    mean by more than 0.01 nats.
- Effort: the NFE of test points at most 1.5 times that of training points and at most half of all steps rejected, or
    it warns. A solve that fails is a failure.
- Overfitting: test loss within 3 standard errors, or 0.01 nats, of the training loss, or it warns.
- Marginals: no column whose Kolmogorov-Smirnov distance is as improbable as 0.01 / D (Bonferroni), or it warns.

Where testing estimates the trace, the first three of these use the exact one: what the noise does is a verdict of its
own.
"""

from collections.abc import Callable

import jax
import numpy as np

from ffjord.bijections import CNF
from ffjord.data.source import Conditioned
from ffjord.divergence import AbstractDivergence, Hutchinson
from ffjord.errors import SolveError
from ffjord.models.build import MAX_PRODUCTS_IN_TESTING
from ffjord.report.marginals import compare
from ffjord.report.mass import mass_by_sampling, mass_on_grid
from ffjord.report.subject import MOST_COLUMNS, Subject, in_double, round_trip, tightened, with_divergence
from ffjord.report.verdict import Grade, Verdict, skipped
from ffjord.scoring import CHUNK, Moments

NATS, WORST_NATS = 0.01, 0.1
MASS, ENOUGH_EFFECTIVE, SURE_MASS = 0.01, 50, 0.1
ROUND_TRIP, WORST_ROUND_TRIP = 1e-3, 1e-2
BIAS_ERRORS, SURE_BIAS, GAP_ERRORS = 4.0, 1.0, 3.0
MORE_NFE, REJECTED = 1.5, 0.5
CHANCE = 0.01

_NO_TRACE = f"The exact trace is taken in up to {MAX_PRODUCTS_IN_TESTING} dimensions; this flow has more."
_NO_JACOBIAN = f"The Jacobian of the whole map is taken in up to {MOST_COLUMNS} dimensions; this flow has more."


def run_checks(subject: Subject, progress: Callable[[int, int], None] | None = None) -> list[Verdict]:
    """All verdicts. A solve that fails on the way is a verdict too."""
    verdicts = []
    for name, check in CHECKS.items():
        try:
            verdicts.append(check(name, subject))
        except SolveError as error:
            verdicts.append(Verdict(name, "FAIL", "a solve failed", "none fails", f"There is no number: {error}"))
        if progress is not None:
            progress(len(verdicts), len(CHECKS))
    return verdicts


def check_mass(name: str, subject: Subject) -> Verdict:
    """∫p = 1: on a grid for p(x) in up to two dimensions, else by importance sampling."""
    if subject.dim <= 2 and subject.flow.condition_shape is None:
        return _mass_on_grid(name, subject)
    if subject.dim > MOST_COLUMNS:
        return skipped(name, _NO_JACOBIAN)
    pushed, proposal, log_prob = subject.pushed
    value, error, effective = mass_by_sampling(log_prob + pushed.log_det - proposal.log_density)
    sure = effective >= ENOUGH_EFFECTIVE and 3 * error <= SURE_MASS
    near = abs(value - 1) <= max(MASS, 3 * error)
    found = f"{value:.4f} ± {error:.4f}, effective sample size {effective:.0f} of {len(log_prob)}"
    values = {"mass": value, "standard_error": error, "effective_sample_size": effective}
    limit = f"1 ± max({MASS}, 3 SE); size ≥ {ENOUGH_EFFECTIVE}"
    return Verdict(name, _mass_grade(near, sure), found, limit, _mass_meaning(near, sure, value), values)


def _mass_on_grid(name: str, subject: Subject) -> Verdict:
    whole = lambda x: np.resize(x, (-(-len(x) // CHUNK) * CHUNK, x.shape[1]))  # chunks of one shape, compiled once
    log_prob = lambda x: subject.score(subject.exact, Conditioned(whole(x), None)).log_prob[: len(x)]
    limit = f"1 ± {MASS}"
    cloud = np.concatenate([subject.test.x, subject.samples])
    try:
        value, change, border, points = mass_on_grid(log_prob, cloud)
    except SolveError as error:
        return Verdict(
            name, "not conclusive", "a solve failed", limit, f"Far from the data there is no number: {error}"
        )
    near = abs(value - 1) <= MASS
    complete = value > 1 or border <= MASS / 10  # what lies beyond the box can only add
    sure = change + border <= MASS if near else complete and abs(value - 1) > MASS + 3 * change
    values = {"mass": value, "last_change": change, "border": border, "grid_points": points}
    found = f"{value:.4f} (last split {change:.0e}, at the edge {border:.0e})"
    return Verdict(name, _mass_grade(near, sure), found, limit, _mass_meaning(near, sure, value), values)


def _mass_grade(near: bool, sure: bool) -> Grade:
    return ("pass" if near else "FAIL") if sure else "not conclusive"


def _mass_meaning(near: bool, sure: bool, value: float) -> str:
    if not sure:
        return "The integral is not known well enough to say; more --points may help."
    if near:
        return "The log-densities are those of a density, and can be compared between models."
    with np.errstate(divide="ignore"):
        return f"exp(log p) is no density: log-likelihoods are off by about {np.log(value):+.2f} nats."


def check_jacobian(name: str, subject: Subject) -> Verdict:
    """log p(x) by the flow's own trace against N(z) / |det dx/dz| by the Jacobian of its map."""
    if subject.dim > MOST_COLUMNS:
        return skipped(name, _NO_JACOBIAN)
    pushed, _, log_prob = subject.pushed
    good = "Log-densities are those of the points that the flow draws, point by point."
    bad = "Log-densities are not those of the points that the flow draws: the divergence or the solver is wrong."
    return _nats(name, log_prob - pushed.log_prob, good, bad)


def check_tolerance(name: str, subject: Subject) -> Verdict:
    """log p(x) of test points at the testing tolerance against a tenth of it in float64."""
    if not subject.cnfs:
        return skipped(name, "The flow has no continuous part, and so no solver.")
    if subject.noisy and subject.dim > MAX_PRODUCTS_IN_TESTING:
        return skipped(name, _NO_TRACE)
    with jax.enable_x64(True):
        tight = subject.score(tightened(in_double(subject.exact)), subject.test).log_prob
    good = "The solver's tolerance and float32 do not show in the log-densities."
    bad = "The log-densities depend on the solver's tolerance: evaluate with a smaller one."
    return _nats(name, subject.exact_log_prob - tight, good, bad)


def _nats(name: str, difference: np.ndarray, good: str, bad: str) -> Verdict:
    size = np.abs(difference.astype(np.float64))
    mean, most = float(np.mean(size)), float(np.max(size))
    grade = "FAIL" if not mean <= NATS else "warn" if not most <= WORST_NATS else "pass"
    meaning = {"pass": good, "FAIL": bad, "warn": "Good on average, but single points are off: do not rank outliers."}
    values = {"mean": mean, "max": most, "bias": float(np.mean(difference)), "points": len(size)}
    found = f"differ by {mean:.1e} nats on average, {most:.1e} at most"
    return Verdict(name, grade, found, f"mean ≤ {NATS}, max ≤ {WORST_NATS}", meaning[grade], values)


def check_round_trip_of_data(name: str, subject: Subject) -> Verdict:
    """|forward(inverse(x)) - x| of test points, in standard deviations of the columns."""
    return _round_trip(name, subject, subject.test.x, subject.round_trip.x)


def check_round_trip_of_samples(name: str, subject: Subject) -> Verdict:
    """|forward(inverse(x)) - x| of samples, in standard deviations of the data's columns."""
    again = round_trip(subject.flow, Conditioned(subject.samples, subject.test.condition)).x
    return _round_trip(name, subject, subject.samples, again)


def _round_trip(name: str, subject: Subject, x: np.ndarray, again: np.ndarray) -> Verdict:
    error = np.abs(again - x.astype(np.float64)) / subject.spread
    rms, most = float(np.sqrt(np.mean(error**2))), float(np.max(error))
    grade = "FAIL" if not rms <= ROUND_TRIP else "warn" if not most <= WORST_ROUND_TRIP else "pass"
    meaning = {
        "pass": "Sampling undoes scoring: the map is a bijection in practice.",
        "warn": "The map is undone on average, but not everywhere.",
        "FAIL": "Sampling does not undo scoring: tighten the testing tolerance.",
    }
    limit = f"RMS ≤ {ROUND_TRIP:g}, max ≤ {WORST_ROUND_TRIP:g}"
    return Verdict(name, grade, f"RMS {rms:.1e} σ, max {most:.1e} σ", limit, meaning[grade], {"rms": rms, "max": most})


def check_noise(name: str, subject: Subject) -> Verdict:
    """Two draws of the noise of an estimated trace against each other, and against the exact trace.

    The estimator is that of testing or of training, or Hutchinson's where both are exact. The other side is the flow's
    own testing trace, or the exact one where that is an estimate.
    """
    if not subject.cnfs:
        return skipped(name, "The flow has no continuous part, and so no trace.")
    if subject.noisy and subject.dim > MAX_PRODUCTS_IN_TESTING:
        return skipped(name, _NO_TRACE)
    first, second = (_estimated(subject, draw) for draw in (1, 2))
    moments = Moments()
    moments.add((first + second) / 2 - subject.exact_log_prob)
    std = float(np.sqrt(np.mean((first - second) ** 2) / 2))
    values: dict[str, float | int] = {"std": std, "std_of_mean": std / np.sqrt(len(first)), "bias": moments.mean}
    values |= {"standard_error": moments.standard_error, "points": len(first)}
    return _noise_verdict(name, values, subject.noisy)


def _noise_verdict(name: str, values: dict[str, float | int], noisy: bool) -> Verdict:
    bias, error = values["bias"], values["standard_error"]
    z = bias / error if error > 0 else 0.0
    seen = max(BIAS_ERRORS * error, NATS)
    if not abs(bias) <= seen:
        grade = "FAIL"
    elif noisy and values["std_of_mean"] > NATS:
        grade = "warn"
    else:
        grade = "pass" if seen <= SURE_BIAS else "not conclusive"
    meaning = {
        "pass": f"The estimate is unbiased, and testing {'averages its noise out' if noisy else 'is exact'}.",
        "warn": "Testing estimates the trace, and its noise shows in the mean: test with the exact trace.",
        "not conclusive": f"No bias is seen, but less than {seen:.1f} nats would not show in this noise.",
        "FAIL": "The trace in use and its unbiased estimate disagree: one of them is wrong.",
    }
    spread = f"std {values['std']:.2g} nats a point, {values['std_of_mean']:.1g} of the mean"
    limit = f"|bias| ≤ max({BIAS_ERRORS:g} SE, {NATS})"
    found = f"{spread}; bias {bias:+.2g} (z = {z:+.1f})"
    return Verdict(name, grade, found, limit, meaning[grade], values | {"z": z})


def _estimated(subject: Subject, draw: int) -> np.ndarray:
    noisy = with_divergence(subject.flow, _estimator)
    return subject.score(noisy, subject.test, draw=draw).log_prob.astype(np.float64)


def _estimator(cnf: CNF) -> AbstractDivergence:
    own = (cnf.testing.divergence, cnf.training.divergence)
    return next((divergence for divergence in own if divergence.stochastic), Hutchinson("rademacher"))


def check_effort(name: str, subject: Subject) -> Verdict:
    """Evaluations and rejected steps of test points against training points, both by the testing solver."""
    if not subject.cnfs:
        return skipped(name, "The flow has no continuous part, and so no solver.")
    train, test = subject.train_scores, subject.test_scores
    ratio, rejected = test.nfe / train.nfe, test.rejected / max(test.accepted + test.rejected, 1)
    grade = "pass" if ratio <= MORE_NFE and rejected <= REJECTED else "warn"
    meaning = {
        "pass": "No solve failed, and points that training never saw are no harder.",
        "warn": "Points that training never saw are hard for the solver: look at the outliers, or regularise.",
    }
    found = f"NFE {test.nfe:.0f} of test, {train.nfe:.0f} of training points; {rejected:.0%} of steps rejected"
    values = {"test_nfe": test.nfe, "train_nfe": train.nfe, "ratio": ratio, "rejected": rejected}
    limit = f"ratio ≤ {MORE_NFE}, rejected ≤ {REJECTED:.0%}"
    return Verdict(name, grade, found, limit, meaning[grade], values)


def check_overfitting(name: str, subject: Subject) -> Verdict:
    """Mean negative log-likelihood of test points less that of training points, with its standard error."""
    losses = Moments(), Moments()
    for moments, scores in zip(losses, (subject.train_scores, subject.test_scores), strict=True):
        moments.add(-scores.log_prob.astype(np.float64))
    train, test = losses
    gap, error = test.mean - train.mean, float(np.hypot(train.standard_error, test.standard_error))
    grade = "pass" if gap <= max(GAP_ERRORS * error, NATS) else "warn"
    meaning = {
        "pass": "The flow is as good on points that training never saw.",
        "warn": "The flow is worse on points that training never saw: it overfits.",
    }
    found = f"{test.mean:.3f} ± {test.standard_error:.3f} test, {train.mean:.3f} ± {train.standard_error:.3f} training"
    values = {"test_nll": test.mean, "train_nll": train.mean, "gap": gap, "standard_error": error}
    return Verdict(name, grade, found, f"gap ≤ max({GAP_ERRORS:g} SE, {NATS})", meaning[grade], values)


def check_marginals(name: str, subject: Subject) -> Verdict:
    """Kolmogorov-Smirnov distances of samples and test points, a column each."""
    distance, probability = compare(subject.test.x, subject.samples)
    differing, most = int(np.sum(probability < CHANCE / subject.dim)), int(np.argmax(distance))
    grade = "warn" if differing else "pass"
    meaning = {
        "pass": "Column by column, samples cannot be told from data with so many points.",
        "warn": "Column by column, samples can be told from data: look at the pictures.",
    }
    found = f"{differing} of {subject.dim} columns differ; the most, number {most + 1}, by {distance[most]:.3f}"
    values: dict[str, float | int] = {"columns": subject.dim, "differing": differing, "most_different": most + 1}
    values |= {"distance": float(distance[most]), "probability": float(probability[most])}
    return Verdict(name, grade, found, f"p ≥ {CHANCE:g} / {subject.dim}", meaning[grade], values)


CHECKS: dict[str, Callable[[str, Subject], Verdict]] = {
    "∫p = 1": check_mass,
    "log p by the Jacobian": check_jacobian,
    "log p at a tenth of the tolerance": check_tolerance,
    "round trip of data": check_round_trip_of_data,
    "round trip of samples": check_round_trip_of_samples,
    "noise of the trace": check_noise,
    "solver's effort": check_effort,
    "overfitting": check_overfitting,
    "marginals": check_marginals,
}
