"""Pictures and animations of flows in one and two dimensions, and over images."""

from ffjord.report.animation import animate as animate
from ffjord.report.figures import figure as figure
from ffjord.report.figures import picture_of_samples as picture_of_samples
from ffjord.report.gallery import Entry as Entry
from ffjord.report.gallery import gallery as gallery
from ffjord.report.grid import Extent as Extent
from ffjord.report.image_path import animate_images as animate_images
from ffjord.report.images import figure_of_interpolation as figure_of_interpolation
from ffjord.report.images import figure_of_samples as figure_of_samples
from ffjord.report.mosaic import picture_of_images as picture_of_images
