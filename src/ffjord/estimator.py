"""The scikit-learn face: `FFJORD().fit(X)` learns the density of a table's rows."""

import dataclasses
import json
import numbers
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal, get_args

import jax
import numpy as np
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ffjord import automatic, columns
from ffjord.arrays import atomic_file, from_dict, to_dict
from ffjord.automatic import AUTO, is_auto, whole
from ffjord.choices import DivergenceName, DynamicsName, FlowObjective, LayerKind, MethodName, NonlinearityName
from ffjord.data.source import Rows
from ffjord.errors import InputError, SolveError, TrainingError
from ffjord.experiments.build import build_objective
from ffjord.experiments.config import MatchingConfig, ModelConfig, RegularizationConfig, SolveConfig, TrainConfig
from ffjord.flow import Flow
from ffjord.matching import check_matching
from ffjord.models import ffjord
from ffjord.progress import rows_bar
from ffjord.scoring import CHUNK, collect, sample_blocks, score, score_blocks
from ffjord.training import TrainState, initial_state, train

_FORMAT = "ffjord estimator 1"
_TYPES = [np.dtype(code) for code in "dfe?bhilqBHILQ"]  # scored without a copy of the whole table
_REAL = "end_time learning_rate weight_decay validation_fraction rtol atol test_rtol test_atol".split()
_OPTIONAL = ["average", "patience", "max_minutes"]


