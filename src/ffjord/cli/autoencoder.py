"""What commands say of a run whose model is a variational autoencoder."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ffjord.data.discrete import discrete_set
from ffjord.progress import rows_bar
from ffjord.runs import Run

if TYPE_CHECKING:
    from ffjord.vae.scoring import Estimate


def scored(
    run: Run,
    vae: Any,
    source: Any,
    limit: int | None,
    draws: int,
    importance: int | None,
    kept: list | None,
    key: Any,
) -> dict:
    """What the test images say of an autoencoder: its bound, in parts, and its likelihood by importance sampling.

    The bounds of all images, log p(x) ≥ …, are added to the list `kept`, if there is one.
    """
    import jax

    from ffjord.data.images import note
    from ffjord.vae.scoring import bounds, importance_sampled

    about = discrete_set(run.experiment.data.name)
    with rows_bar("scoring") as progress:
        found = bounds(vae, source, limit=limit, draws=draws, progress=progress, key=key)
    if kept is not None:
        kept.append(-found.each)
    results = {
        **named("negative_elbo", found.negative_elbo, about),
        **named("reconstruction", found.reconstruction, about),
        **named("kl", found.kl, about),
        "draws": found.draws,
        "points": found.images,
        "nfe": found.nfe,
        "accepted_steps": found.accepted,
        "rejected_steps": found.rejected,
        "data_note": note(about.name, run.experiment.data.data_dir),
    }
    if importance is None:
        return results
    with rows_bar("importance sampling") as progress:
        key = jax.random.fold_in(key, 2**20)  # other draws than those of the bound
        likelihood = importance_sampled(vae, source, importance, limit=limit, progress=progress, key=key)
    return results | {"importance_samples": importance, **named("test_nll", likelihood, about)}


def shown(results: dict[str, Any]) -> dict[str, str]:
    """The same in words."""
    draws = "" if results["draws"] == 1 else f", {results['draws']} draws of z"
    words = {
        "test negative ELBO": _estimate(results, "negative_elbo") + draws,
        "- E log p(x | z)": _estimate(results, "reconstruction"),
        "KL(q(z | x), p(z))": _estimate(results, "kl"),
    }
    if "importance_samples" in results:
        words["test NLL"] = f"{_estimate(results, 'test_nll')}, by {results['importance_samples']} samples an image"
    if results["data_note"]:
        words["note"] = results["data_note"]
    return words


@dataclass(frozen=True)
class Sampler:
    """Draws images from an autoencoder as a flow over images does: pixels in [0, 1), v of L levels at (v + ½)/L."""

    vae: Any
    means: bool = False
    temperature: float = 1.0

    @property
    def event_shape(self) -> tuple[int, ...]:
        return self.vae.event_shape

    def sample(self, n: int, *, key: Any) -> Any:
        x = self.vae.sample(n, means=self.means, temperature=self.temperature, key=key)
        return x if self.means else (x + 0.5) / (self.vae.pixels.top + 1)


def named(name: str, found: "Estimate", about: Any) -> dict[str, float]:
    """An estimate under its name, in nats; of grey images in bits a dimension too."""
    results = {name: found.mean, f"{name}_stderr": found.stderr}
    if about.levels > 2:
        bit = math.log(2) * math.prod(about.shape)
        results |= {f"{name}_bits_per_dim": found.mean / bit, f"{name}_bits_per_dim_stderr": found.stderr / bit}
    return results


def _estimate(results: dict[str, Any], name: str) -> str:
    nats = f"{results[name]:.3f} ± {results[f'{name}_stderr']:.3f} nats"
    bits = f"{name}_bits_per_dim"
    return nats if bits not in results else f"{results[bits]:.4f} ± {results[f'{bits}_stderr']:.4f} bits/dim ({nats})"
