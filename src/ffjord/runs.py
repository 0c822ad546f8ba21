"""A run directory: everything that later commands need, and nothing that they would have to execute.

config.json      the experiment, with every setting
versions.json    versions of the libraries, and the machine
metrics.jsonl    one line a step, and one a validation
checkpoints/     training states (Orbax)
weights.npz      the best model so far
results.json     what `ffjord evaluate` found
"""

import dataclasses
import json
import os
import platform
import shutil
from importlib import metadata
from pathlib import Path
from typing import Any

from ffjord.errors import InputError
from ffjord.experiments.config import Experiment

_LIBRARIES = ("ffjord", "jax", "jaxlib", "equinox", "diffrax", "optax", "orbax-checkpoint", "numpy")


class Run:
    """A run directory and the experiment in it."""

    def __init__(self, path: Path, experiment: Experiment):
        self.path, self.experiment = path, experiment

    @classmethod
    def create(cls, path: Path, experiment: Experiment) -> "Run":
        """Makes a new run directory; refuses one that exists and is not empty."""
        if (path / "config.json").exists():
            raise InputError(
                f"{path} already holds a run. Go on with it: `ffjord resume {path}`; "
                "or choose another place: --out DIR."
            )
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise InputError(f"{path} exists and is not empty; choose another place: --out DIR.")
        try:
            path.mkdir(parents=True, exist_ok=True)
            experiment = _with_own_picture(path, experiment)
            write_json(path / "versions.json", _versions())
            write_json(path / "config.json", experiment.to_dict())
        except OSError as error:
            raise InputError(
                f"{path} cannot be written ({error.strerror}); choose another place: --out DIR."
            ) from error
        return cls(path, experiment)

    @classmethod
    def open(cls, path: Path) -> "Run":
        """Reads a run directory, or a packaged model as `pretrained/NAME`."""
        path = _packaged(path)
        config = path / "config.json"
        if not config.is_file():
            raise InputError(f"{path} is not a run directory (it has no config.json). `ffjord train` makes one.")
        try:
            experiment = Experiment.from_dict(json.loads(config.read_text()))
        except (ValueError, TypeError, OSError) as error:
            raise InputError(f"{config} cannot be read: {error}") from error
        return cls(path, experiment)

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
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def source(self):
        """The data of the run."""
        from ffjord.experiments.build import build_source

        return build_source(self.experiment, folder=self.path)

    def flow(self):
        """The best model of the run."""
        from ffjord.arrays import load_arrays
        from ffjord.experiments.build import build_flow

        if not self.weights.is_file():
            raise InputError(
                f"{self.path} has no trained weights yet; they are written at the first validation. "
                f"Go on training with `ffjord resume {self.path}`."
            )
        return load_arrays(self.weights, build_flow(self.experiment, self.source()))


def load_pretrained(name: str):
    """The trained `Flow` that ships with the package under this name, such as "toy-8gaussians"."""
    folder = _package_folder() / name
    if not (folder / "config.json").is_file():
        names = sorted(path.parent.name for path in _package_folder().glob("*/config.json"))
        raise InputError(f"there is no pretrained model {name!r}; there are {', '.join(names) or 'none'}.")
    return Run.open(folder).flow()


def write_json(path: Path, value: Any) -> None:
    """Writes JSON that appears whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(value, indent=2) + "\n")
    os.replace(temporary, path)


def _packaged(path: Path) -> Path:
    """`pretrained/NAME` means the packaged model wherever there is no such directory."""
    if not path.exists() and path.parts[:1] == ("pretrained",):
        return _package_folder().joinpath(*path.parts[1:])
    return path


def _package_folder() -> Path:
    return Path(__file__).parent / "pretrained"


def _with_own_picture(path: Path, experiment: Experiment) -> Experiment:
    """Copies the picture that defines the data into the run, which then needs nothing else."""
    if experiment.data.image is None:
        return experiment
    image = Path(experiment.data.image)
    copy = shutil.copyfile(image, path / f"image{image.suffix.lower()}")
    return dataclasses.replace(experiment, data=dataclasses.replace(experiment.data, image=copy.name))


def _versions() -> dict[str, Any]:
    libraries = {name: metadata.version(name) for name in _LIBRARIES}
    machine = {"cores": os.cpu_count(), "processor": platform.machine(), "system": platform.system()}
    return {"python": platform.python_version(), **libraries, "machine": machine}
