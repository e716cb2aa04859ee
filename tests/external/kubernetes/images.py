"""Test images of Kubernetes, made of its programs and of Debian packages, under the names that its tests use.

Upstream they are made of Alpine Linux and of Go programs. Differences that matter: the shell is bash, because ash of Debian
does not pass on variables whose names contain a dash; they lack a package manager.
"""

import hashlib
import json
import os
import re
from pathlib import Path

from session.images import MANIFEST, PAUSE, Image, Layer, busybox, compile_c, nginx
from session.runtime import CACHE

from . import programs

E2E = "e2e-test-images/"
# Programs of the machine that agnhost's image contains, if they are installed (e2e installs them).
TOOLS = ("/usr/bin/curl", "/usr/bin/nc.openbsd", "/usr/bin/ss", "/usr/bin/socat", "/usr/bin/dig", "/usr/bin/iperf", "/usr/sbin/ip", "/usr/bin/nsenter", "/usr/bin/unshare",
         "/usr/bin/getent")
USERS = "user-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh\n"
GROUPS = "user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n"


def versions():
    """Returns the versions of each image that the tests of Kubernetes use, from their list."""
    found = {}
    text = (programs.source() / "test/utils/image/manifest.go").read_text()
    for name, version in re.findall(r'configs\[\w+\] = Config\{list\.\w+, "([^"]+)", "([^"]+)"\}', text):
        found.setdefault(name, []).append(version)
    return found


class Images:
    """Builds images and pushes them to the registry at `host`; `built` are the paths of programs by name."""

    def __init__(self, host, work, built, tags):
        self.host, self.work, self.built, self.tags = host, work, built, tags
        self.base = self._base()
        self.pause = Layer().copy(compile_c(work / "compiled", "pause", PAUSE), "pause")

    def _base(self):
        base = busybox(CACHE / "deb").directory("etc/network", "usr/local/bin", "usr/sbin", "sbin")
        base.program("/usr/bin/bash", "bin/bash").symlink("bin/sh", "bash")
        base.file("etc/nsswitch.conf", "hosts: files dns\n")
        return base.file("etc/os-release", 'NAME="Alpine Linux"\nID=alpine\nPRETTY_NAME="Debian programs in place of Alpine Linux"\n')

    def push(self, name, layers, prefix=E2E, **config):
        """Pushes an image with the versions that the suite uses."""
        Image(layers, **config).push(self.host, prefix + name, *self.tags[name])

    def push_all(self):
        """Pushes the images of the cluster's own tests: pause, busybox, nginx, agnhost, the addons and the device plugin."""
        self.push("pause", [self.pause], prefix="", Entrypoint=["/pause"], User="65535:65535", Labels={"version": self.tags["pause"][-1]})
        self.push("busybox", [self.base], Cmd=["sh"])
        self.push("nginx", [self.base, nginx(CACHE / "deb")], Cmd=["nginx", "-g", "daemon off;"], StopSignal="SIGQUIT", ExposedPorts={"80/tcp": {}})
        ports = {f"{port}/tcp": {} for port in (80, 8080, 8081, 9376, 5000)}
        self.push("agnhost", [self.base, self._agnhost()], Entrypoint=["/agnhost"], Cmd=["pause"], ExposedPorts=ports)
        self.push("sample-device-plugin", [self.base, self._program("sample-device-plugin", "sampledeviceplugin")], Entrypoint=["/sampledeviceplugin", "-alsologtostderr"])
        for name in programs.OTHERS:
            Image([self.base, self._program(name, name)], Entrypoint=[f"/{name}"]).push(self.host, name, programs.OTHERS[name][1])

    def push_suite(self):
        """Pushes the other images of e2e.test."""
        self.push("nonroot", [self.base], Cmd=["sh"], User="1234")
        self.push("ipc-utils", [self.base], Cmd=["sh"])
        self.push("glibc-dns-testing", [self.base, self._agnhost()], Cmd=["sleep", "3600"])
        setuid = Layer().program(self.built["nonewprivs"], "usr/local/bin/nnp").copy(self.built["nonewprivs"], "usr/local/bin/nnp", 0o6755)
        self.push("nonewprivs", [self.base, setuid], Cmd=["nnp"])
        self.push("regression-issue-74839", [self.base, self._program("regression-issue-74839", "regression-issue-74839")], Entrypoint=["/regression-issue-74839"])
        for name in programs.SAMPLE_SERVER:
            self.push(name, [self.base, self._program(name, name)], Entrypoint=[f"/{name}"])
        self.push("etcd", [self.base, self._program("etcd", "usr/local/bin/etcd")], prefix="", Entrypoint=["/usr/local/bin/etcd"])
        for name in ("kitten", "nautilus"):
            files = Layer()
            for file in sorted((programs.source() / "test/images" / name / "html").iterdir()):
                files.copy(file, file.name, 0o644)
            self.push(name, [self.base, self._agnhost(), files], Entrypoint=["/agnhost"], Cmd=["test-webserver"])

    def _program(self, name, path):
        return Layer().program(self.built[name], path)

    def _agnhost(self):
        layer = self._program("agnhost", "agnhost").symlink("agnhost-2", "agnhost").directory("uploads")
        layer.program(self.built["coredns"], "coredns")
        for file in ("localhost.crt", "localhost.key"):
            layer.copy(programs.source() / "test/images/agnhost/porter" / file, file, 0o644)
        for tool in filter(os.path.exists, TOOLS):
            layer.program(tool, f"bin/{Path(tool).name.removesuffix('.openbsd')}")
        layer.file("etc/passwd", self.base.entries["etc/passwd"][1] + USERS.encode())
        layer.file("etc/group", self.base.entries["etc/group"][1] + GROUPS.encode())
        self._registry_content(layer)
        return layer

    def _registry_content(self, layer):
        """Adds /var/registry, which agnhost's fake-registry-server serves: the image pause:testing, an index of one manifest."""
        blobs, manifest = Image([self.pause], Entrypoint=["/pause"], User="65535:65535").blobs_and_manifest()
        descriptor = {"mediaType": MANIFEST, "digest": _digest(manifest), "size": len(manifest), "platform": {"architecture": "amd64", "os": "linux"}}
        index = json.dumps({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [descriptor]}).encode()
        for kind, contents in (("manifests", [index, manifest]), ("blobs", blobs.values())):
            for content in contents:
                digest = _digest(content).split(":")[1]
                layer.file(f"var/registry/pause/{kind}/sha256/{digest[:2]}/{digest}/data", content)
        layer.file("var/registry/pause/manifests/testing", f"{_digest(index)}\n")


def _digest(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()
