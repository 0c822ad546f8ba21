"""Table 1: what each kind of model can do. Imports JAX when it runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ffjord.experiments.config import ModelConfig
from ffjord.reproduce.pages import beside, write_csv

_NETWORK = {"hidden": (17, 17), "nonlinearity": "tanh"}
MODELS = {
    "planar": ModelConfig(kind="planar", flows=2),
    "IAF": ModelConfig(kind="iaf", flows=2, **_NETWORK),
    "MADE": ModelConfig(kind="made", flows=1, **_NETWORK),
    "MAF": ModelConfig(kind="maf", flows=2, **_NETWORK),
    "TAN": ModelConfig(kind="tan", flows=1, hidden=(17,), nonlinearity="tanh", components=3),
    "MAF-DDSF": ModelConfig(kind="maf-ddsf", flows=1, components=4, **_NETWORK),
    "NICE": ModelConfig(kind="nice", flows=2, **_NETWORK),
    "Real NVP": ModelConfig(kind="real-nvp", flows=2, **_NETWORK),
    "Glow": ModelConfig(kind="glow", flows=2, **_NETWORK),
    "planar CNF": ModelConfig(dynamics="planar", hidden=(2,)),
    "FFJORD": ModelConfig(hidden=(17, 17)),
}

PAPER = {
    "planar": (False, True, True, False),
    "MAF": (True, False, True, False),
    "TAN": (True, False, True, False),
    "NICE": (True, True, True, False),
    "Real NVP": (True, True, True, False),
    "Glow": (True, True, True, False),
    "planar CNF": (True, True, True, False),
    "FFJORD": (True, True, True, True),
}
"""What the paper says of them, in the order of the columns; *planar* for its normalizing flows."""

COLUMNS = ("train on data", "one-pass sampling", "exact log-likelihood", "free-form Jacobian")


def study(out: Path, *, quick: bool = False, tell: Callable[[str], None]) -> list[Path]:
    """Tries every model, and writes the table."""
    import jax

    from ffjord.reproduce.abilities import abilities

    found: dict[str, tuple[bool, ...]] = {}
    with jax.enable_x64(True):
        for name, model in MODELS.items():
            found[name] = abilities(model)
            tell(f"{name}: {', '.join(f'{column} {_mark(can)}' for column, can in _columns(found[name]))}")
    out.mkdir(parents=True, exist_ok=True)
    draw(found).savefig(out / "table1.png", dpi=110)
    write_csv(out / "table1.csv", [{"model": name, **dict(_columns(can))} for name, can in found.items()])
    (out / "README.md").write_text(as_markdown(found, quick=quick))
    return [out / name for name in ("README.md", "table1.png", "table1.csv")]


def draw(found: dict[str, tuple[bool, ...]]) -> Any:
    """Who can do what, with a frame around what the paper has otherwise."""
    from ffjord.report.style import INK, MODEL, MUTED, add_panel, new_figure

    row, column = 0.28, 1.35
    width, height = column * len(COLUMNS), row * len(found)
    page = new_figure(round(1.2 + width, 1), round(0.6 + height, 1))
    axes = add_panel(page, (1.1, 0.1, width, height))
    axes.set(xlim=(-0.5, len(COLUMNS) - 0.5), ylim=(len(found) - 0.5, -0.5))
    for y, (name, can) in enumerate(found.items()):
        for x, yes in enumerate(can):
            same = PAPER.get(name, can)[x] == yes
            edge = "none" if same else INK
            axes.scatter(x, y, s=60 if yes else 14, c=MODEL if yes else MUTED, edgecolors=edge, linewidths=1.5)
    axes.set_yticks(range(len(found)), list(found))
    axes.set_xticks(range(len(COLUMNS)), list(COLUMNS))
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelsize=8, labelcolor=INK, pad=4)
    return page


def as_markdown(found: dict[str, tuple[bool, ...]], *, quick: bool = False) -> str:
    """README.md of the study."""
    lines = [
        "# Table 1: what each model can do",
        "",
        f"Made by `ffjord reproduce table1{' --quick' if quick else ''}`,",
        "which builds each model with arbitrary weights and tries it:",
        "",
        "- *train on data*: the density of a given point takes no more than three times the passes through networks",
        "  that a sample takes. No search for an inverse, no pass for every column.",
        "- *one-pass sampling*: the reverse, and a sample of twice as many columns takes no more passes.",
        "- *exact log-likelihood*: it is that of the whole Jacobian's determinant, to 1e-6.",
        "- *free-form Jacobian*: in some part, or in the dynamics of a continuous one, every entry of the Jacobian",
        "  depends on the point, and the changes have full rank: no zeros, no block, no few directions.",
        "",
        *beside(*_finding(found)),
        "",
        "![who can do what](table1.png)",
        "",
        f"| model | {' | '.join(COLUMNS)} | in the paper |",
        "|---|---|---|---|---|---|",
    ]
    for name, can in found.items():
        lines.append(f"| {name} | {' | '.join(map(_mark, can))} | {_said(name, can)} |")
    return "\n".join([*lines, "", "Data: [table1.csv](table1.csv).", ""])


def _finding(found: dict[str, tuple[bool, ...]]) -> tuple[str, str]:
    """What was found, and what the paper says."""
    told = [name for name in PAPER if name in found]
    same = [name for name in told if tuple(found[name]) == PAPER[name]]
    all_four = ", ".join(name for name, can in found.items() if all(can)) or "none"
    here = f"{len(same)} of the {len(told)} models that are in the paper's table can do what it says. All four can: "
    return f"{here}{all_four}.", "Table 1: of all models compared, FFJORD alone can do all four."


def _columns(can: tuple[bool, ...]) -> list[tuple[str, bool]]:
    return list(zip(COLUMNS, can, strict=True))


def _mark(can: bool) -> str:
    return "✓" if can else "✗"


def _said(name: str, can: tuple[bool, ...]) -> str:
    said = PAPER.get(name)
    return "–" if said is None else "the same" if said == tuple(can) else " ".join(map(_mark, said))