class FFJORD(DensityMixin, BaseEstimator):
    """A density estimator: a continuous normalizing flow over standardised columns.

        log p(x) = log p_flow(z) - Σ_j log scale_j,   z = (x - mean) / scale

    `mean` and `scale` are computed and applied in float64, outside of the flow, which computes in float32: columns of
    any magnitude, also far from zero (mean 1e8, deviation 1), lose no digits. A part of the rows is held out; the
    weights with the best likelihood on it are kept, and training stops early when they no longer improve.

    **Arguments:**

    - `objective`: `likelihood`, or `flow-matching`: steps of one evaluation instead of a solve, so that many more of
        them can be made; scores are exact likelihoods either way. `"auto"`: likelihood for up to 32 columns, where
        it was as good or better in most of our trials, and flow matching for more (results/estimator_defaults.md);
        likelihood too where `flows`, `matching_steps` or `regularization` ask for it.
    - `dynamics`, `layer`, `nonlinearity`, `flows`, `end_time`: see `ModelConfig`. `"auto"`: a perceptron with tanh for
        the likelihood, a residual network with swish for flow matching.
    - `hidden`: widths of the dynamics' hidden layers. `"auto"`: four times as wide as the table, between 64 and 256 in
        two layers of a perceptron (up to two the divergence is exact at the price of an estimate), between 128 and 256
        in three of a residual network.
    - `matching_steps`: of the steps, how many are flow matching before those of the likelihood (a warm start).
    - `regularization`: coefficients of what makes paths simple, such as `{"kinetic": 0.01}`; see
        `RegularizationConfig` for all names. They act on the likelihood.
    - `steps`: most optimiser steps; the learning rate falls to zero along a cosine over them. `"auto"`: 1000 of the
        likelihood, 3000 of flow matching.
    - `batch_size`: rows a step, fewer where there are fewer.
    - `learning_rate`, `weight_decay`, `average`: of Adam, and the decay of the moving average of weights (or None).
        `"auto"`: a rate of 0.01 for the likelihood, 0.002 for flow matching; a decay of 0.1.
    - `validation_fraction`: part of the rows held out, at least one row.
    - `patience`: validations (one every 50 steps, 150 of flow matching) without improvement until the learning rate
        drops to a tenth, and again until training stops; None for never.
    - `method`, `divergence`, `rtol`, `atol`: how paths are solved in training, see `SolveConfig`.
    - `test_rtol`, `test_atol`: tolerances of validation, scores and samples; their divergence is always exact.
    - `max_minutes`: stop after so many minutes. A stop by the clock is not reproducible.
    - `verbose`: 1 prints a line at every validation, and shows how far scoring is.
    - `random_state`: int, RandomState or None; determines held-out rows, initial weights, batches and noise.

    **Attributes after `fit`:**

    - `flow_`: the trained `Flow`, in standardised units. `mean_`, `scale_`: float64, shape (D,), as above.
    - `n_features_in_`, and `feature_names_in_` if X had column names.
    - `n_steps_`: steps taken. `best_validation_loss_`: -1/m Σ log p(x_i) over the held-out rows, in the data's units.
    - `history_`: a dict a validation: `step`, `loss` (of training, since the last one), `validation_loss`, `seconds`.
    - `model_config_`, `solve_config_`: the settings of `flow_`, with `"auto"` resolved.
    - `condition_mean_`, `condition_scale_`: of the conditions' columns, shape (C,), or None without conditions.

    Reference: Grathwohl et al., FFJORD: Free-form Continuous Dynamics for Scalable Reversible Generative Models, 2019.
    """

    flow_: Flow
    mean_: np.ndarray
    scale_: np.ndarray
    n_features_in_: int
    feature_names_in_: np.ndarray
    n_steps_: int
    best_validation_loss_: float
    history_: list[dict[str, Any]]
    model_config_: ModelConfig
    solve_config_: SolveConfig
    condition_mean_: np.ndarray | None
    condition_scale_: np.ndarray | None

    def __init__(
        self,
        *,
        objective: Literal["auto"] | FlowObjective = "auto",
        matching_steps: int = 0,
        regularization: Mapping[str, float] | None = None,
        dynamics: Literal["auto"] | DynamicsName = "auto",
        hidden: Literal["auto"] | Sequence[int] = "auto",
        layer: LayerKind = "concatsquash",
        nonlinearity: Literal["auto"] | NonlinearityName = "auto",
        flows: int = 1,
        end_time: float = 1.0,
        steps: Literal["auto"] | int = "auto",
        batch_size: int = 256,
        learning_rate: Literal["auto"] | float = "auto",
        weight_decay: Literal["auto"] | float = "auto",
        average: float | None = 0.99,
        validation_fraction: float = 0.1,
        patience: int | None = 5,
        method: MethodName = "dopri5",
        divergence: DivergenceName = "auto",
        rtol: float = 1e-4,
        atol: float = 1e-4,
        test_rtol: float = 1e-7,
        test_atol: float = 1e-7,
        max_minutes: float | None = None,
        verbose: int = 0,
        random_state: int | np.random.RandomState | None = None,
    ):
        self.objective = objective
        self.matching_steps = matching_steps
        self.regularization = regularization
        self.dynamics = dynamics
        self.hidden = hidden
        self.layer = layer
        self.nonlinearity = nonlinearity
        self.flows = flows
        self.end_time = end_time
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.average = average
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.method = method
        self.divergence = divergence
        self.rtol = rtol
        self.atol = atol
        self.test_rtol = test_rtol
        self.test_atol = test_atol
        self.max_minutes = max_minutes
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, conditions: Any = None) -> "FFJORD":
        """Learns the density of the rows of X, shape (n, D), n ≥ 2. `y` is ignored.

        With `conditions`, shape (n, C) or (n,), it learns p(x | c): the density of a row given its row of conditions.
        Classes are given as columns of zeros and ones.
        """
        self._check_types()
        rows = self._rows(X, dtype=np.float64, ensure_min_samples=2)
        mean, scale = columns.statistics(rows, getattr(self, "feature_names_in_", None))
        log_scale = float(np.sum(np.log(scale)))
        z, c, units = columns.standardized(rows, mean, scale), None, (None, None)
        if conditions is not None:
            given = columns.condition_rows(conditions, len(rows))
            units = columns.condition_statistics(given)
            c = columns.standardized(given, *units)
        rng = check_random_state(self.random_state)
        seed = int(rng.randint(np.iinfo(np.int32).max))
        split = columns.split(len(rows), self.validation_fraction, rng)
        state, (model, solve), history = self._trained(z, c, split, seed, log_scale)
        self.flow_, self.mean_, self.scale_ = state.best, mean, scale
        self.condition_mean_, self.condition_scale_ = units
        self.model_config_, self.solve_config_ = model, solve
        self.n_steps_, self.history_ = int(state.step), history
        self.best_validation_loss_ = float(state.best_loss) + log_scale
        return self

    def _trained(
        self,
        z: np.ndarray,
        c: np.ndarray | None,
        split: tuple[np.ndarray, np.ndarray],
        seed: int,
        log_scale: float,
    ) -> tuple[TrainState, tuple[ModelConfig, SolveConfig], list[dict[str, Any]]]:
        """The training's last state, the settings it had and its history, for standardised rows and conditions."""
        part = lambda array, index: None if array is None else array[index]
        (first, kept), dim = split, z.shape[1]
        model, solve, config = self._configs(len(first), dim)
        regularization, history = self._regularization(), _History(log_scale, config, print_lines=bool(self.verbose))
        held_out, seen = z[kept], part(c, first)
        source = Rows(z[first], held_out, held_out, batch_size=config.batch_size, seed=seed, condition=seen)
        size, key = 0 if c is None else c.shape[1], jax.random.key(seed)
        flow = ffjord(dim, model, solve, regularization, condition_size=size, key=key)
        objective = build_objective(config, solve, MatchingConfig(), regularization)
        if config.objective == "flow-matching" or config.warm_start:
            check_matching(flow)
        state = initial_state(flow, source, config, seed=seed)
        validate = lambda flow: {"loss": _validation_loss(flow, held_out, part(c, kept))}
        try:
            state = train(state, source, objective, validate, config, seed=seed, recorder=history)
        except TrainingError as error:
            if not np.isfinite(float(error.state.best_loss)):
                raise
            warnings.warn(f"{error} The best model so far is kept.", ConvergenceWarning, stacklevel=3)
            state = error.state
        if not np.isfinite(float(state.best_loss)):
            raise TrainingError(
                f"training failed: in {int(state.step)} steps no validation could be solved "
                f"({int(state.skipped)} steps were skipped); use a smaller learning_rate or more weight_decay.",
                state,
            )
        return state, (model, solve), history.rows

    def score_samples(self, X: Any, *, conditions: Any = None) -> np.ndarray:
        """log p(x) of every row of X, shape (n, D): n float64 numbers, in nats and in the data's own units.

        After `fit` with conditions, log p(x | c): `conditions` then has a row for each row of X, or is one for all.

        A row's score does not depend on the other rows, but for the solver's tolerance. Past about 1e19 standard
        deviations, where float32 ends, it is -inf.
        """
        check_is_fitted(self, "flow_")
        rows = self._rows(X, dtype=_TYPES, reset=False)
        n, parts = len(rows), (rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK))
        blocks = (columns.standardized(part, self.mean_, self.scale_) for part in parts)
        given = self._conditions(conditions, n)
        with rows_bar("scoring") if self.verbose else nullcontext() as progress:
            cut = None if given is None else iter([given])
            scores = collect(score_blocks(self.flow_, blocks, n, conditions=cut, progress=progress), n)
        return scores.log_prob.astype(np.float64) - np.sum(np.log(self.scale_))

    def score(self, X: Any, y: Any = None, *, conditions: Any = None) -> float:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The mean of `score_samples(X)`, as GaussianMixture has it (KernelDensity has the total). `y` is ignored."""
        return float(np.mean(self.score_samples(X, conditions=conditions)))

    def sample(
        self,
        n_samples: int = 1,
        random_state: int | np.random.RandomState | None = None,
        *,
        conditions: Any = None,
    ) -> np.ndarray:
        """Draws rows from the density: shape (n_samples, D), float64, new ones at every call without `random_state`.

        After `fit` with conditions, from p(x | c): `conditions` has a row for each sample, or is one for all.
        """
        check_is_fitted(self, "flow_")
        n = whole("n_samples", n_samples)
        key = jax.random.key(int(check_random_state(random_state).randint(np.iinfo(np.int32).max)))
        blocks = sample_blocks(self.flow_, n, conditions=self._conditions(conditions, n), key=key)
        return np.concatenate([self.mean_ + self.scale_ * z for z in blocks])

    def save(self, path: str | Path) -> None:
        """Writes the fitted estimator to one file (an .npz archive without pickle), whole or not at all.

        A `random_state` that is not a number is stored as None.
        """
        check_is_fitted(self, "flow_")
        header = {
            "format": _FORMAT,
            "params": self.get_params(),
            "model": dataclasses.asdict(self.model_config_),
            "solve": dataclasses.asdict(self.solve_config_),
            "names": list(self.feature_names_in_) if hasattr(self, "feature_names_in_") else None,
            "fitted": {name: getattr(self, name) for name in ("n_steps_", "best_validation_loss_", "history_")},
        }
        arrays = {f"flow{name}": array for name, array in to_dict(self.flow_).items()}
        text = np.array(json.dumps(header, default=_plain))
        units = {"mean": self.mean_, "scale": self.scale_}
        if self.condition_mean_ is not None and self.condition_scale_ is not None:
            units |= {"condition_mean": self.condition_mean_, "condition_scale": self.condition_scale_}
        with atomic_file(Path(path)) as file:
            np.savez(file, estimator=text, **units, **arrays)  # pyright: ignore[reportArgumentType]

    @classmethod
    def load(cls, path: str | Path) -> "FFJORD":
        """Reads what `save` wrote; the scores are the same to the last bit."""
        arrays = _read(path)
        try:
            header = json.loads(str(arrays.pop("estimator")))
            if header["format"] != _FORMAT:
                raise InputError(f"{path} is a {header['format']!r}; this version reads {_FORMAT!r}.")
            estimator = cls(**_tuples(header["params"]))
            estimator.model_config_ = ModelConfig(**_tuples(header["model"]))
            estimator.solve_config_ = SolveConfig(**header["solve"])
            estimator.mean_, estimator.scale_ = arrays.pop("mean"), arrays.pop("scale")
            estimator.condition_mean_ = arrays.pop("condition_mean", None)
            estimator.condition_scale_ = arrays.pop("condition_scale", None)
            estimator.n_features_in_ = len(estimator.mean_)
            if header["names"] is not None:
                estimator.feature_names_in_ = np.array(header["names"], dtype=object)
            vars(estimator).update(header["fitted"])
            weights = {name.removeprefix("flow"): array for name, array in arrays.items()}
            dim, configs = len(estimator.mean_), (estimator.model_config_, estimator.solve_config_)
            size = 0 if estimator.condition_mean_ is None else len(estimator.condition_mean_)
            like = ffjord(dim, *configs, estimator._regularization(), condition_size=size, key=jax.random.key(0))
            estimator.flow_ = from_dict(like, weights, where=str(path))
        except InputError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path} is not a saved FFJORD estimator, or of another version ({error!r}).") from error
        return estimator

    def _rows(self, X: Any, **checks: Any) -> np.ndarray:
        """The table, as scikit-learn's conventions want it; a masked entry is a missing value, and refused."""
        if np.ma.is_masked(X):
            raise InputError("X has masked entries, which are missing values; fill them in or leave their rows out.")
        try:
            return np.asarray(validate_data(self, X, **checks))
        except OverflowError as error:
            raise InputError(f"X holds a number that is too large for float64 ({error}).") from error

    def _conditions(self, conditions: Any, n: int) -> np.ndarray | None:
        """Standardised conditions for n rows."""
        if self.condition_mean_ is None or self.condition_scale_ is None:
            if conditions is not None:
                raise InputError("conditions were given, but the estimator was fitted without; leave them out.")
            return None
        size = len(self.condition_mean_)
        if conditions is None:
            raise InputError(f"conditions are missing: the estimator was fitted with {size} columns of them.")
        rows = np.asarray(conditions)
        one_for_all = rows.shape in ((), (size,)) and not (size == 1 and rows.shape == (n,))
        rows = columns.condition_rows(np.reshape(rows, (1, size)) if one_for_all else rows, 1 if one_for_all else n)
        if rows.shape[1] != size:
            raise InputError(f"conditions must have {size} columns, as in fit; got {rows.shape[1]}.")
        return np.broadcast_to(columns.standardized(rows, self.condition_mean_, self.condition_scale_), (n, size))

    def _regularization(self) -> RegularizationConfig:
        given = self.regularization
        if given is None:
            return RegularizationConfig()
        names = [field.name for field in dataclasses.fields(RegularizationConfig)]
        if not isinstance(given, Mapping) or not set(given) <= set(names):
            raise InputError(f"regularization must map names ({', '.join(names)}) to coefficients; got {given!r}.")
        for name, value in given.items():
            if not _is_real(value):
                raise InputError(f"regularization[{name!r}] must be a number; got {value!r}.")
        order = whole("derivative_order", given.get("derivative_order", 1))
        return RegularizationConfig(**{**given, "derivative_order": order})

    def _check_types(self) -> None:
        """Refuses parameters of the wrong kind; ranges and names are checked where they are used."""
        for name in ("objective", "dynamics", "layer", "nonlinearity", "method", "divergence"):
            if not isinstance(getattr(self, name), str):
                raise InputError(f"{name} must be a name; got {getattr(self, name)!r}.")
        if self.objective not in ("auto", *get_args(FlowObjective)):
            known = ", ".join(get_args(FlowObjective))
            raise InputError(f"objective must be one of {known}; got {self.objective!r}.")
        for name in ("flows", "batch_size", *([] if is_auto(self.steps) else ["steps"])):
            whole(name, getattr(self, name))
        whole("matching_steps", self.matching_steps, least=0)
        self._regularization()
        for name in (*_REAL, *_OPTIONAL):
            value, optional = getattr(self, name), name in _OPTIONAL
            sound = optional if value is None else _is_real(value) or (name in AUTO["likelihood"] and is_auto(value))
            if not sound:
                raise InputError(f"{name} must be a number{' or None' if optional else ''}; got {value!r}.")

    def _configs(self, n: int, dim: int) -> tuple[ModelConfig, SolveConfig, TrainConfig]:
        """The settings for n training rows of `dim` columns."""
        return automatic.configs(self.get_params(), n, dim)


