"""What the page shows of an autoencoder: what comes back of test images, and samples."""

import numpy as np
from jaxtyping import PRNGKeyArray

from ffjord.report.mosaic import Images
from ffjord.report.page.image_player import SAMPLES
from ffjord.report.page.markup import figure, packed
from ffjord.report.page.template import asset
from ffjord.vae import VAE


def autoencoder_figures(vae: VAE, data: Images | None, *, key: PRNGKeyArray) -> str:
    """Test images beside their reconstructions, where there are any; and samples beside their means."""
    top = vae.pixels.top
    means, drawn = (np.asarray(vae.sample(SAMPLES, means=flag, key=key)) for flag in (True, False))
    samples = _beside({"means, E[x | z]": means, "samples": drawn / top}, "z from the prior, the same in both.")
    if data is None:
        return samples
    data = np.asarray(data)[:SAMPLES]
    pair = {"test images": data / top, "reconstructions": np.asarray(vae.reconstruct(data, key=key))}
    return _beside(pair, "Reconstructions are E[x | z] with z from the posterior.") + samples


def _beside(pair: dict[str, np.ndarray], caption: str) -> str:
    """Two blocks of images from 0 to 1 with their names."""
    (left, right), html = pair, asset("images.html")
    shown = [packed(np.round(255 * np.clip(x, 0, 1)), "u1") for x in (pair[left], pair[right][None])]
    html = html.replace("test images", left).replace("samples</h4>", f"{right}</h4>")
    values = {"times": [1.0], "levels": 256, "data": shown[0], "samples": shown[1]}
    return figure("images", values, html.replace('aria-label="samples"', f'aria-label="{right}"'), caption)
