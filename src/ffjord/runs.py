"""A run directory: everything that later commands need, and nothing that they would have to execute.

config.json      the experiment, with every setting
versions.json    versions of the libraries, and the machine
metrics.jsonl    one line a step, one a validation, one whenever training went back or gave up
checkpoints/     training states (Orbax)
damaged/         checkpoints that could not be read, if there were any
weights.npz      the best model so far
results.json     what `ffjord evaluate` found
report.html      the page that `ffjord train --report` keeps up to date
columns.json     of a table that `ffjord fit` learnt: names, mean and scale of its columns
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import platform
import shutil
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ffjord.errors import InputError
from ffjord.experiments.config import Experiment
from ffjord.files import write_json as write_json

if TYPE_CHECKING:
    from ffjord.table.layout import Layout

_LIBRARIES = ("ffjord", "jax", "jaxlib", "equinox", "diffrax", "optax", "orbax-checkpoint", "numpy")


class Run:
    """A run directory and the experiment in it."""

    def __init__(self, path: Path, experiment: Experiment):
        self.path, self.experiment = path, experiment

    @classmethod
    def create(cls, path: Path, experiment: Experiment) -> "Run":
        """Makes a new run directory; refuses one that exists and is not empty."""
        check_new(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            experiment = _with_own_picture(path, experiment)
            _write_columns(path, experiment)
            write_json(path / "versions.json", _versions())
            draft = path / f".config.{os.getpid()}"
            write_json(draft, experiment.to_dict())
            os.link(draft, path / "config.json")  # of two programs that come this far, one fails here
            draft.unlink()
        except FileExistsError as error:
            raise _held(path) from error
        except OSError as error:
            raise InputError(
                f"{path} cannot be written ({error.strerror}); choose another place: --out DIR."
            ) from error
        return cls(path, experiment)

    @classmethod
    def open(cls, path: Path) -> "Run":
        """Reads a run directory, or a packaged model as `pretrained/NAME`."""
        try:
            path = _packaged(path)
            config = path / "config.json"
            found = config.is_file()
        except OSError as error:
            raise InputError(f"{path} is not a run directory ({error.strerror}).") from error
        if not found:
            raise InputError(f"{path} is not a run directory (it has no config.json). `ffjord train` makes one.")
        try:
            experiment = Experiment.from_dict(json.loads(config.read_text()))
        except (ValueError, TypeError, OSError) as error:
            raise InputError(f"{config} cannot be read: {error}") from error
        return cls(path, experiment)

    def change(self, experiment: Experiment) -> dict[str, Any]:
        """Gives the run other settings from here on; returns those that differ, as {"train.steps": 9000}."""
        before, after = _flat(self.experiment.to_dict()), _flat(experiment.to_dict())
        changed = {name: value for name, value in after.items() if value != before[name]}
        if changed:
            write_json(self.path / "config.json", experiment.to_dict())
            self.experiment = experiment
        return changed

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other trainings out of the directory; the system lifts the lock when a process dies."""
        try:
            file = (self.path / ".lock").open("a+")
        except OSError as error:
            raise InputError(f"{self.path} cannot be written ({error.strerror}).") from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                file.seek(0)
                who = file.read().strip() or "just started"
                raise InputError(
                    f"another training is at work in {self.path} ({who}); wait for it, stop it, or choose another."
                ) from error
            file.truncate(0)
            file.write(f"process {os.getpid()} on {platform.node()}\n")
            file.flush()
            yield

    def is_training(self) -> bool:
        """Whether a training is at work in the directory."""
        try:
            with (self.path / ".lock").open() as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # no training was ever here, or none can be
            pass
        return False

    @property
    def weights(self) -> Path:
        return self.path / "weights.npz"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def results(self) -> Path:
        return self.path / "results.json"

    @property
    def page(self) -> Path:
        return self.path / "report.html"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def layout(self) -> "Layout | None":
        """The columns of the table that the run was fitted to; None of an experiment."""
        from ffjord.table.layout import Layout

        return Layout.read(self.path) if self.experiment.file.path else None

    def with_data_dir(self, data_dir: Path | None) -> "Run":
        """The run with its data looked for in another directory, if one is given; what it has stored stays as it is."""
        if data_dir is None:
            return self
        data = dataclasses.replace(self.experiment.data, data_dir=str(data_dir))
        return Run(self.path, dataclasses.replace(self.experiment, data=data))

    def source(self):
        """The data of the run."""
        from ffjord.experiments.build import build_source

        return build_source(self.experiment, folder=self.path)

    def flow(self):
        """The best model of the run, if it is a flow."""
        if self.is_autoencoder:
            raise InputError(
                f"{self.path} is a variational autoencoder, of whose density only a bound is known; `ffjord evaluate` "
                "tells it, and resume, sample and plot are for it too."
            )
        return self.model()

    @property
    def is_autoencoder(self) -> bool:
        """Whether the model is an autoencoder, and not a flow."""
        return self.experiment.model.posterior is not None

    def model(self):
        """The best model of the run: a flow, or an autoencoder."""
        from ffjord.arrays import load_arrays
        from ffjord.experiments.build import build_flow

        self._check_weights()
        return load_arrays(self.weights, build_flow(self.experiment, self.source()))

    def lend(self, model):
        """Another model with the best weights of this run, wherever name, shape and type agree, and how many do."""
        from ffjord.arrays import fitting, read_arrays

        self._check_weights()
        given, count = fitting(model, read_arrays(self.weights))
        if not count:
            raise InputError(
                f"{self.path} has no weights that fit the model: names and shapes differ everywhere. Name a run of a "
                "similar model, or start from none."
            )
        return given, count

    def _check_weights(self) -> None:
        if not self.weights.is_file():
            raise InputError(
                f"{self.path} has no trained weights yet; they are written at the first validation. "
                f"Go on training with `ffjord resume {self.path}`."
            )


