"""f(t, z): what may stand on the right of dz/dt.

Any callable pytree that maps a scalar t and one sample z to dz/dt is a dynamics; of a density with conditions,
p(x | c), one that maps t, z and c. Optional abilities are found by their names: `encode`/`decode` (the waist, for
`Bottleneck`), `value_and_divergence` (for `ClosedForm`), `prepare` (what of a condition is computed once, before the
solve), `prepare_forms`/`value_and_forms` (for `Hutchinson`: what of its noise is), and `rows_to_calibrate`/`calibrate`
(what data set before training).
"""

from ffjord.dynamics.conv import ConvNet as ConvNet
from ffjord.dynamics.conv import EncoderDecoder as EncoderDecoder
from ffjord.dynamics.convolution import AbstractTimeConvolution as AbstractTimeConvolution
from ffjord.dynamics.convolution import Convolution as Convolution
from ffjord.dynamics.convolution import time_convolution as time_convolution
from ffjord.dynamics.given import Given as Given
from ffjord.dynamics.layers import AbstractTimeLinear as AbstractTimeLinear
from ffjord.dynamics.layers import LinearMap as LinearMap
from ffjord.dynamics.layers import time_linear as time_linear
from ffjord.dynamics.mixture import PixelMixture as PixelMixture
from ffjord.dynamics.mlp import MLP as MLP
from ffjord.dynamics.mlp import nonlinearity as nonlinearity
from ffjord.dynamics.planar import Planar as Planar
from ffjord.dynamics.residual import ResidualMLP as ResidualMLP
from ffjord.dynamics.unet import UNet as UNet
