"""The page's own files: templates, style and program, all of which are put into the page."""

from importlib import resources
from string import Template

_SCRIPTS = ("base", "chart", "bars", "player", "plane", "line", "images", "pairs", "main")


def asset(name: str) -> str:
    """The text of a file."""
    return (resources.files("ffjord.report.page") / "assets" / name).read_text(encoding="utf-8")


def filled(template: str, /, **parts: str) -> str:
    """A template with its parts, which are html."""
    return Template(asset(template)).substitute(parts)


def script() -> str:
    """The page's program, in a scope of its own."""
    parts = "\n".join(asset(f"{name}.js") for name in _SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}}})();\n'
