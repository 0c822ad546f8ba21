"""Invertible maps with log-determinants."""

from ffjord.bijections.base import AbstractBijection as AbstractBijection
from ffjord.bijections.base import Report as Report
from ffjord.bijections.base import Transformed as Transformed
from ffjord.bijections.chain import Chain as Chain
from ffjord.bijections.cnf import CNF as CNF
from ffjord.bijections.cnf import Numerics as Numerics
from ffjord.bijections.cnf import continuous_parts as continuous_parts
from ffjord.bijections.cnf import map_continuous_parts as map_continuous_parts
from ffjord.bijections.coupling import ConvNetwork as ConvNetwork
from ffjord.bijections.coupling import Coupling as Coupling
from ffjord.bijections.coupling import DenseNetwork as DenseNetwork
from ffjord.bijections.coupling import glow_step as glow_step
from ffjord.bijections.foreign import FromFlowjax as FromFlowjax
from ffjord.bijections.gaussianize import Marginals as Marginals
from ffjord.bijections.gaussianize import Radial as Radial
from ffjord.bijections.linear import EachPlace as EachPlace
from ffjord.bijections.linear import LULinear as LULinear
from ffjord.bijections.norm import ActNorm as ActNorm
from ffjord.bijections.norm import MovingNorm as MovingNorm
from ffjord.bijections.norm import Standardize as Standardize
from ffjord.bijections.recurrent import Recurrent as Recurrent
from ffjord.bijections.repeated import Repeated as Repeated
from ffjord.bijections.sigmoidal import SigmoidalAutoregressive as SigmoidalAutoregressive
