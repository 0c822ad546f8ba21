"""The arguments of `ffjord reproduce STUDY`, a file for each study."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ffjord.cli.common import check_seed
from ffjord.data.pictures import is_image
from ffjord.errors import InputError
from ffjord.reproduce.pages import check_place
from ffjord.runs import Run


@dataclass(frozen=True)
class Places:
    """How much, and where."""

    quick: bool = False
    """A sketch in minutes."""
    out: Path | None = None
    """Where page, figures and numbers go; results/STUDY, or runs/STUDY-quick/figures with --quick, if not given."""
    runs: Path | None = None
    """Where trained models and findings so far go; runs/STUDY if not given, with -quick at the end for a sketch."""


def places(study: str, quick: bool, out: Path | None, runs: Path | None) -> tuple[Path, Path]:
    """Where tables and figures go, and where runs go, if nothing else is said."""
    name = study + ("-quick" if quick else "")
    found = out or (Path("runs") / name / "figures" if quick else Path("results") / name)
    return found, runs or Path("runs") / name


def make(study: str, given: Places, how: Callable[[Path, Path], Iterable[Path]]) -> int:
    """Makes a study, `how(out, runs)`, where it is to be, and prints the files that it leaves."""
    from ffjord import compilation

    out, runs = places(study, given.quick, given.out, given.runs)
    check_place(out, study, quick=given.quick)
    compilation.enable_cache()
    for file in how(out, runs):
        print(file)
    return 0


def tell(text: str) -> None:
    """Prints a line at once."""
    print(text, flush=True)


def check_words(name: str, chosen: Sequence[str], known: Sequence[str]) -> None:
    """Refuses words that are not known."""
    unknown = [word for word in chosen if word not in known]
    if unknown or not chosen:
        raise InputError(f"{name} must be of {', '.join(known)}; got {' '.join(unknown) or 'nothing'}.")


def check_natural(seed: int) -> int:
    """Refuses seeds that NumPy or JAX do not take."""
    if check_seed(seed) < 0:
        raise InputError(f"--seed must not be negative; got {seed}.")
    return seed


def check_at_least(name: str, value: int, least: int) -> int:
    """Refuses numbers that are too small."""
    if value < least:
        raise InputError(f"{name} must be at least {least}; got {value}.")
    return value


def image_run(name: str, path: Path) -> Run:
    """The run that an option names, which must be one over images."""
    run = Run.open(path)
    if not is_image(run.experiment.data.name):
        raise InputError(f"{name} {path} is not of a flow over images, but of {run.experiment.name}.")
    return run


def given_runs(
    name: str, paths: Sequence[Path], data_dir: Path | None, *, quick: bool, images: bool
) -> Callable[[], dict[str, Run]]:
    """Opens the runs that an option names, by the names of their experiments, and checks that their data are there.

    Without any, the flow over digits of the study `multiscale`, which is trained when the function is called.
    """
    runs = [(image_run(name, path) if images else Run.open(path)).with_data_dir(data_dir) for path in paths]
    named: dict[str, Run] = {}
    for run in runs:
        run.source().validation()  # says what is missing before any work is done
        if not run.weights.is_file():
            raise InputError(f"{name} {run.path} holds no trained model yet (no weights.npz).")
        named[run.experiment.name if run.experiment.name not in named else str(run.path)] = run
    return lambda: named or _digits(quick=quick)


def as_said(paths: Sequence[Path], data_dir: Path | None) -> str:
    """The words that name runs and say that their data were looked for, for the page: it tells its command."""
    words = ["--run", *map(str, paths)] if paths else []
    return " ".join(words + (["--data-dir", "DIR"] if data_dir else []))


def _digits(*, quick: bool) -> dict[str, Run]:
    from ffjord.reproduce.multiscale import trained

    run = trained(places("multiscale", quick, None, None)[1], "multi", quick=quick)
    return {run.experiment.name: run}
