"""The page of all studies: findings beside the paper's, and their figures, in one file."""

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from ffjord.report.page.build import whole
from ffjord.report.page.markup import facts, notice, section


class Told(NamedTuple):
    """What there is to tell of a study."""

    name: str
    about: str
    found: str = ""
    paper: str = ""
    figures: Sequence[Path] = ()
    """Files, .png."""
    minutes: float = 0.0
    failed: str = ""
    """Why it was not made."""


def studies_page(title: str, made: str, studies: Sequence[Told]) -> str:
    """The page; `made` is a sentence about all of them."""
    links = " · ".join(f'<a href="#{escape(one.name)}">{escape(one.name)}</a>' for one in studies)
    head = f"<h1>{escape(title)}</h1>\n{notice(made)}<p>{links}</p>\n"
    return whole(title, head + "".join(map(_study, studies)))


def _study(one: Told) -> str:
    html = notice(one.about)
    if one.failed:
        return section("study", one.name, html + notice(one.failed, "open"), attributes=f' id="{escape(one.name)}"')
    rows = [("found", one.found), ("the paper", one.paper), ("made in", f"{one.minutes:g} minutes")]
    html += facts((name, escape(text)) for name, text in rows if text) + "".join(map(_picture, one.figures))
    return section("study", one.name, html, attributes=f' id="{escape(one.name)}"')


def _picture(path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<figure><img src="data:image/png;base64,{data}" alt="{escape(path.stem)}"></figure>\n'