def check_new(path: Path) -> None:
    """Refuses a place where a run, or anything else, is already."""
    if (path / "config.json").exists():
        raise _held(path)
    if path.exists() and (not path.is_dir() or any(not _left_over(file) for file in path.iterdir())):
        raise InputError(f"{path} exists and is not empty; choose another place: --out DIR.")


def _held(path: Path) -> InputError:
    return InputError(
        f"{path} already holds a run. Go on with it: `ffjord resume {path}`; or choose another place: --out DIR."
    )


def load_pretrained(name: str):
    """The trained `Flow`, or autoencoder, that ships with the package under this name, such as "toy-8gaussians"."""
    folder = _package_folder() / name
    if not (folder / "config.json").is_file():
        names = sorted(path.parent.name for path in _package_folder().glob("*/config.json"))
        raise InputError(f"there is no pretrained model {name!r}; there are {', '.join(names) or 'none'}.")
    return Run.open(folder).model()


def _packaged(path: Path) -> Path:
    """`pretrained/NAME` means the packaged model wherever there is no such directory."""
    if not path.exists() and path.parts[:1] == ("pretrained",):
        return _package_folder().joinpath(*path.parts[1:])
    return path


def _package_folder() -> Path:
    return Path(__file__).parent / "pretrained"


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    """A dictionary of dictionaries with dotted names."""
    parts = [_flat(value).items() if isinstance(value, dict) else [(None, value)] for value in values.values()]
    pairs = zip(values, parts, strict=True)
    return {name if inner is None else f"{name}.{inner}": value for name, part in pairs for inner, value in part}


def _left_over(file: Path) -> bool:
    """Whether a file is what a program that died while making a run left behind."""
    return file.name.startswith(".") or file.name in ("versions.json", "columns.json") or file.stem == "image"


def _with_own_picture(path: Path, experiment: Experiment) -> Experiment:
    """Copies the picture that defines the data into the run, which then needs nothing else."""
    if experiment.data.image is None:
        return experiment
    image = Path(experiment.data.image)
    copy = shutil.copyfile(image, path / f"image{image.suffix.lower()}")
    return dataclasses.replace(experiment, data=dataclasses.replace(experiment.data, image=copy.name))


def _write_columns(path: Path, experiment: Experiment) -> None:
    """Writes what the columns of a fitted table are, so that its model can be used without it."""
    if experiment.file.path:
        from ffjord.table.rows import prepared

        prepared(experiment.file, experiment.seed).layout.write(path)


def _versions() -> dict[str, Any]:
    libraries = {name: metadata.version(name) for name in _LIBRARIES}
    machine = {"cores": os.cpu_count(), "processor": platform.machine(), "system": platform.system()}
    return {"python": platform.python_version(), **libraries, "machine": machine}
