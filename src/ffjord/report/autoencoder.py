"""Still pictures of a variational autoencoder: reconstructions, samples, and a posterior in the plane."""

from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ffjord.report.grid import Extent, extent_of
from ffjord.report.images import columns_of, stacked, tiles_of
from ffjord.report.mosaic import Images, Mosaic
from ffjord.report.style import DATA, INK, MODEL, MUTED, add_panel, add_scale, draw_points, draw_title, new_figure
from ffjord.vae import VAE

_GREY = 256
_EACH, _FEW = 300, 9
"""Points of the posterior of one image, and of how many images it is shown."""
_CHUNK = 500
_COLOURS = (DATA, MODEL, "#c792ea", "#f76d8e", "#9be27f", "#5f93ff", "#f2e05c", "#c98a5a", "#e9e6f5")


def figure_of_reconstructions(vae: VAE, data: Images, *, n: int, title: str | None = None, key: PRNGKeyArray) -> Figure:
    """n images above what comes back of them: E[x | z], with z ~ q(z | x)."""
    if n < 1:
        raise ValueError(f"need at least one image; got n={n}.")
    data = np.asarray(data)[:n]
    back = np.asarray(vae.reconstruct(data, key=key))
    panels = {
        "test images": (_levels(vae, data), DATA),
        "reconstructions, E[x | z] with z ~ q(z | x)": (tiles_of(back, _GREY, columns_of(len(data))), MODEL),
    }
    return stacked(panels, title)


def figure_of_draws(
    vae: VAE, *, n: int, temperatures: Sequence[float], title: str | None = None, key: PRNGKeyArray
) -> Figure:
    """n samples x ~ p(x | z), and their means E[x | z] with z ~ N(0, T²) for each temperature T, with the same z."""
    if n < 1 or not temperatures:
        raise ValueError(f"need at least one sample and one temperature; got n={n}, temperatures={temperatures}.")
    panels = {"samples": (_levels(vae, np.asarray(vae.sample(n, key=key))), MODEL)}
    for temperature in temperatures:
        means = np.asarray(vae.sample(n, means=True, temperature=temperature, key=key))
        panels[f"means, T = {temperature:g}"] = tiles_of(means, _GREY, columns_of(n)), MODEL
    return stacked(panels, title)


def figure_of_latent(vae: VAE, data: Images, *, title: str | None = None, key: PRNGKeyArray) -> Figure:
    """The aggregate posterior of images in a latent plane before and after the flow, beside the prior that it should
    fill; below, posteriors of single images."""
    if vae.latent != 2:
        raise ValueError(f"only a latent space of two dimensions has a picture; this has {vae.latent}.")
    key_all, key_few, key_prior = jax.random.split(key, 3)
    start, end = _posterior(vae, np.asarray(data), key_all)
    few = np.repeat(np.asarray(data)[:: -(-len(data) // _FEW)], _EACH, axis=0)
    start_few, end_few = _posterior(vae, few, key_few)
    prior = np.asarray(jax.random.normal(key_prior, (len(data), 2)))
    extent = extent_of(start, end, prior)
    page, panels = _panels(extent, title, few[::_EACH])
    for panel, points, colour in zip(panels[:3], (start, end, prior), (DATA, MODEL, MUTED), strict=True):
        draw_points(panel, points, colour, size=3.0)
    for panel, points in zip(panels[3:], (start_few, end_few), strict=True):
        for i in range(len(points) // _EACH):
            draw_points(panel, points[i * _EACH : (i + 1) * _EACH], _COLOURS[i], size=3.0)
    return page


def _posterior(vae: VAE, x: np.ndarray, key: PRNGKeyArray) -> tuple[np.ndarray, np.ndarray]:
    """A point of the posterior of every image, before and after the flow."""
    parts = []
    for begin in range(0, len(x), _CHUNK):
        drawn = vae.encode(x[begin : begin + _CHUNK], key=jax.random.fold_in(key, begin))
        parts.append((np.asarray(drawn.start), np.asarray(drawn.z)))
    start, end = zip(*parts, strict=True)
    return np.concatenate(start), np.concatenate(end)


def _levels(vae: VAE, x: Float[np.ndarray, "n h w c"]) -> Mosaic:
    """Images of whole grey levels."""
    levels = int(vae.pixels.top) + 1
    return tiles_of((x + 0.5) / levels, levels, columns_of(len(x)))


def _panels(extent: Extent, title: str | None, few: np.ndarray) -> tuple[Figure, list[Axes]]:
    """Three panels above, two below, and at the right of these the images whose posteriors they show."""
    side, gap, edge, head = 2.9, 0.18, 0.42, 0.42
    height = 2 * side + head + edge + (0.85 if title else 0.45)
    page = new_figure(2 * edge + 3 * side + 2 * gap, height)
    place = lambda row, column: (edge + column * (side + gap), edge + (1 - row) * (side + head), side, side)
    titles = [("z₀, before the flow", DATA), ("z, after it", MODEL), ("the prior", MUTED)]
    panels = [
        add_panel(page, place(0, i), extent, title=name, colour=colour) for i, (name, colour) in enumerate(titles)
    ]
    panels += [
        add_panel(page, place(1, i), extent, title=f"{name} of single images", colour=INK)
        for i, name in enumerate(("z₀", "z"))
    ]
    for panel in panels:
        add_scale(panel, y=panel in (panels[0], panels[3]))
    _draw_few(page, place(1, 2), few)
    draw_title(page, title, edge)
    return page, panels


def _draw_few(page: Figure, box: tuple[float, float, float, float], few: np.ndarray) -> None:
    """The images, each framed in the colour of its points."""
    left, bottom, side, _ = box
    size = side / 3 - 0.1
    for i, image in enumerate(few):
        corner = (left + i % 3 * side / 3, bottom + side - (i // 3 + 1) * side / 3, size, size)
        axes = add_panel(page, corner)
        axes.imshow(image[..., 0], cmap="gray", interpolation="nearest")
        axes.spines[:].set(visible=True, color=_COLOURS[i], linewidth=2)
    add_panel(page, (left, bottom + side, side, 0.001), title="the images", colour=INK)
