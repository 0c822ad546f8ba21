"""Files that appear whole or not at all."""

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any


class atomic_file:
    """A context manager for writing a file that appears, on the disk and under its name, whole or not at all."""

    def __init__(self, path: Path, mode: str = "wb"):
        self.path, self.mode = Path(path), mode

    def __enter__(self):
        handle, self.temporary = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
        self.file = os.fdopen(handle, self.mode)
        return self.file

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                self.file.flush()
                os.fsync(self.file.fileno())
                os.fchmod(self.file.fileno(), 0o666 & ~_umask())
                self.file.close()
                os.replace(self.temporary, self.path)
        finally:
            Path(self.temporary).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # its last bytes may not fit on the disk any more
                self.file.close()


def write_json(path: Path, value: Any) -> None:
    """Writes JSON that appears whole or not at all."""
    with atomic_file(path, "w") as file:
        file.write(json.dumps(value, indent=2) + "\n")


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask
