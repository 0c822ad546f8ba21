"""What is measured: a network with given weights, points, tolerance. All peers compute the same function.

The network has the paper's layers,

    layer(t, x) = (W x + b) ∘ sigmoid(t g + c) + t h          (concatsquash)

with a nonlinearity between them, and drives dz/dt = f(t, z) from the base (t = 0) to the data (t = T).
"""

import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np

NAMES = {
    "weight": "linear.weight",
    "bias": "linear.bias",
    "gate": "gate.weight",
    "gate_bias": "gate.bias",
    "shift": "shift.weight",
}
"""Arrays of a layer, and their names in a weights file."""


@dataclasses.dataclass(frozen=True)
class Work:
    """Sizes and settings of one row of the table."""

    name: str
    dim: int
    hidden: tuple[int, ...]
    nonlinearity: str
    batch: int
    end_time: float = 1.0
    tolerance: float = 1e-5
    seed: int = 0
    pretrained: str | None = None
    train_steps: int = 1
    """Training steps in a row that are timed together."""

    def weights(self) -> list[dict[str, np.ndarray]]:
        """Arrays of every layer: of a shipped flow, or random ones of the usual size (normal, variance 1 / inputs)."""
        if self.pretrained is not None:
            return _shipped(self.pretrained)
        rng = np.random.default_rng(self.seed)
        sizes = (self.dim, *self.hidden, self.dim)
        normal = lambda *shape, scale=1.0: (scale * rng.normal(size=shape)).astype(np.float32)
        return [
            {
                "weight": normal(n_out, n_in, scale=n_in**-0.5),
                "bias": normal(n_out, scale=0.1),
                "gate": normal(n_out),
                "gate_bias": normal(n_out),
                "shift": normal(n_out, scale=0.5),
            }
            for n_in, n_out in itertools.pairwise(sizes)
        ]

    def points(self) -> np.ndarray:
        """Points to train on and to score."""
        if self.pretrained is not None:
            rng = np.random.default_rng(self.seed + 1)
            return rng.uniform(-4, 4, size=(self.batch, self.dim)).astype(np.float32)
        return self._normal(self.seed + 1)

    def noise(self) -> np.ndarray:
        """ε for every point, where accuracy is measured; in training every library draws its own."""
        return self._normal(self.seed + 2)

    def base_points(self) -> np.ndarray:
        """Where samples start, where accuracy is measured."""
        return self._normal(self.seed + 3)

    def _normal(self, seed: int) -> np.ndarray:
        return np.random.default_rng(seed).normal(size=(self.batch, self.dim)).astype(np.float32)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Work":
        values = json.loads(text)
        return cls(**values | {"hidden": tuple(values["hidden"])})


def _shipped(name: str) -> list[dict[str, np.ndarray]]:
    file = Path(__file__).parents[2] / "src" / "ffjord" / "pretrained" / name / "weights.npz"
    with np.load(file) as arrays:
        count = 1 + max(int(key.split("[")[1].split("]")[0]) for key in arrays.files if "layers[" in key)
        layer = lambda i, key: arrays[f".bijection.dynamics.layers[{i}].{key}"]
        return [
            {name: layer(i, key) if name == "weight" else layer(i, key).ravel() for name, key in NAMES.items()}
            for i in range(count)
        ]
