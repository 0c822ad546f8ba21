"""The command starts again with large pages, once, where the system offers them and nobody has chosen."""

import os
import subprocess
import sys

import pytest

from ffjord.cli import large_pages

MADVISE = "always [madvise] never\n"


@pytest.fixture
def started(monkeypatch, tmp_path):
    """What a process would be started with again, given the kernel's modes and the C library; None if it goes on."""

    def started(modes: str | None = MADVISE, library: str = "glibc 2.36", chosen: str | None = None):
        found = []
        if modes is not None:
            (tmp_path / "enabled").write_text(modes)
        monkeypatch.setattr(large_pages, "_MODES", tmp_path / ("none" if modes is None else "enabled"))
        monkeypatch.setattr(os, "confstr", lambda name: library)
        monkeypatch.setattr(os, "execve", lambda *args: found.append(args))
        monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "ffjord", "list"])
        monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
        if chosen is not None:
            monkeypatch.setenv("GLIBC_TUNABLES", chosen)
        large_pages.restart()
        return found[0] if found else None

    return started


def test_the_same_words_and_one_variable_more(started):
    program, words, environment = started()
    assert program == sys.executable
    assert words == [sys.executable, "-m", "ffjord", "list"]
    assert environment == os.environ | {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    assert started(library="glibc 3.1") is not None


@pytest.mark.parametrize(
    "system",
    [
        {"modes": "[always] madvise never\n"},
        {"modes": "always madvise [never]\n"},
        {"modes": None},
        {"library": "glibc 2.34"},
        {"library": ""},
        {"chosen": ""},
        {"chosen": "glibc.malloc.hugetlb=1"},
    ],
    ids=str,
)
def test_otherwise_it_goes_on(started, system):
    assert started(**system) is None


@pytest.mark.skipif(not large_pages._are_offered(), reason="no large pages to ask for")
@pytest.mark.parametrize("chosen", [None, "glibc.malloc.check=0"])
def test_a_process_has_them_and_its_exit_code(chosen):
    environment = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
    code = (
        "import os, sys; import ffjord.cli as cli; "
        "cli._run = lambda name, rest: print(name, *rest, os.environ['GLIBC_TUNABLES']) or 3; sys.exit(cli.main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "list", "--long"],
        env=environment | ({} if chosen is None else {"GLIBC_TUNABLES": chosen}),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 3, done.stderr
    assert done.stdout == f"list --long {chosen or 'glibc.malloc.hugetlb=1'}\n"
