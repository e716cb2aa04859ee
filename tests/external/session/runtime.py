"""Which OCI runtime is tried: `RUNTIME` (a path or a name), else `pinrun` in `PINION_BIN`, else the built one."""

import os
import shutil
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
# What is built for these sessions and kept for the next.
CACHE = Path(os.environ.get("PINION_EXTERNAL_CACHE", TARGET / "external"))


def _chosen():
    named = os.environ.get("RUNTIME")
    if not named:
        named = str(Path(os.environ.get("PINION_BIN", TARGET / "dist")) / "pinrun")
    return os.path.realpath(shutil.which(named) or named)


RUNTIME = _chosen()
