"""Fills the tables of README.md from what was measured: `pretrained/`, `results/` and `benchmarks/`.

    python scripts/readme.py

A table stands between two comments, `<!-- NAME -->` and `<!-- end of NAME -->`; all else is left as it is. A test asks
that the README holds what this script would write.
"""

import itertools
import json
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ffjord.experiments import find
from ffjord.reproduce.table3 import estimate

ROOT = Path(__file__).parent.parent
PRETRAINED = {"power": "POWER", "bsds300": "BSDS300", "mnist": "MNIST, pixels"}
"""Models whose figure is in the paper."""
AUTOENCODERS = {"mnist": "MNIST", "omniglot": "Omniglot", "frey": "Frey Faces", "caltech": "Caltech Silhouettes"}
PEERS = ("zuko", "torchdyn", "torchdiffeq, direct", "torchdiffeq, adjoint", "Diffrax's example")


def filled(text: str) -> str:
    """The page with every table made anew."""
    for name, table in TABLES.items():
        space = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        if not space.search(text):
            raise ValueError(f"README.md has no place for the table '{name}'")
        text = space.sub(lambda found, table=table: f"{found[1]}\n{table()}\n\n{found[2]}", text)
    return text


def results() -> str:
    """Test figures of FFJORD beside the paper's: tables, images, autoencoders."""
    rows = [_density(name, title) for name, title in PRETRAINED.items() if _path(name).is_file()]
    kept = ROOT / "results" / "table3" / "results.json"
    cells = list(json.loads(kept.read_text()).values()) if kept.is_file() else []
    runs = lambda *of: [cell for cell in cells if (cell["data"], cell["posterior"]) == of and "failed" not in cell]
    every = itertools.product(AUTOENCODERS, ("ffjord", "ffjord-fast"))
    rows += [_autoencoder(AUTOENCODERS[data], of) for data, posterior in every if (of := runs(data, posterior))]
    return _table(("data", "ours", "the paper's FFJORD", "unit", "NFE"), rows)


def _path(name: str) -> Path:
    return ROOT / "pretrained" / name / "results.json"


def _density(name: str, title: str) -> list[str]:
    found = json.loads(_path(name).read_text())
    paper = find(found["experiment"]).paper
    if "bits_per_dim" in found:
        ours, unit = f"{found['bits_per_dim']:.3f} ± {found['bits_per_dim_stderr']:.3f}", "bits/dim"
    else:
        ours, unit = f"{found['test_nll']:.2f} ± {found['test_nll_stderr']:.2f}", "nats"
    return [title, ours, paper.removesuffix(" bits/dim"), unit, f"{found['nfe']:.0f}"]


def _autoencoder(title: str, runs: list[dict[str, Any]]) -> list[str]:
    bits = "negative_elbo_bits_per_dim" in runs[0]
    name = "autoencoder" if runs[0]["posterior"] == "ffjord" else "autoencoder, our settings"
    if runs[0]["minutes"] is not None:
        name = f"autoencoder, {runs[0]['minutes'] + (runs[0].get('base') or 0):g} minutes of a core"
    elif runs[0].get("at_most_epochs") is not None:
        name = f"autoencoder, {runs[0]['at_most_epochs'] + (runs[0].get('base_epochs') or 0):g} epochs"
    paper = find(runs[0]["experiment"]).paper.removesuffix(" nats").removesuffix(" bits/dim")
    nfe = statistics.fmean(run["nfe"] for run in runs)
    unit = f"{'bits/dim' if bits else 'nats'}, -ELBO"
    return [f"{title}, {name}", estimate(runs, "negative_elbo"), paper, unit, f"{nfe:.0f}"]


def speed() -> str:
    """How many times as long every peer takes, at equal accuracy."""
    rows = json.loads((ROOT / "benchmarks" / "results.json").read_text())
    ratio = {(row["work"], row["task"], row["peer"]): row for row in rows}
    tasks = dict.fromkeys((row["work"], row["task"]) for row in rows)
    cells = [[*task, *(_ratio(ratio.get((*task, peer))) for peer in PEERS)] for task in tasks]
    return _table(("network", "task", *PEERS), cells)


def _ratio(row: dict[str, Any] | None) -> str:
    if row is None:
        return "–"
    return "failed" if row["failed"] else f"{row['seconds'] / row['ours_matched']:.1f}"


def _table(head: tuple[str, ...], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


TABLES: dict[str, Callable[[], str]] = {"results": results, "speed": speed}

if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(filled(readme.read_text()))
