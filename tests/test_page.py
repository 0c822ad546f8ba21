"""The page of a run: what it shows is what the run's files say and what the flow does."""

import hashlib
import json
import os
import re
import time

import jax
import numpy as np
import pytest

from ffjord.cli import main
from ffjord.report.evaluate import for_pictures
from ffjord.report.grid import Extent, grid_points
from ffjord.report.images import images_at
from ffjord.report.mosaic import in_levels
from ffjord.report.page import Entry, page, read_facts
from ffjord.report.page.bins import Bins
from ffjord.report.page.curves import charts_of_run
from ffjord.report.page.history import History
from ffjord.report.page.image_player import SAMPLES as IMAGES
from ffjord.report.page.live import LivePage, following
from ffjord.report.page.markup import packed, unpacked
from ffjord.report.page.motion import CELLS, quantized
from ffjord.report.page.numbers import measured
from ffjord.report.page.outcome import references
from ffjord.report.page.picture import picture, without_picture
from ffjord.report.page.template import asset
from ffjord.report.style import DATA, GLOW, INK, MODEL, MUTED, PAGE, PANEL
from ffjord.runs import Run, write_json
from tests.page_runs import CHECKS, append_metrics, figures, make_run, of_file, write_metrics, write_results
from tests.test_cli import TINY, fails


@pytest.fixture(scope="module")
def moons(tmp_path_factory) -> Run:
    return make_run(tmp_path_factory.mktemp("runs") / "moons")


@pytest.fixture(scope="module")
def moons_picture(moons) -> str:
    return picture(moons, seed=0)


def text_of(run: Run, drawn: str | None = None, label: str = "RUN") -> str:
    """The page of a run, without its picture if none is given."""
    return page([Entry(read_facts(run, label), drawn or without_picture("nothing to see"))])


def numbers(html: str) -> set[float]:
    """All numbers that carry their digits."""
    return {float(value) for value in re.findall(r'<data value="([^"]+)">', html)}


# Numbers.


@pytest.mark.parametrize(
    ("value", "error", "shown"),
    [
        (2.3333475, 0.0032282, "2.3333 ± 0.0032"),
        (-0.53225, 0.00652, "−0.5323 ± 0.0065"),
        (-157.4, 0.19, "−157.40 ± 0.19"),
        (1234.5, 99.6, "1234 ± 100"),
        (2.0, 0.000995, "2.0000 ± 0.0010"),
        (2.5, None, "2.5000"),
        (2.5, float("nan"), "2.5000"),
    ],
)
def test_a_measured_number_has_the_digits_that_its_error_leaves(value, error, shown):
    html = measured(value, error)
    assert re.sub("<[^>]+>", "", html) == shown
    assert f'value="{value!r}"' in html


@pytest.mark.parametrize(
    ("paper", "found"),
    [
        ("-0.46 ± 0.01", [("in the paper", -0.46, 0.01)]),
        ("18.71", [("in the paper", 18.71, None)]),
        ("0.99 bits/dim", [("in the paper", 0.99, None)]),
        ("picture (Figure 2); entropy 2.8313", [("entropy of the data", 2.8313, None)]),
        ("picture (Figure 2); entropy ln 32 = 3.4657", [("entropy of the data", 3.4657, None)]),
        ("picture (Figure 2)", []),
        ("–", []),
        ("", []),
    ],
)
def test_the_papers_numbers_are_found_in_its_words(paper, found):
    assert [bar[:3] for bar in references(paper)] == found


def test_results_are_those_of_the_file(tmp_path):
    run = make_run(tmp_path / "run", "table/power", weights=False)
    results = write_results(run)
    html = text_of(run)
    shown = ("test_nll", "test_nll_stderr", "points", "nfe", "accepted_steps", "rejected_steps", "parameters")
    assert {results[name] for name in shown} <= numbers(html)
    assert -0.46 in numbers(html)  # the paper's
    (bars,) = figures(html, "bars")
    own, paper = bars["rows"]
    assert (own["value"], own["error"]) == (results["test_nll"], results["test_nll_stderr"])
    assert (paper["value"], paper["error"]) == (-0.46, 0.01)


