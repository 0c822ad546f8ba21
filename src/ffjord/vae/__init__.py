"""Variational autoencoders whose posterior is a flow (section 4.3)."""

from ffjord.vae.build import build_vae as build_vae
from ffjord.vae.fitting import fit_flow as fit_flow
from ffjord.vae.model import VAE as VAE
from ffjord.vae.model import Elbo as Elbo
from ffjord.vae.model import images_vae as images_vae
from ffjord.vae.networks import FEATURES as FEATURES
from ffjord.vae.networks import Decoder as Decoder
from ffjord.vae.networks import Encoder as Encoder
from ffjord.vae.objective import NegativeElbo as NegativeElbo
from ffjord.vae.pixels import AbstractPixels as AbstractPixels
from ffjord.vae.pixels import Bernoulli as Bernoulli
from ffjord.vae.pixels import Categorical as Categorical
from ffjord.vae.posteriors import Drawn as Drawn
from ffjord.vae.posteriors import Posterior as Posterior
from ffjord.vae.posteriors import posterior_flow as posterior_flow
from ffjord.vae.scoring import bounds as bounds
from ffjord.vae.scoring import importance_sampled as importance_sampled
