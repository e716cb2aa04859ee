"""CRI-O, built from its Go module."""

import json
import os
from pathlib import Path

from .engines import UPSTREAM, Engine
from .program import run
from .runtime import CACHE
from .sources import go_build, go_module, install_packages

MODULE, VERSION = "github.com/cri-o/cri-o", "v1.34.0"
TAGS = "seccomp,exclude_graphdriver_btrfs,btrfs_noversion,containers_image_openpgp,containers_image_ostree_stub,libdm_no_deferred_remove"
CONFIG = """
[crio]
root = "{work}/root"
runroot = "/run/{name}-own/storage"
storage_driver = "overlay"
log_dir = "{work}/log"
version_file = "/run/{name}-own/version"
version_file_persist = ""
clean_shutdown_file = "{work}/clean.shutdown"
[crio.api]
listen = "{socket}"
stream_address = "127.0.0.1"
stream_port = "0"
[crio.metrics]
enable_metrics = false
[crio.nri]
enable_nri = false
[crio.image]
pause_image = "registry.k8s.io/pause:3.10.2"
pause_command = ""
signature_policy = "{work}/policy.json"
[crio.network]
network_dir = "{work}/cni"
plugin_dirs = ["/usr/lib/cni"]
[crio.runtime]
cgroup_manager = "cgroupfs"
conmon_cgroup = "pod"
pids_limit = 32768
default_runtime = "{default_runtime}"
pinns_path = "{pinns}"
namespaces_dir = "/run/{name}-own/ns"
container_exits_dir = "/run/{name}-own/exits"
container_attach_socket_dir = "/run/{name}-own/attach"
drop_infra_ctr = {pauseless}
hooks_dir = []
apparmor_profile = "unconfined"
selinux = false
log_level = "info"
irqbalance_config_file = ""
enable_criu_support = false
"""
RUNTIME_TABLE = """
[crio.runtime.runtimes.{name}]
runtime_path = "{path}"
runtime_type = "oci"
runtime_root = "/run/{engine}-own/states-{name}"
monitor_path = "/usr/bin/conmon"
monitor_cgroup = "pod"
allowed_annotations = ["io.kubernetes.cri-o.userns-mode"]
monitor_env = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
"""


def build():
    """Builds `crio` and `pinns` unless they exist, and returns their directory: CRIO, if it is set."""
    install_packages("conmon", "containernetworking-plugins", "iptables", "libseccomp-dev", "pkg-config", "gcc", "libc6-dev")
    programs = Path(os.environ.get("CRIO", CACHE / f"crio-{VERSION}"))
    if not (programs / "crio").exists():
        programs.mkdir(parents=True, exist_ok=True)
        source = go_module(MODULE, VERSION, "crio")
        sources = sorted(str(file) for file in (source / "pinns/src").glob("*.c"))
        run("gcc", "-std=c99", "-Os", "-Wall", "-static", "-o", programs / "pinns", *sources).check()
        go_build(source, programs / "crio", "-tags", TAGS, "-ldflags", "-s -w", "./cmd/crio", cgo=True)
    return programs


class Crio(Engine):
    """CRI-O with the OCI runtimes `runtimes` (paths by name), the first of which is the default; pods have no pause container if
    `pauseless`. It keeps its directories, the bridge of its network and the parent cgroup of its pods."""

    name = "crio"
    pod_network = "10.77.0.0/16"
    allowed_leftovers = ("crio-own0", "/run/(crio|crun|containers|netns|xtables|lock).*", "/sys/fs/cgroup/([a-z]+/)?crio(-own)?")

    def __init__(self, work, registry, runtimes, pauseless=True):
        self.programs, self.runtimes, self.pauseless = build(), runtimes, pauseless
        super().__init__(work, registry)

    def configure(self, registry):
        self.socket = f"{self.work}/engine.sock"
        plugins = [{"type": "bridge", "bridge": f"{self.name}-own0", "isGateway": True, "ipMasq": False,
                    "ipam": {"type": "host-local", "dataDir": f"/run/{self.name}-own/leases", "ranges": [[{"subnet": self.pod_network}]]}},
                   {"type": "portmap", "capabilities": {"portMappings": True}}]
        (self.work / "cni").mkdir()
        (self.work / "cni/10-own.conflist").write_text(json.dumps({"cniVersion": "1.0.0", "name": "own", "plugins": plugins}))
        (self.work / "policy.json").write_text('{"default":[{"type":"insecureAcceptAnything"}]}')
        home = self.work / "home/.config/containers"
        home.mkdir(parents=True)
        mirrors = "".join(f'[[registry]]\nlocation = "{host}"\n[[registry.mirror]]\nlocation = "{registry}"\ninsecure = true\n' for host in UPSTREAM)
        (home / "registries.conf").write_text(f'{mirrors}[[registry]]\nlocation = "{registry}"\ninsecure = true\n')
        self.config = self.work / "crio.toml"
        self.write_config()

    def write_config(self):
        """Writes the configuration file. It is read when the daemon starts."""
        tables = "".join(RUNTIME_TABLE.format(engine=self.name, name=name, path=path) for name, path in self.runtimes.items())
        self.config.write_text(CONFIG.format(
            name=self.name, work=self.work, socket=self.socket, pinns=self.programs / "pinns", pauseless=str(self.pauseless).lower(),
            default_runtime=next(iter(self.runtimes))) + tables)

    def environment(self):
        return {"HOME": f"{self.work}/home"}

    def command(self):
        return [self.programs / "crio", "--config", self.config, "--config-dir", "/nonexistent"]

    def clean_up(self):
        super().clean_up()
        for mount in (self.work / "root/overlay", self.work / "root"):
            run("umount", mount)
