"""How much memory there is, asked before a file is read that may not fit."""

import os
from pathlib import Path

from ffjord.errors import InputError

_MEMINFO = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")


def available() -> float | None:
    """Bytes that can be used without swapping: of the machine, or of the container if it has fewer; None if unknown."""
    found = [number for number in (_of_machine(), _of_container()) if number is not None]
    return min(found, default=None)


def check_room(needed: float | int, what: str, advice: str) -> None:
    """Refuses what does not fit into the memory that is available."""
    free = available()
    if free is not None and needed > free:
        raise InputError(
            f"{what} would need about {needed / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free; {advice}"
        )


def _of_machine() -> float | None:
    try:
        lines = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines())
        return 1024.0 * int(lines["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        pass
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (OSError, ValueError, AttributeError):
        return None


def _of_container() -> float | None:
    """What Linux's control group leaves: memory.max is a number, or the word max where there is no limit."""
    try:
        return float(int((_GROUP / "memory.max").read_text()) - int((_GROUP / "memory.current").read_text()))
    except (OSError, ValueError):
        return None
