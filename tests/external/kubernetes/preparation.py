"""What a session with a cluster needs before it starts, and what its engine leaves behind."""

import os

from session.engines import Containerd, Pinion, crictl
from session.runtime import CACHE
from session.sources import install_packages, unpack_packages

from . import programs
from .images import versions

KIND = {"pinion": Pinion, "containerd": Containerd}[os.environ.get("ENGINE", "pinion")]
PACKAGES = ("docker-registry", "curl", "gcc", "libc6-dev", "iproute2", "nftables", "iptables", "util-linux", "openssl", "bash", "procps")
# The kubelet keeps its parent cgroups, and a chain that shows other programs that it uses iptables.
ALLOWED_LEFTOVERS = (
    *KIND.allowed_leftovers, "/sys/fs/cgroup/([a-z,_]+/)?kubepods(/besteffort|/burstable)?", "/sys/fs/cgroup/unified/session",
    "table ip6? (mangle|filter|nat)", "/run/xtables.lock", "/run/cdi")


def prepare(*names, packages=()):
    """Installs packages and builds the programs of the node, the addons and the ones named."""
    install_packages(*PACKAGES, *packages)
    KIND.prepare()
    crictl()
    built = programs.build(*programs.NODE, *programs.OTHERS, *names)
    for package in ("busybox", "nginx"):
        unpack_packages(CACHE / "deb", package)
    built["etcd"] = str(unpack_packages(CACHE / "deb", "etcd-server") / "usr/bin/etcd")
    return {"programs": built, "tags": versions()}