def _is_real(value: Any) -> bool:
    """Whether it is a number that float64 can hold."""
    try:
        return isinstance(value, numbers.Real) and not np.isnan(float(value))
    except OverflowError:
        return False


class _History:
    """Keeps a row a validation, in the data's units, and prints it if that is wanted.

    The loss of flow matching is no likelihood, and has no units.
    """

    def __init__(self, log_scale: float, config: TrainConfig, *, print_lines: bool):
        self.rows: list[dict[str, Any]] = []
        self._losses: list[float] = []
        self._log_scale, self._of = log_scale, config.steps if print_lines else None
        self._matching = config.steps if config.objective == "flow-matching" else config.warm_start

    def steps(self, rows: list[dict[str, Any]]) -> None:
        self._losses += [row["loss"] for row in rows if row["sound"]]

    def validated(self, row: dict[str, Any], state: TrainState, improved: bool) -> None:
        loss = float(np.mean(self._losses)) if self._losses else float("nan")
        shift = 0.0 if row["step"] <= self._matching else self._log_scale
        losses = {"loss": loss + shift, "validation_loss": row["validation_loss"] + self._log_scale}
        self.rows.append({"step": row["step"], **losses, "seconds": row["seconds"]})
        self._losses = []
        if self._of is not None:
            both = f"loss {losses['loss']:.4f}, validation loss {losses['validation_loss']:.4f}"
            print(f"step {row['step']} of {self._of}: {both}{' (best)' if improved else ''}, {row['seconds']:.1f} s")

    def event(self, row: dict[str, Any]) -> None:
        if self._of is not None:
            print(f"step {row['step']} of {self._of}: {row['event']} ({row['reason']})")

    def boundary(self, state: TrainState) -> None: ...


def _validation_loss(flow: Flow, z: np.ndarray, conditions: np.ndarray | None) -> float:
    """The mean negative log-likelihood; infinite where a solve fails, so that such a model is never the best.

    Rounded to float32, as the training state keeps it: an equal loss must not look like a better one.
    """
    try:
        return float(np.float32(-np.mean(score(flow, z, conditions=conditions).log_prob, dtype=np.float64)))
    except SolveError:
        return float("inf")


def _read(path: str | Path) -> dict[str, np.ndarray]:
    try:
        with zipfile.ZipFile(path):  # so that a lone .npy array is refused too
            pass
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except FileNotFoundError as error:
        raise InputError(f"{path}: there is no such file.") from error
    except Exception as error:  # damaged bytes fail in many ways: BadZipFile, zlib.error, TokenError, …
        raise InputError(f"{path} is damaged or not a saved FFJORD estimator ({error}).") from error


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays as Python's, for JSON."""
    if isinstance(value, np.random.RandomState):
        return None
    return np.asarray(value).tolist()


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