def test_results_of_images_are_in_bits(tmp_path):
    run = make_run(tmp_path / "run", "image/digits", weights=False)
    bits = {"bits_per_dim": 3.0437, "bits_per_dim_stderr": 0.0288}
    html = text_of(run, None) if write_results(run, **bits) else ""
    assert {3.0437, 0.0288} <= numbers(html)
    assert "bits/dim" in html


def test_results_of_another_kind_are_shown_as_they_are(tmp_path):
    run = make_run(tmp_path / "run", weights=False)
    write_json(run.results, {"mean_distance": 98.3321, "points": 7})
    html = text_of(run)
    assert "mean distance" in html
    assert "98.3321" in html


def test_simpler_densities_stand_beside_the_flow(tmp_path):
    run = make_run(tmp_path / "run", weights=False)
    write_results(run, yardsticks={"Gaussian": {"test_nll": 3.1, "test_nll_stderr": 0.1}})
    (bars,) = figures(text_of(run), "bars")
    assert [row["name"] for row in bars["rows"]] == ["this run", "Gaussian"]


# The course of a training.


def test_few_steps_are_shown_as_they_are(tmp_path):
    run = make_run(tmp_path / "run", weights=False)
    rows = write_metrics(run, 50)
    loss, nfe, seconds = (json.loads(json.dumps(values)) for values in figures(text_of(run), "chart")[:3])
    steps = [row for row in rows if "loss" in row]
    training, validation = loss["series"]
    np.testing.assert_allclose(training["value"], [row["loss"] for row in steps], rtol=1e-5)
    assert training["step"] == [row["step"] for row in steps]
    assert "low" not in training
    np.testing.assert_allclose(
        validation["value"], [r["validation_loss"] for r in rows if "validation_loss" in r], rtol=1e-5
    )
    assert [one["name"] for one in nfe["series"]] == ["training", "its gradient", "validation"]
    np.testing.assert_allclose(seconds["series"][0]["value"], [row["seconds"] for row in steps])


def test_many_steps_are_shown_by_means_and_ranges():
    rng, bins = np.random.default_rng(0), Bins(most=100)
    values = rng.normal(size=3000)
    for step, value in enumerate(values, 1):
        bins.add(step, 0.5 * step, {"loss": value})
    curve, width = bins.curve("loss"), bins.width
    assert curve is not None
    assert 50 <= len(curve.step) <= 100
    parts = [values[i : i + width] for i in range(0, 3000, width)]
    np.testing.assert_allclose(curve.mean, [part.mean() for part in parts])
    np.testing.assert_allclose(curve.low, [part.min() for part in parts])
    np.testing.assert_allclose(curve.high, [part.max() for part in parts])
    assert curve.step[-1] == 3000
    assert curve.seconds == [0.5 * step for step in curve.step]


def test_metrics_are_read_on_from_where_they_ended(tmp_path):
    run = make_run(tmp_path / "run", weights=False)
    write_metrics(run, 20)
    history = History(run.metrics).update()
    assert (history.step, history.validations, history.best) == (20, 2, 2.01 + 1 / 20)
    with run.metrics.open("a") as file:
        file.write('damaged\n{"step": 21, "loss": 1.5, "seconds": 9.0}\n{"step": 22, "lo')
    assert history.update().step == 21
    with run.metrics.open("a") as file:
        file.write('ss": 1.25, "seconds": 9.5}\n')
    assert history.update().step == 22
    curve = history.bins.curve("training")
    assert curve is not None
    assert curve.mean[-2:] == [1.5, 1.25]
    assert history.seconds == 9.5


