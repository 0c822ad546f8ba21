"""One run of a study: trained, scored on test points, and what there is to draw of it."""

import json
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ffjord.bits import to_bits
from ffjord.cli.evaluate import evaluate
from ffjord.cli.progress import TrainingDisplay
from ffjord.data.pictures import image_set
from ffjord.errors import InputError, TrainingError
from ffjord.experiments import Experiment
from ffjord.reproduce.recipes import changed, settings
from ffjord.runs import Run, write_json
from ffjord.training.run import train_run


class Cell(NamedTuple):
    """What is trained how, and with which seed."""

    data: str
    recipe: str
    seed: int

    def __str__(self) -> str:
        return f"{self.data}, {self.recipe}, seed {self.seed}"


def run_path(cell: Cell, folder: Path) -> Path:
    """The run directory of a cell."""
    return folder / cell.data / cell.recipe / str(cell.seed)


def result_of(cell: Cell, folder: Path, *, within: float, quick: bool) -> dict[str, Any]:
    """Trains and scores the cell in a run directory of its own, or reads what it has found before.

    A run that was cut off goes on where it was. `within`: see `ffjord evaluate --within`.
    """
    experiment = settings(cell.data, cell.recipe, cell.seed, quick=quick)
    return cell._asdict() | kept_result(run_path(cell, folder), experiment, lambda run: _scored(run, within))


def kept_result(path: Path, experiment: Experiment, score: Callable[[Run], dict[str, Any]]) -> dict[str, Any]:
    """Trains the experiment in a run directory and scores it, or reads what it has found before.

    A run that was cut off goes on where it was, and so does one that had less time, or fewer steps at a constant
    learning rate. One that fails has `failed`, its reason, in place of scores. Both have their `timing`.
    """
    run, kept = _opened(path, experiment), path / "cell.json"
    if _length(run.experiment) != _length(experiment):
        kept.unlink(missing_ok=True)
    if kept.is_file():
        return json.loads(kept.read_text())
    try:
        with TrainingDisplay(experiment.train.steps, experiment.train.max_minutes, every_seconds=30.0) as display:
            train_run(run, run.source(), show=display, tell=display.tell, experiment=experiment)
        found = score(run)
    except TrainingError as error:
        found = {"failed": str(error)}
    write_json(kept, found | timing(run))
    return found | timing(run)


def trained(
    path: Path, experiment: Experiment, score: Callable[[Run], dict[str, Any]] = lambda run: {}
) -> tuple[Run, dict[str, Any]]:
    """The run of an experiment, trained if it is not there, and its scores; a `TrainingError` if training failed."""
    found = kept_result(path, experiment, score)
    if "failed" in found:
        raise TrainingError(f"{found['failed']} Remove {path} to try again.")
    return Run.open(path), found


def _opened(path: Path, experiment: Experiment) -> Run:
    """The run directory, new or with these very settings, but perhaps shorter training."""
    run = Run.open(path) if (path / "config.json").exists() else Run.create(path, experiment)
    had, now = _length(run.experiment), _length(experiment)
    longer = changed(run.experiment, {f"train.{name}": getattr(experiment.train, name) for name in now})
    if any(now[name] < had[name] for name in now) or longer.to_dict() != _stored(experiment):
        raise InputError(f"{path} holds a run with other settings; remove it, or choose another place: --runs DIR.")
    return run


def _length(experiment: Experiment) -> dict[str, float]:
    """What ends training and may be raised later: minutes, and steps unless the learning rate's schedule has them."""
    train = experiment.train
    steps = {"steps": float(train.steps)} if train.schedule == "constant" else {}
    return {"max_minutes": train.max_minutes or math.inf} | steps


def _scored(run: Run, within: float) -> dict[str, Any]:
    """Test loss and evaluations, adaptive and with fixed steps; the same where no fixed steps are good enough."""
    try:
        found = evaluate(run, within=within)
    except InputError:
        found = evaluate(run)
    fixed = found.pop("fixed_steps", found)
    return found | {"fixed_nfe": fixed["nfe"], "fixed_test_nll": fixed["test_nll"]}


def fixed_steps(run: Run, within: float) -> dict[str, Any] | None:
    """What `ffjord evaluate --within` says of the fewest fixed steps, or None where there are none."""
    try:
        return evaluate(run, within=within)["fixed_steps"]
    except InputError:
        return None


def timing(run: Run) -> dict[str, Any]:
    """Seconds of training steps alone: without validations, which only the figures need, and without compilation.

    The first call of a compiled program is counted with the median time of the others. `curve` holds, for every
    validation, the seconds until then, the loss and the evaluations it took.
    """
    calls, points = _calls(run.metrics)
    change = run.experiment.train.warm_start
    stages = [[c for c in calls if c["step"] <= change], [c for c in calls if c["step"] > change]]
    compiling = 0.0
    for stage in filter(None, stages):
        usual = statistics.median(c["seconds"] for c in stage[1:] or stage)
        compiling += stage[0]["seconds"] - usual
        stage[0]["seconds"] = usual
    until = lambda step: sum(c["seconds"] for c in calls if c["step"] <= step)
    curve = [{"seconds": round(until(p["step"]), 3)} | p for p in points]
    total, last = round(until(float("inf")), 2), calls[-1]["step"] if calls else 0
    return {"train_seconds": total, "compile_seconds": round(compiling, 2), "steps": last, "curve": curve}


def read_metrics(run: Run) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of the metrics file: of the steps, and of the validations."""
    rows = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    return [row for row in rows if "loss" in row], [row for row in rows if "validation_loss" in row]


def in_bits(run: Run, nats: float | None) -> float:
    """A negative log-density of images in bits a dimension; None, of a solve that failed, is not a number."""
    about = image_set(run.experiment.data.name)
    return math.nan if nats is None else to_bits(-nats, math.prod(about.shape), about.levels)


def _calls(metrics: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """From a metrics file: the compiled calls with their last step and seconds, and the validations."""
    calls: list[dict[str, Any]] = []
    points: list[dict[str, Any]] = []
    clock = 0.0
    for line in metrics.read_text().splitlines():
        row = json.loads(line)
        if "validation_loss" in row:
            points.append({"step": row["step"], "loss": row["validation_loss"], "nfe": row.get("validation_nfe")})
        elif "loss" in row and row["seconds"] > clock:
            calls.append({"step": row["step"], "seconds": row["seconds"] - clock})
        elif "loss" in row:
            calls[-1]["step"] = row["step"]
        clock = row.get("seconds", clock)
    return calls, points


def _stored(experiment: Experiment) -> dict[str, Any]:
    """The settings as they come back from a file."""
    return Experiment.from_dict(json.loads(json.dumps(experiment.to_dict()))).to_dict()
