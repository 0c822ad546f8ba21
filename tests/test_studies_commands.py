"""What all studies share: findings that are kept, pages, lines in panels, the one page of all, and the commands."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ffjord.cli import main
from ffjord.cli.studies import as_said
from ffjord.errors import InputError
from ffjord.report.lines import Line, Plot, draw_plots
from ffjord.reproduce import STUDIES, tolerance
from ffjord.reproduce.everything import everything
from ffjord.reproduce.kept import Kept
from ffjord.reproduce.pages import FOUND, PAPER, Page, check_place, sentence, write_csv


def test_what_was_found_is_kept_with_its_settings(tmp_path):
    calls = []
    find_it = lambda: calls.append(1) or [{"a": 1.5}]
    assert Kept(tmp_path / "x", points=3, pair=(1, 2))("one", find_it) == [{"a": 1.5}]
    again = Kept(tmp_path / "x", points=3, pair=(1, 2))
    assert again("one", find_it) == [{"a": 1.5}]
    assert len(calls) == 1
    with pytest.raises(InputError, match="found with other settings"):
        Kept(tmp_path / "x", points=4, pair=(1, 2))
    (tmp_path / "x" / "found.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        Kept(tmp_path / "x", points=3)


PAGE = Page(
    "tolerance", "A title", "x " * 100 + "end.", "the same.", {"a.png": "a line"}, ("a.csv",), quick=True, seed=3
)


def test_the_page_tells_finding_and_paper_and_both_are_found_again(tmp_path):
    PAGE.write(tmp_path)
    text = (tmp_path / "README.md").read_text()
    assert "`ffjord reproduce tolerance --quick`" in text
    assert "seed 3" in text
    assert "![a line](a.png)" in text
    assert sentence(text, FOUND) == PAGE.finding
    assert sentence(text, PAPER) == "the same."
    assert max(map(len, text.splitlines())) <= 120


def test_a_page_that_is_not_the_studys_is_not_overwritten(tmp_path):
    check_place(tmp_path, "tolerance", quick=True)
    PAGE.write(tmp_path)
    check_place(tmp_path, "tolerance", quick=True)
    check_place(tmp_path, "tolerance", quick=False)
    with pytest.raises(InputError, match="not of `figure1`"):
        check_place(tmp_path, "figure1", quick=True)
    (tmp_path / "README.md").write_text("Made by `ffjord reproduce tolerance` here.")
    with pytest.raises(InputError, match="full version"):
        check_place(tmp_path, "tolerance", quick=True)


def test_numbers_come_back_from_a_file(tmp_path):
    write_csv(tmp_path / "a.csv", [{"x": 1 / 3, "name": "a, b"}, {"x": 1e-12, "name": ""}])
    assert (tmp_path / "a.csv").read_text().splitlines() == ["x,name", '0.333333333,"a, b"', "1e-12,"]


def test_lines_are_drawn_with_their_names_once(tmp_path):
    line = Line("one", [1, 2, 3], [1.0, float("nan"), 3.0])
    picture = draw_plots([Plot("a", "x", "y", [line, Line("", [1], [2])]), Plot("b", "x", "y", [line], y_log=True)])
    assert [axes.get_title(loc="left") for axes in picture.axes] == ["a", "b"]
    assert [text.get_text() for text in picture.texts] == ["● one"]
    np.testing.assert_array_equal(picture.axes[0].lines[0].get_xdata(), [1, 3])
    with pytest.raises(ValueError, match="nothing to draw"):
        draw_plots([])


def test_a_page_tells_the_runs_of_its_command():
    words = as_said([Path("pretrained/digits"), Path("runs/a")], Path("/my/data"))
    assert words == "--run pretrained/digits runs/a --data-dir DIR"
    assert as_said([], None) == ""


def make(name, words):
    """A study that leaves a page."""
    out = Path(words[words.index("--out") + 1])
    out.mkdir(parents=True)
    Page(name, name, f"found by {name}.", "said.", {"p.png": "p"}, ("d.csv",), quick="--quick" in words).write(out)
    (out / "p.png").write_bytes(b"png")
    return 0


def test_all_studies_are_made_once_and_told_on_one_page(tmp_path):
    told, made = [], []

    def once(name, words):
        made.append((name, tuple(words)))
        if name == "samples" and len(made) < 4:
            raise InputError("no images.")
        return make(name, words)

    choice = {"quick": True, "make": once, "tell": told.append}
    assert everything(tmp_path, ["figure1", "samples", "tolerance"], **choice) == 1
    page = (tmp_path / "README.md").read_text()
    assert "found by figure1." in page
    assert "![tolerance](tolerance/p.png)" in page
    assert "Failed: no images." in page
    assert "`ffjord reproduce all --quick`" in page
    html = (tmp_path / "index.html").read_text()
    assert "found by figure1." in html
    assert html.count("data:image/png;base64,cG5n") == 2
    assert "Failed: no images." in html
    assert "http" not in re.sub("http-equiv", "", html)
    assert everything(tmp_path, ["figure1", "samples", "tolerance"], **choice) == 0
    assert [name for name, _ in made] == ["figure1", "samples", "tolerance", "samples"]
    assert "Failed" not in (tmp_path / "README.md").read_text()
    assert "1 of 3: figure1 is there" in told
    assert made[0][1] == ("--out", str(tmp_path / "figure1"), "--quick")


# The commands.


def test_studies_are_listed_and_explained_without_jax():
    probe = """
