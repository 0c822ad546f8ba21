"""What `FFJORD(objective="auto")` should stand for: the likelihood against flow matching on small real tables.

    python -m benchmarks.estimator_defaults

Each table is split at random (a fifth for testing); values that are rounded are spread over the unit they were rounded
to. Both objectives have the estimator's own settings. Writes results/estimator_defaults.md.
"""

import os
import platform
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine, make_moons
from sklearn.model_selection import train_test_split

import ffjord

SEEDS = (0, 1)


def tables(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """The tables by name."""
    spread = lambda rows, unit: rows + unit * rng.random(rows.shape)
    load = lambda read: np.asarray(read(return_X_y=True)[0])
    return {
        "moons": make_moons(1500, noise=0.1, random_state=0)[0],
        "iris": spread(load(load_iris), 0.1),
        "wine": spread(load(load_wine), 0.01),
        "breast cancer": load(load_breast_cancer),
        "digits": spread(load(load_digits), 1.0),
    }


def measure(rows: np.ndarray, objective: str, seed: int) -> tuple[float, float]:
    """Test log-likelihood, and seconds of fitting."""
    train, test = train_test_split(rows, test_size=0.2, random_state=seed)
    began = time.perf_counter()
    model = ffjord.FFJORD(objective=objective, random_state=seed).fit(train)  # pyright: ignore[reportArgumentType]
    return model.score(test), time.perf_counter() - began


def main() -> None:
    lines = [
        "# The estimator's objective",
        "",
        "Made by `python -m benchmarks.estimator_defaults`: test log-likelihood in nats (higher is better) and seconds",
        f"of `fit`, compilation included, means over seeds {', '.join(map(str, SEEDS))}, on {os.cpu_count()} shared "
        f"{platform.machine()} cores.",
        "",
        "| table | rows | columns | likelihood | seconds | flow matching | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, rows in tables(np.random.default_rng(0)).items():
        cells = []
        for objective in ("likelihood", "flow-matching"):
            score, seconds = np.mean([measure(rows, objective, seed) for seed in SEEDS], axis=0)
            cells += [f"{score:.3f}", f"{seconds:.0f}"]
        lines.append(f"| {name} | {len(rows)} | {rows.shape[1]} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    Path(__file__).parent.parent.joinpath("results", "estimator_defaults.md").write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
