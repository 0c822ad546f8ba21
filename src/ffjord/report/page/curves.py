"""Curves of a training, and of several on the same axes."""

from collections.abc import Callable, Sequence
from html import escape
from typing import Any, Literal, NamedTuple

from ffjord.report.page.bins import Curve
from ffjord.report.page.facts import Facts
from ffjord.report.page.markup import figure, notice, rounded, section
from ffjord.report.page.outcome import measure_of

Kind = Literal["loss", "count", "duration"]
_AXES = """\
<fieldset class="axes"><legend>against</legend>
<label><input type="radio" name="axis-{name}" value="step" checked> steps</label>
<label><input type="radio" name="axis-{name}" value="seconds"> time</label>
</fieldset>
"""


class Series(NamedTuple):
    """A curve with a name and a colour."""

    name: str
    colour: str
    curve: Curve | None
    dots: bool = False


def training(facts: Facts, number: int) -> str:
    """The section on the course of a training."""
    if not facts.history:
        return section("training", "Training", notice("This run has no metrics: its training was not recorded here."))
    return _charts("training", "Training", f"run-{number}", charts_of_run(facts))


def overlaid(runs: Sequence[Facts]) -> str:
    """The section in which the curves of several runs lie over one another; empty where none has metrics."""
    units = f" ({', '.join(sorted({facts.units.name for facts in runs}))})"
    charts = []
    for title, kind, of in _OVERLAID:
        series = [Series(facts.label, run_colour(i), _alone(of(facts))) for i, facts in enumerate(runs, 1)]
        charts.append(chart(title + (units if kind == "loss" else ""), series, kind=kind))
    return _charts("overlaid", "Trainings side by side", "all", charts) if any(charts) else ""


def run_colour(place: int) -> str:
    """The colour of a run among several, by its place from 1."""
    return f"run-{(place - 1) % 8 + 1}"


def charts_of_run(facts: Facts) -> list[str]:
    """Loss, evaluations and time."""
    curve, shown, marks = facts.history.bins.curve, facts.units.shown, _marks(facts)
    loss = [
        Series("training", "model", _scaled(curve("training"), shown)),
        Series("validation", "data", _scaled(curve("validation_loss"), shown), dots=True),
    ]
    nfe = [
        Series("training", "model", curve("nfe")),
        Series("its gradient", "muted", curve("backward_nfe")),
        Series("validation", "data", curve("validation_nfe"), dots=True),
    ]
    charts = [
        chart(f"{measure_of(facts)[1]} ({facts.units.name})", loss, marks, kind="loss"),
        chart("loss of flow matching", [Series("training", "model", curve("matching"))], marks, kind="loss"),
        chart("evaluations of f a solve (NFE)", nfe, marks),
        chart("time of training", [Series("time", "ink", facts.history.bins.seconds())], marks, kind="duration"),
    ]
    return [html for html in charts if html]


def chart(title: str, series: Sequence[Series], marks: Sequence[dict[str, Any]] = (), *, kind: Kind = "count") -> str:
    """A chart, or nothing where no series has a number. Curves that are zero throughout are left out.

    `marks` are moments at which something happened. Counts and durations begin at zero; durations, in seconds, are
    always against steps.
    """
    drawn = [one for one in series if one.curve is not None and any(one.curve.mean)]
    if not drawn:
        return ""
    legend = "".join(f'<li style="--colour: var(--{one.colour})">{escape(one.name)}</li>' for one in drawn)
    legend += '<li class="mark">event</li>' if marks else ""
    values = {
        "kind": kind,
        "series": [_values(one) for one in drawn],
        "marks": [*marks],
    }
    shown = f'<h4>{escape(title)}</h4>\n<ul class="legend">{legend}</ul>\n'
    plot = f'<div class="plot" tabindex="0" role="img" aria-label="{escape(title)}"></div>\n<output></output>'
    return figure("chart", values, shown + plot)


def _charts(kind: str, title: str, name: str, charts: list[str]) -> str:
    body = f'{_AXES.format(name=name)}<div class="charts">\n{"".join(charts)}</div>'
    return section(kind, title, body, attributes=' data-axis="step"')


def _values(series: Series) -> dict[str, Any]:
    curve = series.curve
    assert curve is not None
    values = {"name": series.name, "colour": series.colour, "dots": series.dots, "step": curve.step}
    values |= {"seconds": rounded(curve.seconds), "value": rounded(curve.mean)}
    if curve.low != curve.high:
        values |= {"low": rounded(curve.low), "high": rounded(curve.high)}
    return values


def _scaled(curve: Curve | None, shown: Callable[[float], float]) -> Curve | None:
    """A curve of losses in the units that they are shown in."""
    if curve is None:
        return None
    return curve._replace(**{name: [shown(v) for v in getattr(curve, name)] for name in ("mean", "low", "high")})


def _marks(facts: Facts) -> list[dict[str, Any]]:
    return [{name: row[name] for name in ("step", "seconds", "event")} for row in facts.history.events]


def _alone(curve: Curve | None) -> Curve | None:
    """A curve without its least and greatest, where several lie over one another."""
    return None if curve is None else curve._replace(low=curve.mean, high=curve.mean)


_OVERLAID: tuple[tuple[str, Kind, Callable[[Facts], Curve | None]], ...] = (
    ("validation loss", "loss", lambda facts: _scaled(facts.history.bins.curve("validation_loss"), facts.units.shown)),
    ("training loss", "loss", lambda facts: _scaled(facts.history.bins.curve("training"), facts.units.shown)),
    ("evaluations of f in training (NFE)", "count", lambda facts: facts.history.bins.curve("nfe")),
    ("evaluations of f in validation (NFE)", "count", lambda facts: facts.history.bins.curve("validation_nfe")),
    ("time of training", "duration", lambda facts: facts.history.bins.seconds()),
)
