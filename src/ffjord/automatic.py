"""Settings that fit a table: what "auto" stands for. Shared by the estimator and `ffjord fit`. Free of JAX."""

import dataclasses
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from ffjord.errors import InputError
from ffjord.experiments.config import ModelConfig, SolveConfig, TrainConfig

AUTO: dict[str, dict[str, Any]] = {
    "likelihood": {
        "dynamics": "mlp",
        "nonlinearity": "tanh",
        "steps": 1000,
        "learning_rate": 1e-2,
        "weight_decay": 0.1,
        "validate_every": 50,
    },
    "flow-matching": {
        "dynamics": "residual",
        "nonlinearity": "swish",
        "steps": 3000,
        "learning_rate": 2e-3,
        "weight_decay": 0.1,
        "validate_every": 150,
    },
}
"""What "auto" stands for, with each objective; measured in docs/fewer_evaluations.md."""

DEFAULTS: dict[str, Any] = {
    "objective": "auto",
    "hidden": "auto",
    "end_time": 1.0,
    "batch_size": 256,
    "average": 0.99,
    "patience": 5,
    "rtol": 1e-4,
    "atol": 1e-4,
    "test_rtol": 1e-7,
    "test_atol": 1e-7,
}
"""The estimator's other settings where they differ from those of an experiment."""

_FEW = 32
"""Columns up to which the likelihood is the better objective, by results/estimator_defaults.md: better on tables of 2
and 30 columns, about as good on those of 4 and 13, and worse on one of 64."""


def configs(params: Mapping[str, Any], n: int, dim: int) -> tuple[ModelConfig, SolveConfig, TrainConfig]:
    """The settings for n training rows of `dim` columns: those given, and "auto" for those that are not."""
    params = resolved(params, dim)
    model = _config(ModelConfig, params)
    closed = model.dynamics == "mlp" and len(model.hidden) <= 2
    solve = _config(SolveConfig, params, test_divergence="closed-form" if closed else "exact")
    batch_size = min(params["batch_size"], 1 << (n.bit_length() - 1))  # a power of two: folds share a compilation
    warm_start = params.get("matching_steps", 0)
    return model, solve, _config(TrainConfig, params, batch_size=batch_size, warm_start=warm_start, drops=1)


def resolved(params: Mapping[str, Any], dim: int) -> dict[str, Any]:
    """All parameters for a table of `dim` columns, with what stands for "auto"."""
    params = dict(params)
    if is_auto(params["objective"]):
        asked = params.get("flows", 1) > 1 or params.get("matching_steps", 0) > 0
        solved = dim <= _FEW or asked or params.get("regularization") is not None
        params["objective"] = "likelihood" if solved else "flow-matching"
    auto = AUTO.get(params["objective"], AUTO["likelihood"])
    params |= {name: value for name, value in auto.items() if is_auto(params.get(name, "auto"))}
    residual = params["dynamics"] == "residual"
    width = min(max(128 if residual else 64, 4 * dim), 256)
    hidden = (width,) * (3 if residual else 2) if is_auto(params["hidden"]) else params["hidden"]
    if not isinstance(hidden, list | tuple | np.ndarray):
        raise ValueError(f'hidden must be "auto" or a sequence of widths such as (64, 64); got {hidden!r}.')
    return params | {"hidden": tuple(whole("hidden", width) for width in hidden)}


def is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def whole(name: str, value: Any, *, least: int = 1) -> int:
    """A whole number, at least 1, or what else is the least."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise InputError(f"{name} must be a whole number and at least {least}; got {value!r}.")
    return number


def _config(kind: Any, params: dict[str, Any], **fields: Any) -> Any:
    """A configuration with the given fields, and the parameters that it knows."""
    names = {field.name for field in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in params.items() if name in names} | fields)
