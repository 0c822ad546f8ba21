"""Invertible maps with log-determinants."""

from ffjord.bijections.base import AbstractBijection as AbstractBijection
from ffjord.bijections.base import Report as Report
from ffjord.bijections.base import Transformed as Transformed
from ffjord.bijections.chain import Chain as Chain
from ffjord.bijections.cnf import CNF as CNF
from ffjord.bijections.cnf import Numerics as Numerics
from ffjord.bijections.norm import ActNorm as ActNorm
from ffjord.bijections.norm import MovingNorm as MovingNorm
from ffjord.bijections.norm import Standardize as Standardize
