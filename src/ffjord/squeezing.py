"""Squeezing: 2 × 2 pixels become the channels of one place, and back (Dinh et al. 2017)."""

from jaxtyping import Array, Float


def squeezed(x: Float[Array, "*n h w c"]) -> Float[Array, "*n h2 w2 4*c"]:
    """Half the height and width, four times the channels; of one image or of many."""
    *n, h, w, c = x.shape
    if h % 2 or w % 2:
        raise ValueError(f"height and width must be even to be squeezed; got {h} × {w}.")
    blocks = x.reshape(*n, h // 2, 2, w // 2, 2, c)
    return blocks.swapaxes(-4, -3).reshape(*n, h // 2, w // 2, 4 * c)


def unsqueezed(z: Float[Array, "*n h2 w2 c4"]) -> Float[Array, "*n h w c"]:
    """The inverse of `squeezed`."""
    *n, h, w, c = z.shape
    blocks = z.reshape(*n, h, w, 2, 2, c // 4)
    return blocks.swapaxes(-4, -3).reshape(*n, 2 * h, 2 * w, c // 4)
