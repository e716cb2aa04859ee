"""The OCI runtime under test: `RUNTIME` (a path or a name), else `pinrun` in `PINION_BIN`, else the built one."""

import os
import shutil
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
# Programs that are built for the sessions, and reused by the next run.
CACHE = Path(os.environ.get("PINION_EXTERNAL_CACHE", TARGET / "external"))


def _runtime_path():
    runtime = os.environ.get("RUNTIME")
    if not runtime:
        runtime = str(Path(os.environ.get("PINION_BIN", TARGET / "dist")) / "pinrun")
    return os.path.realpath(shutil.which(runtime) or runtime)


RUNTIME = _runtime_path()
