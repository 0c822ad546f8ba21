"""Pictures and animations of flows in one and two dimensions."""

from ffjord.report.animation import animate as animate
from ffjord.report.figures import figure as figure
from ffjord.report.figures import picture_of_samples as picture_of_samples
from ffjord.report.gallery import Entry as Entry
from ffjord.report.gallery import gallery as gallery
from ffjord.report.grid import Extent as Extent
