"""`python -m ffjord`."""

import sys

from ffjord.cli import main

sys.exit(main())
