"""The models that the paper compares with, by their kind (`ModelConfig.kind`).

A recipe has the signature (dim, model, *, condition_size, key) -> Flow. It reads of the configuration what it needs:
`flows` layers, networks with `hidden` widths and `nonlinearity`, and `components`.
"""

from collections.abc import Callable

from ffjord.flow import Flow
from ffjord.models.autoregressive import iaf, made, maf
from ffjord.models.coupling import glow, nice, real_nvp
from ffjord.models.ddsf import maf_ddsf
from ffjord.models.planar import planar
from ffjord.models.tan import tan

Recipe = Callable[..., Flow]

COMPARED: dict[str, Recipe] = {
    "nice": nice,
    "real-nvp": real_nvp,
    "glow": glow,
    "planar": planar,
    "made": made,
    "maf": maf,
    "iaf": iaf,
    "tan": tan,
    "maf-ddsf": maf_ddsf,
}
