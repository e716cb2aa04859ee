"""Builds the plugins, once, into CACHE.

Two of the projects cannot be built from a Go module alone: flannel's plugin is not published as one, and Calico's module
refers to `api`, a module in a directory of its repository. They are built in a checkout.
"""

import os
import shutil
import sys
from pathlib import Path

from session.program import run
from session.runtime import CACHE, REPOSITORY
from session.sources import go_build, go_module, install_packages, unpack_packages

# Module, version.
FLANNEL = ("github.com/flannel-io/flannel", "v0.28.10")
CILIUM = ("github.com/cilium/cilium", "v1.20.2")
# Variable with the directory of a checkout, repository, tag.
FLANNEL_PLUGIN = ("FLANNEL_CNI", "https://github.com/flannel-io/cni-plugin", "v1.9.1-flannel1")
CALICO = ("CALICO", "https://github.com/projectcalico/calico", "v3.32.1")
STRIPPED = ("-ldflags", "-s -w")


def build(names):
    """Builds the programs of the vendors, and returns their paths by name."""
    out = CACHE / "cni-vendors"
    built = {"etcd": unpack_packages(CACHE / "deb", "etcd-server") / "usr/bin/etcd", "reference": _reference_plugins()}
    if "flannel" in names:
        built["flanneld"] = _build_module(FLANNEL, "flannel", out / "flanneld", ".", without=("tencentvpc", "udp"))
        built["flannel"] = _build_checkout(FLANNEL_PLUGIN, out / "flannel", ".")
    if "calico" in names:
        built["calico"] = _build_checkout(CALICO, out / "calico", "./cni-plugin/cmd/calico")
        built["calicoctl"] = _build_checkout(CALICO, out / "calicoctl", "./calicoctl/calicoctl")
    if "cilium" in names:
        built["cilium-cni"] = _build_module(CILIUM, "cilium", out / "cilium-cni", "./plugins/cilium-cni")
    return {name: str(path) for name, path in built.items()}


def _build_module(module, name, out, package, without=()):
    """Builds a package of a module. `without` are imported backends that are left out: they need C, or a library that not every proxy has."""
    if out.exists():
        return out
    source = go_module(*module, name)
    if without:
        main, endings = source / "main.go", tuple(f'/{backend}"' for backend in without)
        main.write_text("".join(line for line in main.read_text().splitlines(keepends=True) if not line.rstrip().endswith(endings)))
    return go_build(source, out, *STRIPPED, package)


def _build_checkout(project, out, package):
    if out.exists():
        return out
    return go_build(_checkout(*project), out, *STRIPPED, package)


def _checkout(variable, repository, version):
    """Returns the directory of a checkout: the variable's, or a clone."""
    if variable in os.environ:
        return Path(os.environ[variable])
    directory = CACHE / "src" / f"{variable.lower()}-{version}"
    if not directory.exists():
        install_packages("git")
        partial = directory.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.parent.mkdir(parents=True, exist_ok=True)
        print(f"# cloning {repository} {version}", flush=True)
        if run("git", "clone", "--quiet", "--depth", "1", "--branch", version, repository, partial, timeout=600).code:
            sys.exit(f"cni-vendors: cannot clone {repository}; set {variable} to the directory of a checkout of {version}")
        partial.rename(directory)
    return directory


def _reference_plugins():
    """Returns the directory of the reference plugins, which flannel's plugin calls."""
    result = run(REPOSITORY / "tests/external/cni-plugins", "build", timeout=600)
    if result.code:
        sys.exit(f"cni-vendors: build the reference plugins: {result.err}")
    return Path(result.text)
