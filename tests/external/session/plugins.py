"""CRI engines with NRI, the images of their pods, and a containerd that is new enough to compare with."""

import os

from .engines import Containerd, Pinion, crictl
from .images import PAUSE, Image, Layer, busybox, compile_c
from .runtime import CACHE
from .sources import Registry, go_build, go_module, install_packages, unpack_packages

IMAGE = "registry.k8s.io/e2e-test-images/busybox:1.29-2"
CONTAINERD, VERSION = "github.com/containerd/containerd/v2", "v2.4.2"


def nri_of(work):
    """Returns the paths of the socket and of the plugin directory of an engine."""
    return work / "nri/nri.sock", work / "plugins"


class ContainerdWithPlugins(Containerd):
    def _config_v3(self):
        socket, plugins = nri_of(self.work)
        own = (f"  disable = false\n  socket_path = '{socket}'\n  plugin_path = '{plugins}'\n  plugin_config_path = '{self.work}/conf.d'\n"
               "  plugin_registration_timeout = '5s'\n  plugin_request_timeout = '2s'\n  disable_connections = false\n")
        return super()._config_v3().replace("  disable = true\n", own)


class PinionWithPlugins(Pinion):
    def configure(self, registry):
        super().configure(registry)
        socket, plugins = nri_of(self.work)
        with self.config.open("a") as file:
            file.write(f'[nri]\nenable = true\nsocket_path = "{socket}"\nplugin_path = "{plugins}"\nplugin_config_path = "{self.work}/conf.d"\n')


def serve_images(work):
    """Starts a registry with the images of the pods."""
    registry = Registry(work)
    Image([busybox(CACHE / "deb")], Cmd=["sh"]).push(registry.host, "e2e-test-images/busybox", "1.29-2")
    pause = Layer().copy(compile_c(work / "compiled", "pause", PAUSE), "pause")
    for version in ("3.10", "3.10.1", "3.10.2"):
        Image([pause], Entrypoint=["/pause"], Labels={"version": version}).push(registry.host, "pause", version)
    return registry


def prepare_engines(*packages):
    """Installs packages, and builds containerd unless CONTAINERD is its directory."""
    install_packages("docker-registry", "curl", "gcc", "libc6-dev", "iproute2", "runc", "procps", *packages)
    unpack_packages(CACHE / "deb", "busybox")
    Pinion.prepare()
    crictl()
    if "CONTAINERD" not in os.environ:
        programs = CACHE / f"containerd-{VERSION}"
        source = go_module(CONTAINERD, VERSION, "containerd")
        flags = f"-s -w -X {CONTAINERD}/version.Version={VERSION.lstrip('v')}"
        for name in ("containerd", "containerd-shim-runc-v2"):
            go_build(source, programs / name, "-tags", "no_btrfs,no_devmapper,no_zfs", "-ldflags", flags, f"./cmd/{name}")
        os.environ["CONTAINERD"] = str(programs)
