"""Training states on disk, by Orbax: written in the background, visible only when whole."""

import logging
from pathlib import Path

import jax
import numpy as np

from ffjord.arrays import from_dict, to_dict
from ffjord.training.state import TrainState


class Checkpoints:
    """The last few states of a run."""

    def __init__(self, folder: Path, *, keep: int = 2):
        import orbax.checkpoint as ocp

        logging.getLogger("absl").setLevel(logging.ERROR)
        options = ocp.CheckpointManagerOptions(max_to_keep=keep, create=True)
        self._orbax, self._manager = ocp, ocp.CheckpointManager(folder.resolve(), options=options)

    def save(self, state: TrainState) -> None:
        """Starts writing a state; returns as soon as the state may change again."""
        step = int(state.step)
        if step not in self._manager.all_steps():
            self._manager.save(step, args=self._orbax.args.StandardSave(to_dict(state)))

    def latest(self) -> int | None:
        """Step of the newest state."""
        return self._manager.latest_step()

    def restore(self, like: TrainState) -> TrainState:
        """The newest state; `like` gives the structure."""
        shapes = {name: jax.ShapeDtypeStruct(a.shape, a.dtype) for name, a in to_dict(like).items()}
        arrays = self._manager.restore(self.latest(), args=self._orbax.args.StandardRestore(shapes))
        return from_dict(like, {name: np.asarray(array) for name, array in arrays.items()}, where="the checkpoint")

    def close(self) -> None:
        """Waits until everything is written."""
        self._manager.wait_until_finished()
        self._manager.close()
