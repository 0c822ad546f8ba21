"""Links of the documentation point to files and headings that are there; every page is in the navigation."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = [ROOT / name for name in ("docs", "results", "benchmarks")]
PAGES = [*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in sorted(folder.rglob("*.md")))]


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def links(page: Path) -> list[str]:
    """Targets of links and pictures that are not on the network."""
    found = re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text()))
    return [target for target in found if not re.match(r"[a-z]+:", target)]


def anchors(page: Path) -> set[str]:
    """The headings as their addresses: small letters, no punctuation, dashes for blanks."""
    headings = re.findall(r"^#+ +(.*)$", without_code(page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_point_to_what_is_there(page):
    for target in links(page):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page}: {target}"
        assert file.is_relative_to(ROOT), f"{page}: {target} is outside of the repository"
        assert not anchor or anchor in anchors(file), f"{page}: {target}, among {sorted(anchors(file))}"


def test_links_are_found():
    assert sum(len(links(page)) for page in PAGES) > 50
    assert "docs/runs.md" in links(ROOT / "README.md")
    assert "many-devices-many-hosts" in anchors(ROOT / "docs" / "runs.md")


def in_navigation(entries: list) -> list[str]:
    """The paths of a navigation, which has pages and groups of them."""
    values = [value for entry in entries for value in entry.values()]
    return [path for value in values for path in ([value] if isinstance(value, str) else in_navigation(value))]


def test_every_page_has_its_line_in_the_navigation():
    entries = in_navigation(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"])
    pages = {str(page.relative_to(ROOT)) for page in (*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"))}
    assert len(entries) == len(set(entries))
    assert pages == set(entries), "a new page of docs/ needs one line in `nav` of zensical.toml"
