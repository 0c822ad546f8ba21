"""Every snippet of the README runs, and of the pages on images and autoencoders."""

import re
import shlex
from pathlib import Path

import pytest

from ffjord.cli import main

ROOT = Path(__file__).parent.parent
README, PAGES = ROOT / "README.md", ("images", "vae")
SHORT_TRAINING = (
    "--hidden 8 8 --method midpoint --num-steps 3 --steps 4 --validate-every 2 --steps-per-call 2 --num-validation 64 "
    "--num-test 100"
).split()


def snippets(language: str, page: Path = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


@pytest.mark.parametrize("number", range(len(snippets("python"))))
def test_python_snippet(number, tmp_path, monkeypatch):
    """As it stands, except that the estimator trains for a few steps only."""
    monkeypatch.chdir(tmp_path)
    code = snippets("python")[number].replace(
        "FFJORD(random_state=0)", "FFJORD(random_state=0, steps=4, hidden=(8, 8))"
    )
    exec(compile(code, f"README snippet {number + 1}", "exec"), {})


@pytest.mark.parametrize("page", PAGES)
def test_python_snippets_of_a_page(page):
    found = snippets("python", ROOT / "docs" / f"{page}.md")
    assert found
    for number, code in enumerate(found):
        exec(compile(code, f"{page} snippet {number + 1}", "exec"), {})


def test_command_line_snippets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FFJORD_CACHE", "off")
    lines = [line for block in snippets("sh") for line in block.splitlines() if line.startswith("ffjord ")]
    assert len(lines) >= 6
    for line in lines:
        words = shlex.split(line)[1:]
        if words[0] == "train":
            words += SHORT_TRAINING
        if words[0] == "fit":
            words += ["--hidden", "8", "8", "--steps", "4", "--validate-every", "2"]
        if words[0] == "check":
            words += ["--points", "64"]
        if words[0] == "plot":
            words += ["--frames", "2"]
        assert main(words) == 0, line


def test_the_files_that_the_readme_shows_are_there():
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text()):
        assert (README.parent / target).exists(), target
