"""What maps in closed form make of the paper's tables before any training: test likelihood, beside one Gaussian's.

python -m benchmarks.gaussianized --data-dir DIR
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

from ffjord.bijections import Marginals, Radial
from ffjord.data.gaussian import gaussian_log_likelihood
from ffjord.data.sets import SETS, found_forms, load
from ffjord.flow import Flow, StandardNormal
from ffjord.scoring import score

ROWS = 2**19


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir")
    data_dir = parser.parse_args().data_dir
    print("| set | one Gaussian | marginal | radial |\n|---|---:|---:|---:|")
    for name in SETS:
        if next(found_forms(name, data_dir), None) is None:
            continue
        split = load(name, data_dir)
        if len(split.train):
            losses = [-gaussian_log_likelihood(split.train, split.test)]
            losses += [_loss(kind(SETS[name].dim), split.train[:ROWS], split.test) for kind in (Marginals, Radial)]
            print(f"| {name} | {' | '.join(f'{loss:.2f}' for loss in losses)} |")


def _loss(bijection, train: np.ndarray, test: np.ndarray) -> float:
    fitted = bijection.calibrate(jnp.asarray(train), key=jax.random.key(0))
    flow = Flow(StandardNormal(train.shape[1:]), fitted)
    return -float(np.mean(score(flow, test).log_prob, dtype=np.float64))


if __name__ == "__main__":
    main()
