"""The page of a run: one HTML file that holds everything it shows."""

from ffjord.report.page.build import Entry as Entry
from ffjord.report.page.build import is_page as is_page
from ffjord.report.page.build import page as page
from ffjord.report.page.build import write_page as write_page
from ffjord.report.page.facts import Facts as Facts
from ffjord.report.page.facts import read_facts as read_facts
