"""The words that a configuration may use. Free of JAX, so that `--help` answers at once."""

from typing import Literal

LayerKind = Literal["ignore", "concat", "squash", "concatsquash", "hyper", "blend"]
ConvKind = Literal["ignore", "concat", "squash", "concatsquash", "hyper", "blend", "concatcoord"]
NonlinearityName = Literal["tanh", "softplus", "elu", "swish", "relu", "square", "identity"]
DivergenceName = Literal["auto", "exact", "closed-form", "hutchinson", "orthogonal", "hutch++", "bottleneck"]
NoiseKind = Literal["gaussian", "rademacher"]
MethodName = Literal["dopri5", "tsit5", "dopri8", "bosh3", "heun", "kvaerno5", "euler", "midpoint", "rk4"]
Steps = Literal["batch", "worst", "sample"]
Gradient = Literal["checkpointed", "adjoint", "direct"]
NormKind = Literal["none", "moving", "act"]
GaussianizeKind = Literal["none", "marginal", "radial", "levels"]
ModelKind = Literal["ffjord", "nice", "real-nvp", "glow", "planar", "made", "maf", "iaf", "tan", "maf-ddsf"]
DynamicsName = Literal["mlp", "residual", "planar", "conv", "encoder-decoder", "unet", "mixture"]
FlowObjective = Literal["likelihood", "flow-matching"]
ObjectiveName = Literal["likelihood", "flow-matching", "elbo"]
CouplingName = Literal["independent", "optimal"]
InterpolantName = Literal["straight", "trigonometric"]
TimesName = Literal["uniform", "stratified", "logit-normal", "late"]
ScheduleName = Literal["constant", "cosine", "drop"]
Amortization = Literal["low-rank", "bias", "full", "none"]
PosteriorName = Literal["none", "planar", "iaf", "orthogonal", "householder", "triangular", "ffjord"]
