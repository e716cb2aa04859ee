"""OCI runtimes and shims that engines run containers with: Debian's packages, Go modules and crates at pinned versions."""

import subprocess
import sys
from pathlib import Path

from .runtime import CACHE
from .sources import go_build, go_module, install_packages
from .wrapper import hide_unified, missing_capabilities, wrap

RUNC = "v1.5.2"
CONTAINERD = "v2.4.2"
GVISOR = "v0.0.0-20260905035102-160fafc42237"
YOUKI = "0.7.0"
# Runtimes that fail with a v2 tree next to v1 hierarchies.
WITHOUT_UNIFIED = ("crun", "youki")


def runc():
    """Builds runc and returns its path."""
    install_packages("libseccomp-dev", "pkg-config", "gcc", "libc6-dev")
    source = go_module("github.com/opencontainers/runc", RUNC, "runc")
    return go_build(source, CACHE / f"runc-{RUNC}", "-tags", "seccomp", "-ldflags", f"-s -w -X main.version={RUNC[1:]}", ".", cgo=True)


def crun():
    """Installs Debian's crun and returns its path."""
    install_packages("crun")
    return Path("/usr/bin/crun")


def youki():
    """Builds youki and returns its path."""
    install_packages("libseccomp-dev", "pkg-config", "gcc", "libc6-dev")
    root = CACHE / f"youki-{YOUKI}"
    if not (root / "bin/youki").exists():
        print("# building youki", flush=True)
        features = ("--no-default-features", "--features", "v1,v2,seccomp")
        command = ["cargo", "install", "--quiet", "--locked", "--root", root, "--target-dir", CACHE / "youki-target", *features, "--version", YOUKI, "youki"]
        result = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
        if result.returncode:
            sys.exit(f"external: build youki:\n{result.stderr[-4000:]}")
    return root / "bin/youki"


def runsc():
    """Builds gVisor's runtime and returns its path."""
    return go_build(go_module("gvisor.dev/gvisor", GVISOR, "gvisor"), CACHE / f"runsc-{GVISOR}", "-ldflags", "-s -w", "./runsc")


def runsc_shim():
    """Builds gVisor's shim and returns its path. It sets an OOM score for itself and fails if it may not, so where that is so, it is
    built with the score that it has anyway."""
    source = go_module("gvisor.dev/gvisor", GVISOR, "gvisor")
    if "CAP_SYS_RESOURCE" in missing_capabilities():
        file = source / "pkg/shim/v1/manager.go"
        file.write_text(file.read_text().replace("oomScoreMax = -999", "oomScoreMax = 0"))
    return go_build(source, CACHE / f"shims-{GVISOR}/containerd-shim-runsc-v1", "-ldflags", "-s -w", "./shim")


def containerd():
    """Builds containerd, ctr and the shim of runc, and returns their directory."""
    source = go_module("github.com/containerd/containerd/v2", CONTAINERD, "containerd")
    directory = CACHE / f"containerd-{CONTAINERD}"
    version = f"-s -w -X github.com/containerd/containerd/v2/version.Version={CONTAINERD[1:]}"
    for name in ("containerd", "containerd-shim-runc-v2", "ctr"):
        go_build(source, directory / name, "-tags", "seccomp,no_btrfs", "-ldflags", version, f"./cmd/{name}", cgo=True)
    return directory


def usable_here(name, path, directory):
    """Returns the path with which an engine other than Pinion can execute a runtime on this machine: the runtime itself, or a wrapper in
    `directory` for what this machine lacks."""
    path = wrap(str(path), directory)
    return hide_unified(path, directory, joins=False) if name in WITHOUT_UNIFIED else path