def test_failures_and_rollbacks_are_told(tmp_path):
    run = make_run(tmp_path / "run", weights=False)
    failed = {"loss": None, "sound": False, "outcome": 1, "seconds": 1.0}
    append_metrics(run, [{"step": step, **failed} for step in (1, 2)])
    append_metrics(run, [{"step": 3, "loss": None, "sound": False, "outcome": 0, "seconds": 1.0}])
    append_metrics(run, [{"step": 3, "event": "rollback", "reason": "the solve <gave up>", "rate_scale": 0.33}])
    append_metrics(run, [{"step": 4, "validation_loss": None, "seconds": 2.0}])
    append_metrics(run, [{"step": 5, "event": "gave up", "reason": "again", "rate_scale": 0.1}])
    history = History(run.metrics).update()
    assert (history.unsound, history.unsolved, history.best) == (3, 1, None)
    html = text_of(run)
    assert "gave up at step 5" in html
    assert "step limit" in html
    assert "the solve &lt;gave up&gt;" in html


def test_losses_of_flow_matching_are_a_chart_of_their_own(tmp_path):
    experiment = make_run(tmp_path / "first", weights=False).experiment
    train = type(experiment.train)(warm_start=3, steps=6)
    run = make_run(tmp_path / "run", weights=False, train=train)
    write_metrics(run, 6, validate_every=3)
    charts = "".join(charts_of_run(read_facts(run, "RUN")))
    (training, _), (matching,) = (values["series"] for values in figures(charts, "chart")[:2])
    assert (training["step"], matching["step"]) == ([4, 5, 6], [1, 2, 3])


# The flow in motion.


def test_the_density_at_the_end_is_that_of_the_flow(moons, moons_picture):
    (values,) = figures(moons_picture, "plane")
    cells = unpacked(values["cells"])
    assert cells.shape == (len(values["times"]), CELLS[2], CELLS[2])
    extent = Extent(np.array(values["low"]), np.array(values["high"]))
    flow = moons.flow()
    p = np.exp(np.asarray(flow.log_prob(grid_points(extent, CELLS[2])))).reshape(CELLS[2], CELLS[2])
    shown, peak = cells[-1] / 255, values["peak"][-1]
    np.testing.assert_allclose(peak, p.max(), rtol=1e-4)
    np.testing.assert_allclose(shown * np.sqrt(peak), np.sqrt(p), atol=0.51 / 255 * np.sqrt(peak))


def test_the_density_at_the_start_is_that_of_the_base(moons_picture):
    (values,) = figures(moons_picture, "plane")
    extent = Extent(np.array(values["low"]), np.array(values["high"]))
    z = grid_points(extent, CELLS[2])
    base = np.exp(-0.5 * np.sum(z**2, axis=1)) / (2 * np.pi)
    shown = values["peak"][0] * (unpacked(values["cells"])[0].ravel() / 255.0) ** 2
    np.testing.assert_allclose(np.sqrt(shown), np.sqrt(base), atol=0.51 / 255 * np.sqrt(base.max()) + 1e-4)


def test_samples_move_along_the_arrows(moons, moons_picture):
    (values,) = figures(moons_picture, "plane")
    samples, arrows = unpacked(values["samples"]), unpacked(values["arrows"])
    times = np.array(values["times"])
    assert samples.shape[0] == arrows.shape[0] == len(times)
    flow = for_pictures(moons.flow())
    whole = np.asarray(flow.bijection.forward(jax.numpy.asarray(samples[0])).value)
    np.testing.assert_allclose(samples[-1], whole, atol=2e-3)
    extent = Extent(np.array(values["low"]), np.array(values["high"]))
    grid, k = grid_points(extent, round(np.sqrt(arrows.shape[1]))), len(times) // 2
    velocity = (samples[k + 1] - samples[k - 1]) / (times[k + 1] - times[k - 1])
    nearest = np.argmin(np.sum((samples[k][:, None] - grid) ** 2, axis=2), axis=1)
    near = np.linalg.norm(samples[k] - grid[nearest], axis=1) < 0.15
    assert near.sum() > 5
    np.testing.assert_allclose(velocity[near], arrows[k][nearest[near]], atol=0.25)


def test_quantised_densities_are_off_by_half_a_level():
    p = np.random.default_rng(0).exponential(size=(20, 20))
    cells, peak = quantized(p)
    assert np.abs(np.sqrt(p / peak) - cells / 255).max() <= 0.5 / 255 + 1e-12
    assert quantized(np.zeros((2, 2)))[0].max() == 0


