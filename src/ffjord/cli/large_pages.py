"""Memory for large arrays in pages of megabytes.

XLA takes the memory of a program's results and intermediate arrays from the C library at every call and gives it back
afterwards, and every page of 4 kB that is touched anew costs a visit to the kernel: for a model of 25 million weights a
fifth of a training step. Where Linux leaves large pages to the programs ("madvise"), glibc from 2.35 on asks for them
if it is told so before the process starts, and only then. Hence the second start.
"""

import os
import re
import sys
from pathlib import Path

_MODES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_NAME, _WORDS = "GLIBC_TUNABLES", "glibc.malloc.hugetlb=1"
_OLDEST = (2, 35)


def restart() -> None:
    """Starts this process again with large pages, before it has done anything; does nothing where there are none.

    Not if GLIBC_TUNABLES is set: what a user chose stays, and the second start is the last.
    """
    if _NAME not in os.environ and sys.orig_argv and _are_offered():
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | {_NAME: _WORDS})


def _are_offered() -> bool:
    try:
        library = os.confstr("CS_GNU_LIBC_VERSION") or ""
        modes = _MODES.read_text()
    except (AttributeError, OSError, ValueError):  # not Linux, or not glibc
        return False
    version = re.search(r"(\d+)\.(\d+)", library)
    return "[madvise]" in modes and version is not None and tuple(map(int, version.groups())) >= _OLDEST
