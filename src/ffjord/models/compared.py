"""The models that the paper compares with, by their kind (`ModelConfig.kind`).

A recipe has the signature (dim, model, *, condition_size, key) -> Flow. It reads of the configuration what it needs:
`flows` layers, networks with `hidden` widths and `nonlinearity`, and `components`.
"""

from collections.abc import Callable

from ffjord.flow import Flow

Recipe = Callable[..., Flow]

COMPARED: dict[str, Recipe] = {}
