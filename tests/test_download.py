"""Downloads from a server on this machine: whole, interrupted, resumed, damaged, refused."""

import dataclasses
import hashlib
import io
import re
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import PurePosixPath

import numpy as np
import pytest

from ffjord.cli import main
from ffjord.data import download as downloads
from ffjord.data import resuming, sets
from ffjord.data.download import download, get, unpack
from ffjord.data.images import IMAGE_SETS
from ffjord.data.origins import IMAGES, MAF, PUBLISHER, Origin, Take
from ffjord.data.resuming import DownloadError, Resuming
from ffjord.errors import InputError

CONTENT = np.random.default_rng(0).bytes(300_000)
CHUNK = resuming._CHUNK
CHECKSUM = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


class Server:
    """Serves one file. `ranges`: whether parts can be asked for; `drops`: after how many bytes each of the next answers
    breaks off; `asked`: from which byte each request wanted the file."""

    def __init__(self):
        self.content, self.etag, self.ranges, self.sized = CONTENT, '"1"', True, True
        self.drops: list[int] = []
        self.asked: list[int] = []
        handler = type("Handler", (_Handler,), {"server_state": self})
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def origin(self, checksum: str | None = CHECKSUM, **options) -> Origin:
        return Origin(f"http://127.0.0.1:{self.http.server_port}/file", "x/file.bin", checksum, **options)


class _Handler(BaseHTTPRequestHandler):
    server_state: Server

    def do_GET(self):
        state = self.server_state
        if self.path != "/file":
            return self.send_error(404)
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(wanted[1]) if wanted else 0
        state.asked.append(start)
        if not state.ranges or self.headers.get("If-Range", state.etag) != state.etag:
            start = 0
        if start and start >= len(state.content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(state.content)}")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        body = state.content[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(state.content) - 1}/{len(state.content)}")
        if state.etag:
            self.send_header("ETag", state.etag)
        if state.sized:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: state.drops.pop(0)] if state.drops else body)
        self.close_connection = True
        return None

    def log_message(self, format, *args): ...


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.http.shutdown()
    server.http.server_close()


def files(folder) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def test_a_whole_download(server, tmp_path, capsys):
    path = download(server.origin(), tmp_path)
    assert path == tmp_path / "x" / "file.bin"
    assert path.read_bytes() == CONTENT
    assert files(tmp_path) == {"file.bin"}
    assert "not verified" not in capsys.readouterr().out


def test_what_is_there_is_not_downloaded_again(server, tmp_path, capsys):
    download(server.origin(), tmp_path)
    download(server.origin(), tmp_path)
    assert server.asked == [0]
    assert "is there already" in capsys.readouterr().out


def test_a_download_goes_on_by_itself_after_a_drop(server, tmp_path):
    server.drops = [2 * CHUNK, CHUNK]
    assert download(server.origin(), tmp_path).read_bytes() == CONTENT
    assert server.asked == [0, 2 * CHUNK, 3 * CHUNK]


def test_a_later_command_goes_on_where_an_earlier_one_stopped(server, tmp_path):
    server.drops = [2 * CHUNK, 0, 0]
    with pytest.raises(DownloadError, match=r"stopped after 131,072 bytes.* the same command goes on"):
        download(server.origin(), tmp_path)
    assert files(tmp_path) == {".file.bin.part", ".file.bin.tag"}
    server.asked.clear()
    assert download(server.origin(), tmp_path).read_bytes() == CONTENT
    assert server.asked == [2 * CHUNK]
    assert files(tmp_path) == {"file.bin"}


def interrupted(server, tmp_path, **origin) -> None:
    server.drops = [2 * CHUNK, 0, 0]
    with pytest.raises(DownloadError):
        download(server.origin(**origin), tmp_path)
    server.asked.clear()


def test_a_server_without_ranges_sends_all_again(server, tmp_path):
    interrupted(server, tmp_path)
    server.ranges = False
    assert download(server.origin(), tmp_path).read_bytes() == CONTENT
    assert server.asked == [2 * CHUNK]


@pytest.mark.parametrize("checksum", [CHECKSUM, None])
def test_a_server_that_names_no_version_is_asked_for_the_rest_only_if_a_checksum_tells(server, tmp_path, checksum):
    server.etag = ""
    interrupted(server, tmp_path, checksum=checksum)
    assert download(server.origin(checksum), tmp_path).read_bytes() == CONTENT
    assert server.asked == [2 * CHUNK if checksum else 0]