def test_a_table_of_one_column_is_shown_in_its_own_units(tmp_path):
    rows = 100 + 5 * np.random.default_rng(0).normal(size=(200, 1))
    np.savetxt(tmp_path / "table.csv", rows, header="price", comments="")
    digest = hashlib.sha256((tmp_path / "table.csv").read_bytes()).hexdigest()
    run = make_run(tmp_path / "run", **of_file(tmp_path / "table.csv", digest, ("price",)))
    html = picture(run, seed=0)
    (values,) = figures(html, "line")
    width = values["high"][0] - values["low"][0]
    density = unpacked(values["cells"])
    np.testing.assert_allclose(density.sum(axis=1) * width / density.shape[1], 1, atol=0.02)
    assert values["low"][0] < 90
    assert values["high"][0] > 110
    np.testing.assert_allclose(unpacked(values["histogram"]).sum() * width / 80, 1, atol=0.05)
    assert "Across: price." in html


def test_a_table_is_shown_two_columns_at_a_time_given_its_conditions(tmp_path, unchecked):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 4)) + np.array([0, 10, 100, 1000])
    np.savetxt(tmp_path / "table.csv", rows, header="a,b,c,hour", comments="", delimiter=",")
    digest = hashlib.sha256((tmp_path / "table.csv").read_bytes()).hexdigest()
    run = make_run(tmp_path / "run", **of_file(tmp_path / "table.csv", digest, ("a", "b", "c"), ("hour",)))
    html = picture(run, seed=0)
    (values,) = figures(html, "pairs")
    assert values["names"] == ["a", "b", "c"]
    data, samples = unpacked(values["data"]), unpacked(values["samples"])
    assert (data.shape, samples.shape) == ((20, 3), (1000, 3))
    for row in data:
        assert np.min(np.abs(rows[:, :3] - row).sum(axis=1)) < 1e-3
    assert "conditions" in html
    (tmp_path / "table.csv").unlink()
    assert "cannot be drawn" in picture(run, seed=0)


def test_samples_are_shown_where_the_data_are_not(tmp_path, monkeypatch):
    monkeypatch.setenv("FFJORD_DATA", str(tmp_path / "nothing"))
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda *_: str(tmp_path / "nothing"))
    run = make_run(tmp_path / "run", "table/power")
    html = picture(run, seed=0)
    (values,) = figures(html, "pairs")
    assert "data" not in values
    assert len(values["names"]) == 5
    assert "the data are not here" in html


def test_images_are_the_flows_own(tmp_path):
    run = make_run(tmp_path / "run", "image/digits", model=small_images())
    (values,) = figures(picture(run, seed=0), "images")
    samples, data = unpacked(values["samples"]), unpacked(values["data"])
    assert samples.shape[1:] == data.shape == (IMAGES, 8, 8, 1)
    last = images_at(for_pictures(run.flow()), IMAGES, key=jax.random.key(0))
    np.testing.assert_array_equal(samples[-1], in_levels(last, 17))
    np.testing.assert_array_equal(data, in_levels(run.source().test(IMAGES), 17))


def small_images():
    from ffjord.experiments import ModelConfig

    return ModelConfig(dynamics="conv", hidden=(4,), layer="concat", nonlinearity="softplus", end_time=1.0)


def test_arrays_come_back():
    for array, kind in ((np.arange(6, dtype=np.uint8).reshape(2, 3), "u1"), (np.linspace(0, 1, 5), "f4")):
        np.testing.assert_array_equal(
            unpacked(packed(array, kind)), array.astype({"u1": np.uint8, "f4": np.float32}[kind])
        )


# The page as a whole.


def test_the_page_needs_nothing_else(moons, moons_picture):
    write_metrics(moons, 30)
    html = text_of(moons, moons_picture)
    assert "http" not in html.replace("http-equiv", "")
    assert not re.search(r"@import|url\(|<link|<img|src=", html)
    assert "default-src 'none'" in html
    assert len(html) < 3_000_000
    assert "$" not in re.sub(r"<(script|style).*?</\1>", "", html, flags=re.DOTALL)  # no part of a template is left


