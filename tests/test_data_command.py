"""`ffjord data`: what is there, and whether it is what it should be."""

import dataclasses
import gzip
import struct

import numpy as np
import pytest

from ffjord.cli import main
from ffjord.data import images, sets
from ffjord.data.gaussian import gaussian_log_likelihood

ROWS = {"train": (400, 2), "val": (30, 2), "test": (50, 2)}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.delenv(sets.VARIABLE, raising=False)
    monkeypatch.setattr(sets.platformdirs, "user_cache_path", lambda name: tmp_path / "cache" / name)
    sets.load.cache_clear()
    images.load_images.cache_clear()


@pytest.fixture
def data(tmp_path) -> dict[str, np.ndarray]:
    """Prepared rows of a small set in the folder `GAS` of a data directory."""
    (tmp_path / "data" / "GAS").mkdir(parents=True)
    rng = np.random.default_rng(0)
    parts = {name: rng.normal(size=shape).astype(np.float32) for name, shape in ROWS.items()}
    for name, rows in parts.items():
        np.save(tmp_path / "data" / "GAS" / f"{name}.npy", rows)
    return parts


def expect(monkeypatch, gaussian: float) -> None:
    table = dataclasses.replace(sets.SETS["gas"], dim=2, rows=(400, 30, 50), gaussian=gaussian)
    monkeypatch.setitem(sets.SETS, "gas", table)


@pytest.mark.parametrize("words", [[], ["list"]])
def test_the_list(tmp_path, data, capsys, words):
    assert main(["data", *words, "--data-dir", str(tmp_path / "data")]) == 0
    shown = capsys.readouterr().out
    assert f"{tmp_path / 'data'} (--data-dir)\n" in shown
    assert "(the cache): no such directory" in shown
    assert f"there: {tmp_path / 'data' / 'GAS' / 'test.npy'}" in shown
    assert "train.npy is missing" not in shown
    assert "get it: ffjord data get gas" not in shown
    for name in set(sets.SETS) - {"gas"}:
        assert f"get it: ffjord data get {name}" in shown
        assert all(f"    {name}/{form.file} (" in shown for form in sets.SETS[name].forms)
    (tmp_path / "data" / "GAS" / "train.npy").unlink()
    assert main(["data", "--data-dir", str(tmp_path / "data")]) == 0
    assert "train.npy is missing" in capsys.readouterr().out


@pytest.mark.parametrize(("off", "code"), [(0.0, 0), (0.049, 0), (-0.049, 0), (0.051, 1), (-0.051, 1)])
def test_a_check_compares_with_maf(tmp_path, data, monkeypatch, capsys, off, code):
    found = gaussian_log_likelihood(data["train"], data["test"])
    expect(monkeypatch, found + off)
    assert main(["data", "check", "gas", "--data-dir", str(tmp_path / "data")]) == code
    shown = capsys.readouterr().out
    assert f"{found:.3f} nats" in shown
    assert "400 / 30 / 50" in shown
    assert ("THEY DIFFER" in shown) == (code == 1)


def refused(capsys, *words: str) -> str:
    assert main(["data", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    return err


def test_what_cannot_be_checked(tmp_path, data, monkeypatch, capsys):
    place = ["--data-dir", str(tmp_path / "data")]
    assert "must have the shape (852174, 8)" in refused(capsys, "check", "gas", *place)
    assert "name a set" in refused(capsys, "check")
    assert "did you mean miniboone?" in refused(capsys, "get", "minibone")
    assert "shows all sets" in refused(capsys, "list", "gas")
    assert "power: none of its files" in refused(capsys, "check", "power", *place)
    expect(monkeypatch, 0.0)
    (tmp_path / "data" / "GAS" / "train.npy").unlink()
    assert "a check needs the training rows" in refused(capsys, "check", "gas", *place)


@pytest.fixture
def mnist(tmp_path, monkeypatch) -> np.ndarray:
    """A small MNIST of 4 / 2 / 3 pictures in a data directory; those for training and validation are returned."""
    monkeypatch.setitem(images.IMAGE_SETS, "mnist", dataclasses.replace(images.IMAGE_SETS["mnist"], rows=(4, 2, 3)))
    values = np.random.default_rng(0).integers(256, size=(6, 28, 28), dtype=np.uint8)
    (tmp_path / "data" / "mnist").mkdir(parents=True)
    for name, part in (("train", values), ("t10k", values[:3])):
        content = struct.pack(">4I", 0x803, *part.shape) + part.tobytes()
        (tmp_path / "data" / "mnist" / f"{name}-images-idx3-ubyte.gz").write_bytes(gzip.compress(content))
    return values


def test_pictures_are_listed(tmp_path, mnist, capsys):
    assert main(["data", "--data-dir", str(tmp_path / "data")]) == 0
    shown = capsys.readouterr().out
    assert "28 × 28 × 1 of 256 levels, 4 / 2 / 3 pictures" in shown
    assert f"there: {tmp_path / 'data' / 'mnist' / 'train-images-idx3-ubyte.gz'}" in shown
    assert "get it: ffjord data get mnist" not in shown
    assert "get it: ffjord data get cifar10" in shown
    assert all(f"    cifar10/{form.file} (" in shown for form in images.IMAGE_SETS["cifar10"].forms)
    assert "8 × 8 × 1 of 17 levels, 1,259 / 179 / 359 pictures\n  there: it comes with scikit-learn" in shown


def test_a_check_of_pictures(tmp_path, mnist, capsys):
    place = ["--data-dir", str(tmp_path / "data")]
    assert main(["data", "check", "mnist", *place]) == 0
    shown = capsys.readouterr().out
    assert "4 / 2 / 3" in shown
    assert f"{mnist[:4].mean():.2f} of 255" in shown
    assert "cifar10: none of its files" in refused(capsys, "check", "cifar10", *place)
    images.load_images.cache_clear()
    (tmp_path / "data" / "mnist" / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(b"text"))
    assert "the magic number must be 0x00000803; got 0x74657874" in refused(capsys, "check", "mnist", *place)
    assert main(["data", "check", "digits"]) == 0
    assert "1,259 / 179 / 359" in capsys.readouterr().out
