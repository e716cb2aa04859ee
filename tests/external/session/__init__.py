"""Shared code of the sessions.

    steps.py      test steps; each prints one line of output: ok, or not ok with the reason
    program.py    programs with a time limit, their results, assertions, waiting for a condition
    terminal.py   programs on a pseudoterminal
    isolation.py  throwaway namespaces and cgroups in which a session runs, and the check for leftovers
    cgroups.py    the cgroups of a session, on v1, v2 and hybrid machines
    sources.py    Debian packages, programs from Go modules, the test image, a registry
    images.py     container images for test suites of the CRI
    engines.py    CRI engines: Pinion and containerd
    crio.py       CRI-O
    plugins.py    engines with NRI, for plugins
    runtime.py    the OCI runtime under test
    wrapper.py    a wrapper for other runtimes on machines where root lacks a capability
    podman.py     Podman, as root or as an unprivileged user
    peers.py      engines and runtimes that are measured side by side
    clients.py    Docker and Podman that are measured at the command line
    disk.py       a file system with a journal
"""

import sys

sys.dont_write_bytecode = True

from .isolation import check_requirements, run_session
from .program import Failure, run, spawn, wait_until
from .runtime import RUNTIME
from .steps import Steps
from .terminal import Terminal

__all__ = ["Failure", "RUNTIME", "Steps", "Terminal", "check_requirements", "run", "run_session", "spawn", "wait_until"]
