"""Short recipes that put the parts together."""

from ffjord.models.build import build_image_model as build_image_model
from ffjord.models.build import build_model as build_model
from ffjord.models.build import cnf as cnf
from ffjord.models.build import ffjord as ffjord
from ffjord.models.build import regularizers as regularizers