import contextlib, sys
from ffjord.cli import main
from ffjord.reproduce import STUDIES
assert main(["reproduce", "--list"]) == 0
for name in (*STUDIES, "all"):
    with contextlib.suppress(SystemExit):
        main(["reproduce", name, "--help"])
assert "jax" not in sys.modules
"""
    shown = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    for name, study in STUDIES.items():
        assert name in shown
        assert f"ffjord reproduce {name}" in shown
        assert study.place.split()[0] in shown
        assert "?" not in study.quick + study.full


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tolerance", "--points", "3"], "--points must be at least 100; got 3"),
        (["tolerance", "--run", "pretrained/toy-moons"], "is not of a flow on a line, but of toy/moons"),
        (["tolerance", "--run", "nowhere"], "nowhere is not a run directory"),
        (["figure1", "--seed", "-1"], "--seed must not be negative; got -1"),
        (["bottleneck", "--seeds", "0"], "--seeds must be at least 1; got 0"),
        (["bottleneck", "--data-dir", "nowhere"], "mnist"),
        (["nfe-vs-dimension", "--dimensions", "1"], "--dimensions must be at least 2; got 1"),
        (["nfe-vs-dimension", "--series", "vae"], "--series must be of N(0, I)"),
        (
            ["multiscale", "--multi", "pretrained/toy-moons"],
            "--multi pretrained/toy-moons is not of a flow over images",
        ),
        (["noise-variance", "--repeats", "1"], "--repeats must be at least 2; got 1"),
        (["noise-variance", "--run", "nowhere"], "nowhere is not a run directory"),
        (["adjoint-memory", "--steps", "0"], "--steps must be at least 1; got 0"),
        (["samples", "--run", "pretrained/toy-moons"], "is not of a flow over images"),
        (["samples", "--temperature", "0"], "--temperature must be positive; got 0"),
        (["all", "--only", "table9"], "--only must be of figure1"),
    ],
)
def test_bad_words_are_named_before_any_work(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *words]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_study_goes_on_where_it_was_and_keeps_to_its_place(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tolerance, "TOLERANCES", (0.1, 1e-5, 1e-8))
    calls = []

    def mass(flow, value, points, double, steps):
        calls.append(value)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return {"mass": 1 - value, "error": value, "nfe": 8.0}

    monkeypatch.setattr(tolerance, "mass", mass)
    words = ["reproduce", "tolerance", "--quick", "--run", "pretrained/toy-1d", "--out", "out"]
    assert main(words) == 130
    assert main(words) == 0
    assert len(calls) == 10  # nine, and the one that was interrupted again
    page = (tmp_path / "out" / "README.md").read_text()
    assert "tolerance^1.00" in page
    assert (tmp_path / "out" / "tolerance.csv").read_text().count("\n") == 10
    assert main(words) == 0
    assert len(calls) == 10
    assert main(["reproduce", "figure1", "--quick", "--out", "out"]) == 2
    assert "not of `figure1`" in capsys.readouterr().err