def test_a_file_that_changed_in_between_is_downloaded_anew(server, tmp_path):
    interrupted(server, tmp_path, checksum=None)
    server.content, server.etag = CONTENT[::-1], '"2"'
    assert download(server.origin(None), tmp_path).read_bytes() == CONTENT[::-1]


def test_a_part_that_was_complete_is_used(server, tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / ".file.bin.part").write_bytes(CONTENT)
    assert download(server.origin(), tmp_path).read_bytes() == CONTENT
    assert server.asked == [len(CONTENT)]


def test_a_part_that_is_too_long_is_thrown_away(server, tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / ".file.bin.part").write_bytes(CONTENT + b"more")
    assert download(server.origin(), tmp_path).read_bytes() == CONTENT
    assert server.asked == [len(CONTENT) + 4, 0]


def test_a_wrong_checksum_leaves_nothing_behind(server, tmp_path):
    server.content = CONTENT[:-1] + b"x"
    with pytest.raises(DownloadError, match=r"hash .*does not match.*The file was not kept") as caught:
        download(server.origin(), tmp_path)
    assert "http://127.0.0.1" in str(caught.value)
    assert files(tmp_path) == set()
    server.content = CONTENT
    assert download(server.origin(), tmp_path).read_bytes() == CONTENT


def test_an_existing_file_with_another_checksum_is_not_touched(server, tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "file.bin").write_bytes(b"mine")
    with pytest.raises(InputError, match=r"exists, but its checksum .* move it away"):
        download(server.origin(), tmp_path)
    assert (tmp_path / "x" / "file.bin").read_bytes() == b"mine"
    assert server.asked == []


def test_an_unknown_checksum_is_said(server, tmp_path, capsys):
    download(server.origin(None), tmp_path)
    assert f"sha256 {CHECKSUM[7:]}: not verified" in capsys.readouterr().out


def test_an_unknown_length_is_no_obstacle(server, tmp_path):
    server.sized = False
    assert download(server.origin(), tmp_path).read_bytes() == CONTENT


def test_errors_of_the_server_and_of_the_network(server, tmp_path):
    missing = Origin(server.origin().url + "s", "x/file.bin")
    with pytest.raises(DownloadError, match="404"):
        download(missing, tmp_path)
    url = server.origin().url
    server.http.shutdown()
    server.http.server_close()
    with pytest.raises(DownloadError, match="stopped after 0 bytes"):
        download(Origin(url, "x/file.bin"), tmp_path)
    assert "file.bin" not in files(tmp_path)


def test_one_download_of_a_file_at_a_time(server, tmp_path):
    part = tmp_path / ".file.part"
    with (
        Resuming(part, lambda *_: None, checked=True)._alone(),
        pytest.raises(DownloadError, match="another download of this file is at work"),
    ):
        Resuming(part, lambda *_: None, checked=True)(server.origin().url, tmp_path / "file", None)


def test_progress_is_told(server, tmp_path):
    told = []
    Resuming(tmp_path / "p", lambda *now: told.append(now), checked=True)(server.origin().url, tmp_path / "file", None)
    assert set(told) == {(1, 1)}


