"""What a person sees while a flow trains."""

import io

import pytest
from rich.console import Console

from ffjord.cli import progress
from ffjord.cli.progress import TrainingDisplay


@pytest.fixture
def clock(monkeypatch):
    """Time that passes when it is told to."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def shown(clock, capsys, total: int, minutes: float | None) -> str:
    """The line after 10 of the steps, which took a second each."""
    with TrainingDisplay(total, minutes, every_seconds=5.0) as display:
        for step in range(11):
            clock[0] = float(step)
            display({"step": step, "loss": 1.5, "nfe": 20.0, "best": 1.25, "seconds": float(step)})
    return capsys.readouterr().out.splitlines()[-1]


def test_a_line_tells_step_loss_evaluations_and_the_time_to_the_last_step(clock, capsys):
    assert shown(clock, capsys, 130, None) == "step 10/130  loss 1.5000  NFE 20  best validation 1.2500  2.0 min left"


@pytest.mark.parametrize(("minutes", "left"), [(1.0, "0.8"), (60.0, "2.0"), (0.1, "0.0")])
def test_the_time_left_ends_with_the_limit_if_that_is_sooner(clock, capsys, minutes, left):
    assert shown(clock, capsys, 130, minutes).endswith(f"  {left} min left")


def test_a_terminal_has_a_bar_with_the_same_figures(clock, monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(progress, "Console", lambda stderr: Console(file=screen, force_terminal=True, width=120))
    with TrainingDisplay(130, 1.0) as display:
        for step in (0, 10):
            clock[0] = float(step)
            display({"step": step, "loss": 1.5, "nfe": 20.0, "seconds": float(step)})
    assert all(part in screen.getvalue() for part in ("loss 1.5000  NFE 20", "10/130", "0.8 min left"))
