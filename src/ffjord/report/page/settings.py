"""What was trained, on what, and where: settings, data, machine and versions."""

import dataclasses
from html import escape
from typing import Any

from ffjord.data.pictures import image_set, is_image
from ffjord.data.sets import SETS
from ffjord.errors import InputError
from ffjord.experiments import Experiment, find
from ffjord.report.page.facts import Facts
from ffjord.report.page.markup import facts as fact_list
from ffjord.report.page.markup import section
from ffjord.report.page.numbers import tolerance

_GROUPS = {
    "model": "Model",
    "solve": "Solver",
    "train": "Training",
    "matching": "Flow matching",
    "regularization": "Regularisers",
    "data": "Data",
    "file": "Table",
}


def settings(facts: Facts) -> str:
    """The section on what was trained: in short, then every setting."""
    experiment = facts.run.experiment
    brief = fact_list(
        [
            *_in_short(experiment),
            ("data", escape(_data(experiment))),
            ("run", f"<code>{escape(str(facts.run.path))}</code>"),
        ]
    )
    machine = fact_list(_machine(facts.versions)) if facts.versions else ""
    return section("settings", "What was trained", f'<div class="two">\n{brief}{machine}</div>\n{_all(experiment)}')


def _in_short(experiment: Experiment) -> list[tuple[str, str]]:
    model, train = experiment.model, experiment.train
    kind = "" if model.kind == "ffjord" else f"{model.kind}: "
    rate = f"learning rate {train.learning_rate:g}, {train.schedule}"
    first = f" after {train.warm_start:,} steps of flow matching" if train.warm_start else ""
    return [
        ("model", escape(kind + model.in_short())),
        ("objective", escape(train.objective + first)),
        ("training", escape(f"{train.steps:,} steps of {train.batch_size:,}, {rate}, seed {experiment.seed}")),
    ]


def _data(experiment: Experiment) -> str:
    data, file = experiment.data, experiment.file
    if file.path:
        given = f" given {', '.join(file.condition_on)}" if file.condition_on else ""
        return f"{', '.join(file.columns)}{given}, of {file.path} (SHA-256 {file.sha256[:12]}…)"
    if is_image(data.name):
        about = image_set(data.name)
        shape = " × ".join(map(str, about.shape))
        return f"{about.name}: {about.about}, {shape}, {about.levels} levels, {about.rows[0]:,} for training"
    if data.name in SETS:
        about = SETS[data.name]
        return f"{data.name}: {about.about}, {about.dim} columns, {about.rows[0]:,} rows for training"
    return f"{data.name}: {experiment.summary}" if experiment.summary else data.name


def _machine(versions: dict[str, Any]) -> list[tuple[str, str]]:
    machine = versions.get("machine", {})
    shown = " ".join(str(machine[name]) for name in ("system", "processor") if machine.get(name))
    cores = f", {machine['cores']} cores" if machine.get("cores") else ""
    libraries = [f"{name}&nbsp;{escape(str(value))}" for name, value in versions.items() if name != "machine"]
    return [*([("machine", escape(shown + cores))] if shown else []), ("versions", ", ".join(libraries))]


def _all(experiment: Experiment) -> str:
    """Every setting; those that the named experiment has otherwise are marked, and its own value told."""
    usual = _usual(experiment)
    groups = "".join(
        _group(experiment, usual, name, title) for name, title in _GROUPS.items() if _used(experiment, name)
    )
    note = "" if usual is None else " Where the experiment itself has another, that is told in brackets."
    words = f"<p>As in config.json.{note}</p>"
    return f"<details>\n<summary>Every setting</summary>\n{words}\n<div class='groups'>{groups}</div>\n</details>"


def _usual(experiment: Experiment) -> Experiment | None:
    try:
        return find(experiment.name)
    except InputError:
        return None


def _used(experiment: Experiment, name: str) -> bool:
    return name != "file" or bool(experiment.file.path)


def _group(experiment: Experiment, usual: Experiment | None, name: str, title: str) -> str:
    own = dataclasses.asdict(getattr(experiment, name))
    others = own if usual is None else dataclasses.asdict(getattr(usual, name))
    rows = [(setting.replace("_", " "), _setting(value, others[setting])) for setting, value in own.items()]
    return f"<div><h4>{title}</h4>{fact_list(rows)}</div>\n"


def _setting(value: Any, usual: Any) -> str:
    if value == usual:
        return escape(_plain(value))
    return f"<strong>{escape(_plain(value))}</strong> <span class='unit'>(usually {escape(_plain(usual))})</span>"


def _plain(value: Any) -> str:
    if value is None or value == ():
        return "–"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return tolerance(value) if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
