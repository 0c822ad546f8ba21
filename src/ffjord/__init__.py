"""Continuous normalizing flows: learn a density, score points, draw samples.

The index of the public API. Names are imported when they are first used, so that `ffjord --help` does not wait for JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ffjord._version import __version__ as __version__

if TYPE_CHECKING:
    from ffjord.bijections import CNF as CNF
    from ffjord.bijections import ActNorm as ActNorm
    from ffjord.bijections import Chain as Chain
    from ffjord.bijections import MovingNorm as MovingNorm
    from ffjord.bijections import Numerics as Numerics
    from ffjord.bijections import Standardize as Standardize
    from ffjord.divergence import Bottleneck as Bottleneck
    from ffjord.divergence import ClosedForm as ClosedForm
    from ffjord.divergence import Exact as Exact
    from ffjord.divergence import Hutchinson as Hutchinson
    from ffjord.divergence import HutchPlusPlus as HutchPlusPlus
    from ffjord.divergence import Orthogonal as Orthogonal
    from ffjord.dynamics import MLP as MLP
    from ffjord.errors import InputError as InputError
    from ffjord.errors import SolveError as SolveError
    from ffjord.estimator import FFJORD as FFJORD
    from ffjord.fixed_steps import fewest_steps as fewest_steps
    from ffjord.flow import Flow as Flow
    from ffjord.flow import StandardNormal as StandardNormal
    from ffjord.runs import load_pretrained as load_pretrained
    from ffjord.solve import Solver as Solver

_HOMES = {
    "CNF": "bijections",
    "ActNorm": "bijections",
    "Chain": "bijections",
    "MovingNorm": "bijections",
    "Numerics": "bijections",
    "Standardize": "bijections",
    "Bottleneck": "divergence",
    "ClosedForm": "divergence",
    "Exact": "divergence",
    "HutchPlusPlus": "divergence",
    "Hutchinson": "divergence",
    "Orthogonal": "divergence",
    "MLP": "dynamics",
    "InputError": "errors",
    "FFJORD": "estimator",
    "fewest_steps": "fixed_steps",
    "Flow": "flow",
    "SolveError": "errors",
    "StandardNormal": "flow",
    "load_pretrained": "runs",
    "Solver": "solve",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ffjord' has no attribute {name!r}")
    return getattr(importlib.import_module(f"ffjord.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
