"""A user's table: read and checked, split, standardised, and turned back into the user's own units. Free of JAX."""

from ffjord.table.base import AbstractTable as AbstractTable
from ffjord.table.formats import open_table as open_table
