"""HTML in small pieces. What is called text is escaped; what is called html is taken as it is."""

import base64
import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np

_CODE = re.compile("`([^`]+)`")
_TYPES = {"u1": np.uint8, "f4": np.float32}


def section(name: str, title: str, html: str, *, attributes: str = "") -> str:
    """A part of a run's page."""
    return f'<section class="part {name}"{attributes}>\n<h3>{escape(title)}</h3>\n{html}\n</section>\n'


def notice(text: str, kind: str = "quiet") -> str:
    """A line that says why there is nothing to see, or what to heed; what is in `backticks` is code."""
    html = _CODE.sub(r"<code>\1</code>", escape(text))
    return f'<p class="notice {kind}">{html}</p>\n'


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """Two columns: what, and html of how much."""
    lines = (f"<div><dt>{escape(name)}</dt><dd>{html}</dd></div>\n" for name, html in rows)
    return f'<dl class="facts">\n{"".join(lines)}</dl>\n'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, kind: str = "", numbers: Iterable[int] = ()) -> str:
    """A table of html cells; on a phone, every row becomes a card, whose lines have the names of the columns.

    `numbers` are the columns that are set flush right.
    """
    right = set(numbers)
    mark = lambda column: ' class="number"' if column in right else ""
    names = "".join(f'<th scope="col"{mark(j)}>{escape(name)}</th>' for j, name in enumerate(head))
    lines = []
    for row in rows:
        cells = (f'<td{mark(j)} data-label="{escape(head[j])}"><span>{html}</span></td>' for j, html in enumerate(row))
        lines.append(f"<tr>{''.join(cells)}</tr>\n")
    return f'<table class="{kind}">\n<thead><tr>{names}</tr></thead>\n<tbody>\n{"".join(lines)}</tbody>\n</table>\n'


def figure(kind: str, values: dict[str, Any], html: str, caption: str = "") -> str:
    """A figure that the page's program draws from values; `html` is where, `caption` a text below it."""
    told = f"<figcaption>{escape(caption)}</figcaption>\n" if caption else ""
    stored = f'<script type="application/json">{_json(values)}</script>\n'
    return f'<figure class="{kind}" data-kind="{kind}">\n{html}\n{told}{stored}</figure>\n'


def packed(array: np.ndarray, kind: str) -> dict[str, Any]:
    """An array for the page's program: bytes ("u1") or 32-bit numbers ("f4"), little-endian, in base64."""
    values = np.ascontiguousarray(array, dtype=np.dtype(_TYPES[kind]).newbyteorder("<"))
    return {"type": kind, "shape": list(values.shape), "bytes": base64.b64encode(values.tobytes()).decode()}


def unpacked(values: dict[str, Any]) -> np.ndarray:
    """The inverse of `packed`."""
    kind = np.dtype(_TYPES[values["type"]]).newbyteorder("<")
    return np.frombuffer(base64.b64decode(values["bytes"]), kind).reshape(values["shape"])


def rounded(values: Iterable[float | int], digits: int = 6) -> list[float]:
    """Numbers with as many digits as a picture needs."""
    return [float(f"{value:.{digits}g}") for value in values]


def _json(values: dict[str, Any]) -> str:
    """JSON that cannot end the element it stands in."""
    return json.dumps(values, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