def test_dark_colours_are_those_of_the_pictures():
    dark = asset("style.css").split("prefers-color-scheme: dark")[1]
    for name, colour in {
        "page": PAGE,
        "panel": PANEL,
        "ink": INK,
        "muted": MUTED,
        "data": DATA,
        "model": MODEL,
    }.items():
        assert f"--{name}: {colour};" in dark
    stops = re.search(r"--glow: (.*?);", dark)[1].split(", ")
    found = [[int(stop[i : i + 2], 16) for i in (1, 3, 5)] for stop in stops]
    wanted = np.round(255 * GLOW(np.linspace(0, 1, len(stops)))[:, :3])
    np.testing.assert_allclose(found, wanted, atol=2)


def test_words_of_others_cannot_become_html(tmp_path):
    run = make_run(tmp_path / "run", weights=False, summary="<script>alert(1)</script>", paper="<b>")
    write_json(run.path / "check.json", CHECKS)
    yardsticks = {"</script><b>": {"test_nll": 3.1, "test_nll_stderr": 0.1}}
    write_results(run, divergence="<b>", method="<b>", yardsticks=yardsticks)
    html = text_of(run, label='<img src="x">')
    assert "alert(1)</script>" not in html
    assert "<img" not in html
    assert "<b>" not in html
    assert figures(html, "bars")[0]["rows"][1]["name"] == "</script><b>"


def test_verdicts_of_an_earlier_check_are_shown(tmp_path):
    run = make_run(tmp_path / "run", weights=False)
    assert "no weights to check" in text_of(run)
    write_json(run.path / "check.json", CHECKS)
    html = text_of(run)
    assert '<span class="pill good">pass</span>' in html
    assert "a &lt; b" in html
    assert html.count('<span class="pill open">warn</span>') == 2  # of the check, and of all


def test_what_is_old_or_damaged_is_told(tmp_path):
    run = make_run(tmp_path / "run", weights=False)
    write_results(run)
    run.weights.touch()
    hour_ago = time.time() - 3600
    os.utime(run.results, (hour_ago, hour_ago))
    (run.path / "check.json").write_text("{")
    html = text_of(run)
    assert "results.json is older than the weights" in html
    assert "check.json cannot be read" in html


def test_several_runs_are_compared_first(tmp_path):
    runs = [make_run(tmp_path / name, weights=False) for name in ("a", "b")]
    for i, run in enumerate(runs):
        write_metrics(run, 20 + 10 * i)
        write_results(run, test_nll=2.0 + i)
    out = tmp_path / "out.html"
    assert main(["report", *(str(run.path) for run in runs), "--out", str(out), "--no-pictures"]) == 0
    html = out.read_text()
    table = html[html.index('class="runs"') : html.index('<article id="run-1"')]
    assert {2.0, 3.0} <= numbers(table)
    charts = figures(table, "chart")
    assert [one["name"] for one in charts[0]["series"]] == ["a", "b"]
    assert [one["step"][-1] for one in charts[0]["series"]] == [20, 30]
    assert html.count("<article") == 2
    assert "cannot be compared" not in html


def test_runs_on_other_data_are_not_compared_in_silence(tmp_path):
    runs = [make_run(tmp_path / name.replace("/", "-"), name, weights=False) for name in ("toy/moons", "toy/rings")]
    out = tmp_path / "out.html"
    assert main(["report", *(str(run.path) for run in runs), "--out", str(out)]) == 0
    assert "their likelihoods cannot be compared" in out.read_text()


# The command.


