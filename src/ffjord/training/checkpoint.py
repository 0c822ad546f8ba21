"""Training states on disk, by Orbax: written in the background, visible only when whole, checked when read."""

import logging
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ffjord.arrays import from_dict, to_dict
from ffjord.errors import Answer, InputError, StorageError
from ffjord.training.state import TrainState

_CHECKSUM = "checksum"


class Checkpoints:
    """The last few states of a run.

    Each holds a checksum of its arrays: one that cannot be read, or reads differently from what was written, is set
    aside (to the folder's `damaged`), and the one before it is taken. `warn` is told so.
    """

    def __init__(self, folder: Path, *, keep: int = 2, warn: Callable[[str], None] = lambda text: None):
        import orbax.checkpoint as ocp

        for name in ("absl", "orbax"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self.folder, self._orbax, self._warn = folder.resolve(), ocp, warn
        alone = ocp.options.MultiprocessingOptions(primary_host=0, active_processes={0})
        options = ocp.CheckpointManagerOptions(
            max_to_keep=keep, create=False, cleanup_tmp_directories=True, multiprocessing_options=alone
        )
        with _told(f"{folder} cannot be used"):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._manager = ocp.CheckpointManager(self.folder, options=options)
            self._reader = ocp.StandardCheckpointer(multiprocessing_options=alone)

    def save(self, state: TrainState) -> None:
        """Starts writing a state; returns as soon as the state may change again."""
        step, arrays = int(state.step), to_dict(state)
        with _told(f"the checkpoint of step {step} could not be written"):
            if step not in self._manager.all_steps():
                arrays[_CHECKSUM] = _checksum(arrays)
                self._manager.save(step, args=self._orbax.args.StandardSave(arrays))

    def steps(self) -> list[int]:
        """Steps of the states, the newest first."""
        return sorted(self._manager.all_steps(), reverse=True)

    def restore(self, like: TrainState) -> TrainState | None:
        """The newest state that is whole, or None where there is none at all; `like` gives the structure."""
        damaged: dict[int, str] = {}
        for step in self.steps():
            try:
                arrays = self._read(step)
            except Exception as error:  # whatever Orbax and what stands below it make of damaged files
                damaged[step] = _short(error)
                continue
            self._set_aside(damaged, instead=step)
            return from_dict(like, arrays, where=f"the checkpoint of step {step}")
        if damaged:
            steps = ", ".join(f"step {step} ({why})" for step, why in damaged.items())
            raise InputError(
                f"no checkpoint in {self.folder} can be read: {steps}. The best weights may be whole: `ffjord evaluate`"
                f" tells. To train again from the first step, remove {self.folder} and resume."
            )
        return None

    def wait(self) -> None:
        """Waits until everything is written."""
        with _told("the last checkpoint could not be written"):
            self._manager.wait_until_finished()

    def close(self) -> None:
        """Waits until everything is written, and ends."""
        self.wait()
        with _told("the checkpoints could not be closed"):
            self._manager.close()
            self._reader.close()

    def _read(self, step: int) -> dict[str, np.ndarray]:
        restored: Any = self._reader.restore(self.folder / str(step) / "default")
        arrays = {name: np.asarray(array) for name, array in restored.items()}
        if int(arrays.pop(_CHECKSUM)) != int(_checksum(arrays)):
            raise ValueError("its content is not what was written")
        return arrays

    def _set_aside(self, damaged: dict[int, str], *, instead: int) -> None:
        for step, why in damaged.items():
            place = self.folder.parent / "damaged" / str(step)
            with _told(f"the damaged checkpoint of step {step} could not be moved"):
                place.parent.mkdir(exist_ok=True)
                (self.folder / str(step)).rename(_free(place))
            self._warn(f"the checkpoint of step {step} is damaged ({why}); going on from step {instead}.")
        if damaged:
            self._manager.reload()


def _checksum(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """CRC-32 over names and bytes."""
    value = 0
    for name in sorted(arrays):
        value = zlib.crc32(np.ascontiguousarray(arrays[name]).tobytes(), zlib.crc32(name.encode(), value))
    return np.asarray(value, np.uint32)


def _free(place: Path) -> Path:
    """A name that is not taken."""
    names = [place, *(place.with_name(f"{place.name}.{i}") for i in range(1, 1000))]
    return next(name for name in names if not name.exists())


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Turns the errors of Orbax and of the system into ours."""
    try:
        yield
    except Answer:
        raise
    except Exception as error:
        raise StorageError(f"{what} ({_short(error)}).") from error


def _short(error: Exception) -> str:
    """What an error says, in a line of bearable length."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = str(error)
    for known in ("No space left on device", "Read-only file system", "Permission denied"):
        if known in text:
            return known
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return first if len(first) <= 100 else first[:97] + "..."
