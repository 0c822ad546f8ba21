"""`ffjord report`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from ffjord.cli.common import check_seed, new_file, parse
from ffjord.errors import InputError
from ffjord.progress import rows_bar
from ffjord.runs import Run

if TYPE_CHECKING:
    from ffjord.report.page import Entry

_EXAMPLES = """\
  ffjord report runs/toy/pinwheel
  ffjord report pretrained/toy-pinwheel --checks --out pinwheel.html
  ffjord report runs/a runs/b runs/c --out compared.html"""


@dataclass(frozen=True)
class Arguments:
    """One HTML file about a run, for any browser and without a network: what was trained and how it went, results
    beside the paper's numbers, the flow in motion, the solver's health and the checks. Several runs are compared
    first."""

    runs: Annotated[
        tuple[Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="RUN [RUN …]", help="Run directories, or pretrained/NAME for packaged models."),
    ]
    out: Path = Path("report.html")
    """File to write."""
    overwrite: bool = False
    """Replace an existing file."""
    checks: bool = False
    """Also check the models as `ffjord check` does, which takes a minute or more each; without it, the verdicts that
    are in the runs are shown."""
    pictures: bool = True
    """Draw the flows; --no-pictures leaves them out, and needs seconds."""
    data_dir: Path | None = None
    """Directory of the data's files, in place of those that the runs were trained with."""
    seed: int = 0
    """Seed of the samples shown."""


def main(argv: Sequence[str]) -> int:
    given = parse(Arguments, argv, "report", _EXAMPLES)
    if not given.runs:
        raise InputError("name a run: `ffjord report runs/toy/pinwheel`.")
    check_seed(given.seed)
    new_file(given.out, (".html", ".htm"), overwrite=given.overwrite)
    runs = [Run.open(path).with_data_dir(given.data_dir) for path in given.runs]
    from ffjord import compilation
    from ffjord.report.compare_table import labels
    from ffjord.report.page import page, write_page

    compilation.enable_cache()
    names = labels([*map(str, given.runs)]) if len(runs) > 1 else [str(given.runs[0])]
    how = {"seed": given.seed, "checks": given.checks, "pictures": given.pictures}
    entries = [_entry(run, name, **how) for run, name in zip(runs, names, strict=True)]
    write_page(given.out, page(entries, notes=_notes(runs)))
    print(given.out)
    return 0


def claim_page(run: Run) -> None:
    """Refuses, before any work, to replace a file of the run that is no page of ours."""
    from ffjord.report.page import is_page

    if run.page.exists() and not is_page(run.page):
        raise InputError(f"{run.page} exists, and is no page of a run; move it away, or leave out --report.")


def finish_page(run: Run) -> None:
    """The whole page of a run that was just trained. Several processes leave it without the picture."""
    import jax

    from ffjord.report.page import page, write_page

    if jax.process_count() == 1:
        write_page(run.page, page([_entry(run, str(run.path))]))
    print(run.page)


def _entry(run: Run, label: str, *, seed: int = 0, checks: bool = False, pictures: bool = True) -> "Entry":
    """A run's part of the page."""
    from ffjord.report.page import Entry, read_facts
    from ffjord.report.page.picture import picture, without_picture

    facts = read_facts(run, label, checks=_checked(run, seed) if checks else None)
    if not pictures:
        return Entry(facts, without_picture("Not drawn: the page was asked for without pictures."))
    with rows_bar(f"drawing {label}") as progress:
        return Entry(facts, picture(run, seed=seed, progress=progress))


def _checked(run: Run, seed: int) -> dict[str, Any]:
    """The verdicts of `ffjord check`; nothing where they cannot be had, which is told."""
    from ffjord.cli.check import check

    try:
        return check(run, None, seed)[0]
    except InputError as error:
        print(f"not checked: {error}")
        return {}


def _notes(runs: Sequence[Run]) -> list[str]:
    """What a reader of several runs must know."""
    from ffjord.cli.compare import data_of

    if len({str(data_of(run)) for run in runs}) == 1:
        return []
    return ["These runs are not on the same data: their likelihoods cannot be compared."]
