"""Still pictures of a flow over images: samples beside data, and images on the way from one to another."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray
from matplotlib.figure import Figure

from ffjord.compilation import compiled
from ffjord.data.source import Conditioned
from ffjord.divergence import Skipped
from ffjord.errors import SolveError
from ffjord.flow import Flow
from ffjord.report.evaluate import check_data, for_pictures
from ffjord.report.mosaic import Images, Mosaic, mosaic, new_page, scale_of, show
from ffjord.report.style import DATA, MODEL, MUTED, draw_title
from ffjord.report.subject import round_trip, with_divergence
from ffjord.solve import MESSAGES, OK

_COLUMNS = 12
_EDGE, _HEAD, _TITLE, _FOOT, _APART = 42, 42, 58, 60, 15
"""Pixels around and between panels."""


def images_at(
    flow: Flow, n: int, *, time: float = 1.0, temperature: float = 1.0, key: PRNGKeyArray
) -> Float[np.ndarray, "n h w c"]:
    """n samples on their way at a time, as pixels: from z to the image by all maps that are not continuous, and by
    the continuous ones until the time. The same key gives the same z, times the temperature."""
    return np.asarray(flow.tempered(temperature).at(time).sample(n, key=key))


def figure_of_samples(
    flow: Flow,
    data: Images | None,
    *,
    levels: int,
    n: int,
    temperatures: Sequence[float],
    title: str | None = None,
    key: PRNGKeyArray,
) -> Figure:
    """Images of the data above samples from z ~ N(0, T²) for each temperature T, with the same z but for T.

    **Arguments:**

    - `data`: images to compare with, of which n are shown; None for a picture of samples alone.
    - `levels`: how many grey levels the data have.
    - `n`: how many samples of each temperature.
    """
    if n < 1 or not temperatures:
        raise ValueError(f"need at least one sample and one temperature; got n={n}, temperatures={temperatures}.")
    flow, shown = for_pictures(flow), {}
    if data is not None:
        shown["test images"] = check_data(flow, data)[:n], DATA
    for temperature in temperatures:
        shown[f"samples, T = {temperature:g}"] = images_at(flow, n, temperature=temperature, key=key), MODEL
    columns = columns_of(n)
    return stacked({name: (tiles_of(x, levels, columns), colour) for name, (x, colour) in shown.items()}, title)


class Interpolation(NamedTuple):
    """Images from one end to the other, and how far the ends are from the given images."""

    x: Float[np.ndarray, "pairs steps h w c"]
    mean_error: float
    """Mean of |x - forward(inverse(x))| over all pixels of both ends, in grey levels."""
    max_error: float


def interpolate(flow: Flow, start: Images, end: Images, *, levels: int, steps: int = 11) -> Interpolation:
    """x_w = forward(z_w), where z_w runs along the sphere from inverse(start) to inverse(end) as w from 0 to 1.

    The ends come back by the testing solver, so that they are the given images up to its tolerance; the images between
    them by that of pictures.
    """
    if steps < 2:
        raise ValueError(f"steps must be at least 2, the two ends; got {steps}.")
    given = np.concatenate([check_data(flow, start), check_data(flow, end)])
    back = round_trip(flow, Conditioned(given, None))
    first, last = np.split(back.z, 2)
    z = spherical(first, last, steps)
    between = _images_of(for_pictures(flow), z[:, 1:-1].reshape(-1, *flow.event_shape)) if steps > 2 else z[:, :0]
    first, last = np.split(back.x[:, None], 2)
    x = np.concatenate([first, between.reshape(len(z), steps - 2, *flow.event_shape), last], axis=1)
    error = levels * np.abs(back.x.astype(np.float64) - given)
    return Interpolation(x, float(error.mean()), float(error.max()))


def figure_of_interpolation(
    flow: Flow, data: Images, *, levels: int, pairs: int = 4, steps: int = 11, title: str | None = None
) -> Figure:
    """From every second image of the data to its neighbour, and how exactly the ends come back."""
    if not 1 <= 2 * pairs <= len(data):
        raise ValueError(f"pairs must be from 1 to half of the {len(data)} images; got {pairs}.")
    found = interpolate(flow, data[: 2 * pairs : 2], data[1 : 2 * pairs : 2], levels=levels, steps=steps)
    parts = {
        "from": (found.x[:, :1], DATA),
        "along the sphere of z": (found.x[:, 1:-1], MODEL),
        "to": (found.x[:, -1:], DATA),
    }
    tiles = {name: (tiles_of(x, levels, x.shape[1]), colour) for name, (x, colour) in parts.items() if x.shape[1]}
    return _side_by_side(tiles, _told(found, levels), title)


def spherical(
    start: Float[np.ndarray, "n *event"], end: Float[np.ndarray, "n *event"], steps: int
) -> Float[np.ndarray, "n steps *event"]:
    """Points on the way from start to end: their directions turn evenly, and their lengths change evenly.

        z_w = r_w (sin((1-w) θ) u + sin(w θ) v) / sin θ,   r_w = (1-w) |start| + w |end|,

    for directions u and v with the angle θ between them.
    """
    a, b = (part.reshape(len(part), 1, -1).astype(np.float64) for part in (start, end))
    lengths = [np.linalg.norm(part, axis=-1, keepdims=True) for part in (a, b)]
    u, v = a / lengths[0], b / lengths[1]
    angle = 2 * np.arctan2(np.linalg.norm(u - v, axis=-1), np.linalg.norm(u + v, axis=-1))[..., None]
    w = np.linspace(0, 1, steps)[:, None]
    turned = _share(1 - w, angle) * u + _share(w, angle) * v
    z = ((1 - w) * lengths[0] + w * lengths[1]) * turned
    return z.reshape(len(a), steps, *start.shape[1:]).astype(start.dtype)


def _share(w: Float[np.ndarray, "steps 1"], angle: Float[np.ndarray, "n 1 1"]) -> Float[np.ndarray, "n steps 1"]:
    """sin(w θ)/sin θ, which is w where θ = 0."""
    sine = np.sin(angle)
    return np.where(sine > 1e-9, np.sin(w * angle) / np.where(sine > 1e-9, sine, 1.0), w)


def _images_of(flow: Flow, z: Float[np.ndarray, "n h w c"]) -> Float[np.ndarray, "n h w c"]:
    x, outcome = _forward(with_divergence(flow, lambda cnf: Skipped()), jnp.asarray(z, flow.dtype))
    if np.any(np.asarray(outcome) != OK):
        raise SolveError(MESSAGES[int(np.max(outcome))])
    return np.asarray(x)


@compiled
def _forward(flow: Flow, z: Any) -> Any:
    out = flow.bijection.forward(z)
    return out.value, out.report.outcome


def columns_of(n: int) -> int:
    """How many of n images a row: rows of equal length, if there can be such."""
    return -(-n // -(-n // _COLUMNS))


def tiles_of(x: Float[np.ndarray, "*n h w c"], levels: int, columns: int) -> Mosaic:
    """Images of so many levels, row by row."""
    images = x.reshape(-1, *x.shape[-3:])
    return mosaic(images, levels=levels, columns=columns, scale=scale_of(images.shape[1:]))


def stacked(panels: dict[str, tuple[Mosaic, str]], title: str | None) -> Figure:
    """Panels of one width, one below the other."""
    tiles = [part for part, _ in panels.values()]
    bottom = _EDGE + sum(len(part) + _HEAD for part in tiles)
    page = new_page(tiles[-1].shape[1] + 2 * _EDGE, bottom + _top(title))
    draw_title(page, title, _EDGE / page.dpi)
    for name, (part, colour) in panels.items():
        bottom -= _HEAD + len(part)
        show(page, part, _EDGE, bottom, title=name, colour=colour)
    return page


def _side_by_side(panels: dict[str, tuple[Mosaic, str]], note: str, title: str | None) -> Figure:
    """Panels of one height, and a quiet line below them."""
    tiles, left = [part for part, _ in panels.values()], _EDGE
    width = sum(part.shape[1] + _APART for part in tiles) - _APART
    page = new_page(width + 2 * _EDGE, _FOOT + len(tiles[0]) + _HEAD + _top(title))
    draw_title(page, title, _EDGE / page.dpi)
    for name, (part, colour) in panels.items():
        show(page, part, left, _FOOT, title=name, colour=colour)
        left += part.shape[1] + _APART
    page.text(_EDGE / page.bbox.width, 0.4 * _FOOT / page.bbox.height, note, color=MUTED, fontsize=8, va="center")
    return page


def _told(found: Interpolation, levels: int) -> str:
    mean, most = (np.format_float_positional(e, 1, fractional=False, trim="-") for e in found[1:])
    there = "Ends: test images, there and back through the flow; off by"
    return f"{there} {mean} of {levels} grey levels on average, {most} at most."


def _top(title: str | None) -> int:
    return _TITLE if title else 0
