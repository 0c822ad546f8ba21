"""Gets the sets from where they are published. Nothing that is there already is replaced."""

import fnmatch
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Literal

from ffjord.data.origins import IMAGES, MAF, PUBLISHER, Origin, Take
from ffjord.data.resuming import DownloadError, Resuming
from ffjord.data.sets import places
from ffjord.errors import InputError
from ffjord.files import atomic_file
from ffjord.progress import rows_bar


def get(name: str, origin: Literal["maf", "publisher"], data_dir: Path | None = None) -> list[Path]:
    """The files of a set, downloaded if they are not there, in the first of the places where sets are looked for.
    Pictures have one origin."""
    folder = places(data_dir)[0].path
    origins = IMAGES[name] if name in IMAGES else {"maf": MAF, "publisher": PUBLISHER}[origin][name]
    return [path for one in origins for path in _obtained(one, folder)]


def _obtained(origin: Origin, folder: Path) -> list[Path]:
    if origin.take and all(len(_taken(take, folder)) >= take.count for take in origin.take):
        print("nothing to download: the files are there.")
    else:
        archive = download(origin, folder)
        if not origin.take:
            return [archive]
        unpack(archive, origin.take, folder)
        print(f"{archive} is kept; delete it if you need no more of it.")
    return [path if take.count == 1 else path.parent for take in origin.take for path in _taken(take, folder)[:1]]


def download(origin: Origin, folder: Path) -> Path:
    """The file, complete and with the right checksum; an earlier download that was interrupted goes on."""
    import pooch

    path = folder / origin.file
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        return _existing(path, origin)
    print(f"{origin.url}\ninto {path}")
    part = path.with_name(f".{path.name}.part")
    pooch.get_logger().setLevel("ERROR")
    with rows_bar(f"{path.name}, MB") as show:
        downloader = Resuming(part, show, checked=origin.checksum is not None)
        try:
            pooch.retrieve(origin.url, origin.checksum, fname=path.name, path=path.parent, downloader=downloader)  # pyright: ignore[reportArgumentType]
        except ValueError as error:
            raise DownloadError(f"{origin.url}: {_first(error)} The file was not kept.") from error
    if origin.checksum is None:
        print(f"sha256 {pooch.file_hash(str(path))}: not verified, the publisher states no checksum.")
    return path


def _existing(path: Path, origin: Origin) -> Path:
    import pooch

    kind, _, expected = (origin.checksum or "").rpartition(":")
    if expected and (found := pooch.file_hash(str(path), alg=kind)) != expected:
        raise InputError(
            f"{path} exists, but its checksum ({kind} {found}) is not {expected}; move it away to download it again."
        )
    print(f"{path} is there already{'' if expected else ' (not verified, the publisher states no checksum)'}.")
    return path


def unpack(archive: Path, takes: tuple[Take, ...], folder: Path) -> None:
    """Writes the wanted files of a .zip or .tar archive; those that are there already stay as they are."""
    try:
        for name, file in _members(archive):
            take = next((take for take in takes if fnmatch.fnmatch(f"/{name}", f"*/{take.pattern}")), None)
            path = None if take is None else folder / take.folder / PurePosixPath(name).name
            if path is not None and not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                with file() as source, atomic_file(path) as target:
                    shutil.copyfileobj(source, target, 2**20)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DownloadError(f"{archive} is damaged ({error}); delete it and try again.") from error
    for take in takes:
        if (count := len(_taken(take, folder))) < take.count:
            raise DownloadError(
                f"{archive} is damaged or another: of the files {take.pattern} it has {count} of {take.count}; "
                "delete it and try again."
            )


def _members(archive: Path) -> Iterator:
    """Names of the files in an archive, each with a function that opens it."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as packed:
            yield from ((name, lambda name=name: packed.open(name)) for name in packed.namelist() if name[-1:] != "/")
    else:
        with tarfile.open(archive, "r|*") as tar:
            yield from ((one.name, lambda one=one: _opened(tar, one)) for one in tar if one.isfile())


@contextmanager
def _opened(packed: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[IO[bytes]]:
    file = packed.extractfile(member)
    assert file is not None  # it is a file, not a folder
    yield file


def _taken(take: Take, folder: Path) -> list[Path]:
    return sorted((folder / take.folder).glob(PurePosixPath(take.pattern).name))


def _first(error: Exception) -> str:
    """The first sentence of pooch's message, which goes on to guess at reasons."""
    return f"{str(error).split('. ')[0].rstrip('.')}."
