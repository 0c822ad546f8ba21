"""Pictures and animations of flows in one and two dimensions."""

from ffjord.report.figures import figure as figure
from ffjord.report.figures import picture_of_samples as picture_of_samples
from ffjord.report.style import save as save
