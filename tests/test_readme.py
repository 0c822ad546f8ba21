"""Every Python snippet of the documentation runs, the README's commands too; all other commands are at least known."""

import contextlib
import functools
import importlib.util
import io
import re
import shlex
from pathlib import Path

import pytest
import tyro

from ffjord.cli import COMMANDS, main
from ffjord.reproduce import STUDIES

ROOT = Path(__file__).parent.parent
README, CONTRIBUTING = ROOT / "README.md", ROOT / "CONTRIBUTING.md"
PAGES = [README, CONTRIBUTING, *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "results").rglob("*.md"))]
SHORT_TRAINING = (
    "--hidden 8 8 --method midpoint --num-steps 3 --steps 4 --validate-every 2 --steps-per-call 2 --num-validation 64 "
    "--num-test 100"
).split()
_FENCED = r"```(?:{language})\n(.*?)```"


def snippets(language: str, page: Path = README) -> list[str]:
    return re.findall(_FENCED.format(language=language), page.read_text(), re.DOTALL)


def in_line(page: Path) -> list[str]:
    """What stands between single backticks in the text."""
    text = re.sub(_FENCED.format(language=r"\w*"), "", page.read_text(), flags=re.DOTALL)
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", text)]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def run(code: str, where: str, names: dict) -> None:
    """As it stands, except that the estimator trains for a few steps only."""
    code = re.sub(r"(FFJORD\([^)]*random_state=0)\)", r"\1, steps=4, hidden=(8, 8))", code)
    exec(compile(code, where, "exec"), names)


@pytest.mark.parametrize("number", range(len(snippets("python"))))
def test_python_snippet(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(snippets("python")[number], f"README snippet {number + 1}", {})


@pytest.mark.parametrize("page", [page for page in PAGES[1:] if snippets("python", page)], ids=name)
def test_python_snippets_of_a_page(page, tmp_path, monkeypatch):
    """One after another, as a reader would: each has the names of those before."""
    monkeypatch.chdir(tmp_path)
    names = {}
    for number, code in enumerate(snippets("python", page)):
        run(code, f"{page.name} snippet {number + 1}", names)


def test_command_line_snippets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
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


class Parsed(Exception):
    """A command's arguments were understood."""


@pytest.fixture
def parse(monkeypatch):
    """Has a command read its arguments, and no more."""
    cli = tyro.cli

    def read_and_stop(*args, **kwargs):
        cli(*args, **kwargs)
        raise Parsed

    def parse(words: list[str]) -> None:
        monkeypatch.setattr(tyro, "cli", read_and_stop)
        given = words[:1] + words[2:] if words[0] == "resume" else words  # which opens its run first
        with pytest.raises(Parsed):
            main(given)

    return parse


@pytest.mark.parametrize("page", [page for page in PAGES if "ffjord " in page.read_text()], ids=name)
def test_commands_of_a_page_are_understood(page, parse):
    for line in "".join(snippets("sh|text", page)).splitlines():
        words = shlex.split(line.removeprefix("srun "), comments=True)
        if words == ["ffjord", "reproduce", "--list"]:
            assert main(words[1:]) == 0
        elif words[:1] == ["ffjord"]:
            parse(words[1:])


@functools.cache
def options(*command: str) -> set[str]:
    """All options of a command, as its help has them."""
    with contextlib.redirect_stdout(io.StringIO()) as text, pytest.raises(SystemExit):
        main([*command, "--help"])
    return set(re.findall(r"--[a-z-]+", text.getvalue()))


def known_options(words: list[str], every: set[str]) -> set[str]:
    """Those of the command that words begin with; all of them where they begin with an option."""
    match words:
        case ["ffjord", "reproduce", study, *_] if study in STUDIES:
            return options("reproduce", study)
        case ["ffjord", command, *_] if command in COMMANDS:
            return options(command)
        case [option, *_] if re.fullmatch(r"--[a-z-]+", option):
            return every
        case _:
            return set(words)


def test_options_that_pages_speak_of_exist():
    every = set().union(*map(options, COMMANDS))
    every = every.union(*(options("reproduce", study) for study in STUDIES))
    assert {"--hidden", "--within", "--given", "--quick"} <= every
    for page in PAGES:
        for words in map(str.split, in_line(page)):
            unknown = {word for word in words if word.startswith("--")} - known_options(words, every)
            assert not unknown, (page, words)


def test_tables_are_those_of_the_results():
    """`python scripts/readme.py` would change nothing."""
    spec = importlib.util.spec_from_file_location("readme_tables", ROOT / "scripts" / "readme.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.filled(README.read_text()) == README.read_text(), "run python scripts/readme.py"


def test_map_of_the_code():
    """Every module and package is on the map, and nothing that is not there."""
    rows = README.read_text().split("## Map of the code")[1].split("\n## ")[0].splitlines()
    told = {
        file.strip("/") for row in rows if row.startswith("| `") for file in re.findall(r"`([^`]+)`", row.split("|")[1])
    }
    there = {path.name for path in (ROOT / "src" / "ffjord").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert told <= there
    assert not there - told - {"__init__.py", "__main__.py", "_version.py", "__pycache__"}
