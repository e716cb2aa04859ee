"""What every session in this directory stands on.

    steps.py      a step is one line of output: ok, or not ok with what was seen
    program.py    programs with a time limit, their results, waiting for a condition
    terminal.py   programs on a real terminal, typed at and read from
    room.py       throwaway namespaces and cgroups in which a session runs, and what it left in them
    cgroups.py    the groups of that room, on v1, v2 and hybrid machines
    sources.py    Debian packages, programs from Go modules, the image, a registry
    runtime.py    which OCI runtime is tried
    adapted.py    other runtimes where root lacks a capability
    podman.py     Podman, as root or as an ordinary user
"""

import sys

sys.dont_write_bytecode = True

from .program import Failed, run, spawn, until
from .room import demand, hold
from .runtime import RUNTIME
from .steps import Steps
from .terminal import Terminal

__all__ = ["Failed", "RUNTIME", "Steps", "Terminal", "demand", "hold", "run", "spawn", "until"]
