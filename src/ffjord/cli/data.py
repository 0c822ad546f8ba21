"""`ffjord data`."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ffjord.cli.common import parse, print_table
from ffjord.data.images import IMAGE_SETS, ImageSet, load_images
from ffjord.data.sets import SETS, Form, TableSet, found_forms, load, places
from ffjord.errors import InputError

_EXAMPLES = """\
  ffjord data
  ffjord data get power
  ffjord data get gas --origin publisher --data-dir data
  ffjord data get mnist
  ffjord data check power"""

_NAME = tyro.conf.arg(metavar="NAME", help=f"The set, for get and check: {', '.join((*SETS, *IMAGE_SETS))}.")


@dataclass(frozen=True)
class Arguments:
    """The paper's tables and pictures: lists what is there and what is missing; gets one; or checks one.

    A check of a table fits one Gaussian to the training rows and compares the log-likelihood of the test rows with that
    in MAF's paper, which prepared the sets; the exit code is 1 if they differ. A check of pictures counts them and
    tells their mean grey level.
    """

    action: tyro.conf.Positional[Literal["list", "get", "check"]] = "list"
    """What to do."""
    name: Annotated[str | None, tyro.conf.Positional, _NAME] = None
    origin: Literal["maf", "publisher"] = "maf"
    """For get: the files that MAF prepared, or the publisher's own; of pictures there are only these."""
    data_dir: Path | None = None
    """Directory of the sets; $FFJORD_DATA and the cache are searched too. `get` writes into the first of these."""


def main(argv: Sequence[str]) -> int:
    given = parse(Arguments, argv, "data", _EXAMPLES)
    if given.action == "list":
        if given.name is not None:
            raise InputError(f"`ffjord data list` shows all sets; leave {given.name!r} out.")
        return _list(given.data_dir)
    chosen = _set(given.name, given.action)
    if given.action == "get":
        return _get(chosen, given)
    if isinstance(chosen, ImageSet):
        return _check_images(chosen, given.data_dir)
    return _check(chosen, given.data_dir)


def _set(name: str | None, action: str) -> TableSet | ImageSet:
    known: dict[str, TableSet | ImageSet] = {**SETS, **IMAGE_SETS}
    if name is None:
        raise InputError(f"name a set: `ffjord data {action} NAME`; there are {', '.join(known)}.")
    if name.lower() not in known:
        near = difflib.get_close_matches(name.lower(), known, n=1)
        hint = f"; did you mean {near[0]}?" if near else "."
        raise InputError(f"there is no set {name!r}{hint} There are {', '.join(known)}.")
    return known[name.lower()]


def _get(chosen: TableSet | ImageSet, given: Arguments) -> int:
    if not chosen.forms:
        print(f"nothing to download: {chosen.name} comes with scikit-learn.")
    else:
        from ffjord.data.download import get

        for path in get(chosen.name, given.origin, given.data_dir):
            print(f"there: {path}")
    print(f"next: ffjord data check {chosen.name}")
    return 0


def _list(data_dir: Path | None) -> int:
    print("looked in")
    for place in places(data_dir):
        print(f"  {place.path} ({place.named_by}){'' if place.path.is_dir() else ': no such directory'}")
    for table in SETS.values():
        print(f"\n{table.name}: {table.about}\n  {table.dim} columns, {_counts(table.rows)} rows")
        _list_forms(table, data_dir)
    for images in IMAGE_SETS.values():
        print(f"\n{images.name}: {images.about}\n  {_size(images)}, {_counts(images.rows)} pictures")
        _list_forms(images, data_dir)
    return 0


def _list_forms(one: TableSet | ImageSet, data_dir: Path | None) -> None:
    if not one.forms:
        print("  there: it comes with scikit-learn")
        return
    found = [*found_forms(one.name, data_dir, one.forms)]
    for form, path in found:
        note = "" if form.file != "test.npy" or path.with_name("train.npy").exists() else "; train.npy is missing"
        print(f"  there: {path} ({form.about}{note})")
    if found:
        _print_note(found[0][0], one.name)
    else:
        print("  missing; one of these is wanted:")
        print("\n".join(f"    {form.place(one.name)} ({form.about})" for form in one.forms))
        print(f"  get it: ffjord data get {one.name}")


def _check(table: TableSet, data_dir: Path | None) -> int:
    from ffjord.data.gaussian import gaussian_log_likelihood

    split = load(table.name, None if data_dir is None else str(data_dir))
    form, path = next(found_forms(table.name, data_dir))
    if not len(split.train):
        raise InputError(f"{path.with_name('train.npy')} is missing; a check needs the training rows.")
    found = gaussian_log_likelihood(split.train, split.test)
    agrees = abs(found - table.gaussian) <= form.tolerance
    shown = {
        "rows": _counts(tuple(map(len, split))),
        "columns": str(table.dim),
        "one Gaussian": f"{found:.3f} nats a test row",
        "in MAF's paper": f"{table.gaussian:.2f}",
        "verdict": f"{'they agree' if agrees else 'THEY DIFFER'}: {found - table.gaussian:+.3f}, "
        f"of which {form.tolerance:g} is allowed",
    }
    print_table(shown, title=f"{table.name} ({form.about})")
    print(path)
    return 0 if agrees else 1


def _check_images(images: ImageSet, data_dir: Path | None) -> int:
    """Reading the pictures counts them, and refuses files of another size."""
    split = load_images(images.name, data_dir)
    form, path = next(found_forms(images.name, data_dir, images.forms), (None, None))
    means, digits = split.train.mean(axis=(0, 1, 2)), 2 if images.levels > 2 else 4
    shown = {
        "pictures": _counts(tuple(map(len, split))),
        "each": _size(images),
        "mean grey level": f"{means.mean():.{digits}f} of {images.levels - 1}, in the training pictures",
    }
    if len(means) == 3:
        shown["red / green / blue"] = " / ".join(f"{mean:.2f}" for mean in means)
    print_table(shown, title=f"{images.name} ({'comes with scikit-learn' if form is None else form.about})")
    if path is not None:
        print(path)
    if form is not None:
        _print_note(form, images.name)
    return 0


def _print_note(form: Form, name: str) -> None:
    if form.note:
        print(f"  note: {form.note}.\n  get the literature's: ffjord data get {name}")


def _size(images: ImageSet) -> str:
    return f"{' × '.join(map(str, images.shape))} of {images.levels} levels"


def _counts(rows: tuple[int, ...]) -> str:
    return " / ".join(f"{count:,}" for count in rows)
