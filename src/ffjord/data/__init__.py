"""Data: toys, pictures and tables, and how training gets its batches."""

from ffjord.data.picture import Picture as Picture
from ffjord.data.source import FreshSamples as FreshSamples
from ffjord.data.source import LateRows as LateRows
from ffjord.data.source import Rows as Rows
from ffjord.data.source import Source as Source
from ffjord.data.tables import TABLES as TABLES
from ffjord.data.toys import TOYS as TOYS