def archive(kind: str, members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(file, "w") as packed:
            for name, content in members.items():
                packed.writestr(name, content)
    else:
        with tarfile.open(fileobj=file, mode="w:gz") as packed:
            for name, content in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                packed.addfile(info, io.BytesIO(content))
    return file.getvalue()


TAKES = (Take("gas/a.txt", "gas"), Take("images/train/*.jpg", "pictures/train", 2))
MEMBERS = {
    "data/gas/a.txt": b"a",
    "data/gas/b.txt": b"b",
    "../../gas/a.txt/../c.txt": b"evil",
    "data/images/train/1.jpg": b"1",
    "images/train/2.jpg": b"2",
}


@pytest.mark.parametrize("kind", ["zip", "tgz"])
def test_only_what_is_wanted_is_unpacked(tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    path.write_bytes(archive(kind, MEMBERS))
    unpack(path, TAKES, tmp_path / "in")
    found = {str(path.relative_to(tmp_path / "in")) for path in (tmp_path / "in").rglob("*") if path.is_file()}
    assert found == {"gas/a.txt", "pictures/train/1.jpg", "pictures/train/2.jpg"}
    (tmp_path / "in" / "gas" / "a.txt").write_bytes(b"mine")
    unpack(path, TAKES, tmp_path / "in")
    assert (tmp_path / "in" / "gas" / "a.txt").read_bytes() == b"mine"


@pytest.mark.parametrize("kind", ["zip", "tgz"])
def test_archives_that_are_damaged_or_incomplete(tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    path.write_bytes(archive(kind, MEMBERS)[:-30])
    with pytest.raises(DownloadError, match="is damaged"):
        unpack(path, TAKES, tmp_path / "in")
    path.write_bytes(archive(kind, {"data/gas/a.txt": b"a", "images/train/1.jpg": b""}))
    with pytest.raises(DownloadError, match=r"of the files images/train/\*\.jpg it has 1 of 2"):
        unpack(path, TAKES, tmp_path / "in")


def test_every_origin_brings_files_that_can_be_read():
    for origins in (MAF, PUBLISHER):
        assert set(origins) == set(sets.SETS)
        for name, table in sets.SETS.items():
            brought = [f"{take.folder}/{take.pattern.split('/')[-1]}" for one in origins[name] for take in one.take]
            brought += [one.file for one in origins[name] if not one.take]
            accepted = [f"{name}/{form.file}" for form in table.forms]
            assert any(file == form or file.startswith(f"{form}/") for file in brought for form in accepted)
            assert all(one.url.startswith("https://") for one in origins[name])


def test_origins_of_pictures_are_checked_and_read_as_they_are():
    assert set(IMAGES) == {name for name, images in IMAGE_SETS.items() if images.forms}
    for name, origins in IMAGES.items():
        assert {form.place(name) for form in IMAGE_SETS[name].forms if not form.note} & {one.file for one in origins}
        for one in origins:
            assert re.fullmatch("md5:[0-9a-f]{32}|sha256:[0-9a-f]{64}", one.checksum or "")
            assert one.url.startswith("https://")
            assert one.url.endswith(f"/{PurePosixPath(one.file).name}")
            assert not one.take


def test_pictures_by_the_command(server, tmp_path, monkeypatch, capsys):
    origin = dataclasses.replace(server.origin(), file="mnist/train-images-idx3-ubyte.gz")
    monkeypatch.setitem(downloads.IMAGES, "mnist", (origin,))
    assert main(["data", "get", "MNIST", "--data-dir", str(tmp_path)]) == 0
    path = tmp_path / "mnist" / "train-images-idx3-ubyte.gz"
    assert path.read_bytes() == CONTENT
    assert f"there: {path}\nnext: ffjord data check mnist" in capsys.readouterr().out
    path.write_bytes(b"mine")
    assert main(["data", "get", "mnist", "--data-dir", str(tmp_path)]) == 2
    assert "its checksum" in capsys.readouterr().err
    assert server.asked == [0]
    assert main(["data", "get", "digits", "--data-dir", str(tmp_path / "none")]) == 0
    assert "digits comes with scikit-learn" in capsys.readouterr().out
    assert not (tmp_path / "none").exists()


def test_the_command(server, tmp_path, monkeypatch, capsys):
    server.content = archive("tgz", {"data/gas/ethylene_CO.pickle": b"table", "data/gas/other": b""})
    take = MAF["gas"][0].take
    monkeypatch.setitem(downloads.MAF, "gas", (server.origin(None, take=take),))
    assert main(["data", "get", "GAS", "--data-dir", str(tmp_path)]) == 0
    assert (tmp_path / "gas" / "ethylene_CO.pickle").read_bytes() == b"table"
    assert "next: ffjord data check gas" in capsys.readouterr().out
    (tmp_path / "x" / "file.bin").unlink()
    assert main(["data", "get", "gas", "--data-dir", str(tmp_path)]) == 0
    assert "nothing to download" in capsys.readouterr().out
    assert len(server.asked) == 1
    monkeypatch.setenv(sets.VARIABLE, str(tmp_path / "variable"))
    assert get("gas", "maf") == [tmp_path / "variable" / "gas" / "ethylene_CO.pickle"]
    server.http.shutdown()
    server.http.server_close()
    assert main(["data", "get", "gas", "--data-dir", str(tmp_path / "other")]) == 1
    assert "the download stopped" in capsys.readouterr().err
