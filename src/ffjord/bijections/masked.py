"""Real NVP's couplings of images: by a checkerboard of places, or by channels."""

from typing import Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from ffjord.bijections.base import AbstractBijection, Report, Transformed
from ffjord.bijections.coupling import ConvNetwork
from ffjord.bijections.linear import EachPlace
from ffjord.bijections.norm import ActNorm

Pattern = Literal["checkerboard", "channels"]


class MaskedCoupling(AbstractBijection):
    """z = b x + (1 - b) (x exp(s) + t) with s, t = network(b x) and b a pattern of zeros and ones (Dinh et al. 2017).

        log |det dz/dx| = Σ (1 - b) s,    s = c tanh(raw s), c trained

    **Arguments:**

    - `shape`: (height, width, channels).
    - `width`: filters of the network.
    - `pattern`: what is kept: every other place, or the first half of the channels. `flipped`: the others instead.
    """

    network: ConvNetwork
    log_range: Float[Array, " channels"]
    shape: tuple[int, int, int] = eqx.field(static=True)
    pattern: Pattern = eqx.field(static=True)
    flipped: bool = eqx.field(static=True)

    def __init__(
        self,
        shape: tuple[int, int, int],
        width: int,
        *,
        pattern: Pattern = "checkerboard",
        flipped: bool = False,
        key: PRNGKeyArray,
    ):
        if pattern not in get_args(Pattern):
            raise ValueError(f"pattern must be checkerboard or channels; got {pattern!r}.")
        if pattern == "channels" and shape[-1] < 2:
            raise ValueError(f"shape must end in at least two channels, of which half are kept; got {shape}.")
        self.network = ConvNetwork(shape[-1], 2 * shape[-1], width, key=key)
        self.log_range = jnp.zeros(shape[-1])
        self.shape, self.pattern, self.flipped = shape, pattern, flipped

    def forward(
        self,
        z: Float[Array, "n h w c"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        log_scale, shift = self._log_scale_and_shift(z)
        return _out((z - shift) * jnp.exp(-log_scale), -log_scale)

    def inverse(
        self,
        x: Float[Array, "n h w c"],
        *,
        condition: Shaped[Array, "n ..."] | None = None,
        train: bool = False,
        key: PRNGKeyArray | None = None,
    ) -> Transformed:
        log_scale, shift = self._log_scale_and_shift(x)
        return _out(x * jnp.exp(log_scale) + shift, log_scale)

    def kept(self) -> np.ndarray:
        """b."""
        rows, columns, channels = (np.arange(n) for n in self.shape)
        if self.pattern == "checkerboard":
            kept = np.broadcast_to((rows[:, None, None] + columns[:, None]) % 2 == 0, self.shape)
        else:
            kept = np.broadcast_to(channels < self.shape[-1] // 2, self.shape)
        return ~kept if self.flipped else kept

    def _log_scale_and_shift(self, x: Array) -> tuple[Array, Array]:
        """s and t, both zero where the image is kept."""
        kept = jnp.asarray(self.kept(), x.dtype)
        raw, shift = jnp.split(jax.vmap(self.network)(kept * x), 2, axis=-1)
        return (1 - kept) * jnp.exp(self.log_range) * jnp.tanh(raw), (1 - kept) * shift


def real_nvp_step(
    shape: tuple[int, int, int], width: int, *, pattern: Pattern, flipped: bool, key: PRNGKeyArray
) -> list[AbstractBijection]:
    """The parts of one step of Real NVP on images, from the base to the data: a coupling, and an act-norm."""
    return [
        MaskedCoupling(shape, width, pattern=pattern, flipped=flipped, key=key),
        EachPlace(ActNorm(shape[-1:])),
    ]


def _out(value: Array, log_scale: Array) -> Transformed:
    return Transformed(value, jnp.sum(log_scale, axis=(1, 2, 3)), Report.nothing())
