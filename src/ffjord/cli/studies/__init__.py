"""The arguments of `ffjord reproduce STUDY`, a file for each study."""

from collections.abc import Sequence
from pathlib import Path

from ffjord.errors import InputError


def places(study: str, quick: bool, out: Path | None, runs: Path | None) -> tuple[Path, Path]:
    """Where tables and figures go, and where runs go, if nothing else is said."""
    name = study + ("-quick" if quick else "")
    found = out or (Path("runs") / name / "figures" if quick else Path("results") / name)
    return found, runs or Path("runs") / name


def check_words(name: str, chosen: Sequence[str], known: Sequence[str]) -> None:
    """Refuses words that are not known."""
    unknown = [word for word in chosen if word not in known]
    if unknown or not chosen:
        raise InputError(f"{name} must be of {', '.join(known)}; got {' '.join(unknown) or 'nothing'}.")