def test_a_run_without_weights_has_a_page_that_says_so(tmp_path, capsys):
    run, out = make_run(tmp_path / "run", weights=False), tmp_path / "out.html"
    assert main(["report", str(run.path), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    html = out.read_text()
    assert "not trained yet" in html
    assert "no weights yet" in html


def test_bad_input_is_refused(tmp_path, capsys):
    run, out = str(make_run(tmp_path / "run", weights=False).path), tmp_path / "out.html"
    assert "is not a run directory" in fails(capsys, "report", str(tmp_path), "--out", str(out))
    assert "name a run" in fails(capsys, "report", "--out", str(out))
    assert "must end in .html" in fails(capsys, "report", run, "--out", str(tmp_path / "out.png"))
    assert "there is no directory" in fails(capsys, "report", run, "--out", str(tmp_path / "no" / "out.html"))
    assert "--seed" in fails(capsys, "report", run, "--out", str(out), "--seed", str(2**64))
    assert not out.exists()
    out.write_text("mine")
    assert "exists" in fails(capsys, "report", run, "--out", str(out))
    assert out.read_text() == "mine"
    assert main(["report", run, "--out", str(out), "--overwrite"]) == 0
    assert out.read_text().startswith("<!doctype html>")


def test_checks_are_made_if_asked_for(tmp_path, monkeypatch):
    run, out = make_run(tmp_path / "run", weights=False), tmp_path / "out.html"
    monkeypatch.setattr("ffjord.cli.check.check", lambda run, points, seed: (CHECKS | {"seed": seed}, None))
    assert main(["report", str(run.path), "--out", str(out), "--checks", "--seed", "7"]) == 0
    html = out.read_text()
    assert "It overfits." in html
    assert "seed 7" in html


def test_a_run_that_cannot_be_checked_has_a_page(tmp_path, capsys):
    run, out = make_run(tmp_path / "run", weights=False), tmp_path / "out.html"
    assert main(["report", str(run.path), "--out", str(out), "--checks"]) == 0
    assert "not checked: " in capsys.readouterr().out
    assert "no weights to check" in out.read_text()


# While training.


def test_a_training_keeps_its_page(tmp_path, capsys):
    path = tmp_path / "run"
    assert main(["train", "toy/moons", "--out", str(path), "--report", *TINY]) == 0
    assert str(path / "report.html") in capsys.readouterr().out
    html = (path / "report.html").read_text()
    assert figures(html, "plane")
    assert "finished: 8 steps" in html
    (path / "report.html").write_text("mine")
    assert "is no page of a run" in fails(capsys, "resume", str(path), "--report")
    assert (path / "report.html").read_text() == "mine"
    (path / "report.html").unlink()
    assert main(["resume", str(path), "--report"]) == 0
    assert figures((path / "report.html").read_text(), "plane")


def test_the_page_follows_a_training_now_and_then(tmp_path, monkeypatch):
    run, clock = make_run(tmp_path / "run", weights=False), [1000.0]
    monkeypatch.setattr("ffjord.report.page.live.time.monotonic", lambda: clock[0])
    with run.locked():
        live = LivePage(run, run.experiment, warn=print)
        for step, later in ((1, 0), (2, 1), (3, 61)):
            clock[0] += later
            rows = [{"step": step, "loss": 2.0, "nfe": 14.0, "seconds": 0.5}]
            append_metrics(run, rows)
            live(rows[0])
            html = run.page.read_text()
            assert f"in training: step {1 if step < 3 else 3} of" in html
        assert live.history.step == 3  # lines are read once
        assert 'http-equiv="refresh"' in html
        assert "drawn when its training has ended" in html


def test_the_page_tells_how_a_training_ended(tmp_path):
    run = make_run(tmp_path / "run", weights=False)
    write_metrics(run, 20)
    with pytest.raises(KeyboardInterrupt), following(run, run.experiment, print):
        raise KeyboardInterrupt
    html = run.page.read_text()
    assert "stopped at step 20 of" in html
    assert 'http-equiv="refresh"' not in html


def test_a_page_that_cannot_be_written_does_not_end_a_training(tmp_path, monkeypatch):
    run, told = make_run(tmp_path / "run", weights=False), []
    monkeypatch.setattr("ffjord.report.page.live.write_page", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    live = LivePage(run, run.experiment, warn=told.append)
    live.write()
    live.write()
    assert told == [f"{run.page} cannot be written (full); training goes on."]
