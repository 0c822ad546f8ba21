"""A downloader for pooch that goes on where an earlier one stopped.

Pooch checks files and puts them in their place, but begins every download anew. Here the bytes that have come are kept
beside, in a .part file, and the server is asked for the rest (HTTP Range). The .tag file says which version of the file
they are of: a server whose file has changed since sends all of it.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import requests

from ffjord.errors import Answer
from ffjord.progress import Progress

_CHUNK = 2**16
_SECONDS = (20, 60)
"""To wait for a connection, and for the next bytes."""


class DownloadError(Answer, RuntimeError):
    """A file could not be downloaded."""


class Resuming:
    """Downloads into `part`, going on from what is there, and moves it to where pooch wants the file.

    `show` is told how many million bytes have come, and of how many. With `checked`, a checksum will find out whether
    bytes of two versions were put together, so that a server that does not name versions is asked for the rest too.
    """

    def __init__(self, part: Path, show: Progress, *, checked: bool, tries: int = 3):
        self.part, self.tag = part, part.with_suffix(".tag")
        self.show, self.checked, self.tries = show, checked, tries

    def __call__(self, url: str, output_file: Any, pooch: Any) -> None:
        with self._alone() as file:
            self._all(url, file)
            file.flush()
            os.fsync(file.fileno())
            os.replace(self.part, output_file)
            self.tag.unlink(missing_ok=True)

    def _all(self, url: str, file: BinaryIO) -> None:
        """Asks until everything has come, as long as every few attempts bring something."""
        failures, last = 0, None
        while failures < self.tries:
            before = file.seek(0, os.SEEK_END)
            try:
                return self._rest(url, file, before)
            except requests.HTTPError as error:
                raise DownloadError(f"{url}: the server answers {error}.") from error
            except requests.RequestException as error:
                failures = 1 if file.tell() > before else failures + 1
                last = error
        raise DownloadError(
            f"{url}: the download stopped after {file.tell():,} bytes ({last}). They are kept: the same "
            "command goes on from there."
        ) from last

    def _rest(self, url: str, file: BinaryIO, begin: int) -> None:
        with requests.get(url, headers=self._headers(begin), stream=True, timeout=_SECONDS) as answer:
            if answer.status_code == 416:  # there is nothing after what has come: all is there, or it is not of this
                if answer.headers.get("Content-Range") == f"bytes */{begin}":
                    return
                file.truncate(0)
                raise requests.ConnectionError("the file has changed; it is downloaded anew")
            answer.raise_for_status()
            if answer.status_code != 206 or not answer.headers.get("Content-Range", "").startswith(f"bytes {begin}-"):
                begin = 0
                file.truncate(0)
                file.seek(0)
            self.tag.write_text(_version(answer))
            self._write(answer, file, begin)

    def _write(self, answer: requests.Response, file: BinaryIO, begin: int) -> None:
        length = answer.headers.get("Content-Length")
        total = None if length is None else begin + int(length)
        for chunk in answer.iter_content(_CHUNK):
            file.write(chunk)
            self.show(_millions(file.tell()), None if total is None else _millions(total))
        if total is not None and file.tell() != total:
            raise requests.ConnectionError(f"{total - file.tell():,} bytes are missing")

    def _headers(self, begin: int) -> dict[str, str]:
        headers = {"Accept-Encoding": "identity"}
        tag = self.tag.read_text() if self.tag.exists() else ""
        if begin and (tag or self.checked):
            headers["Range"] = f"bytes={begin}-"
            if tag:
                headers["If-Range"] = tag
        return headers

    @contextlib.contextmanager
    def _alone(self) -> Iterator[BinaryIO]:
        """The .part file, which one process at a time may write."""
        with self.part.open("r+b" if self.part.exists() else "w+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise DownloadError(f"{self.part}: another download of this file is at work.") from error
            yield file


def _version(answer: requests.Response) -> str:
    """What names the version of a file for If-Range: a strong ETag, or the date of the last change."""
    tag = answer.headers.get("ETag", "")
    return tag if tag and not tag.startswith("W/") else answer.headers.get("Last-Modified", "")


def _millions(count: int) -> int:
    return -(-count // 10**6)
