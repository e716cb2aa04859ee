"""Programs of a Kubernetes cluster: built once from Go modules at pinned versions into CACHE, and Debian's etcd.

    kubernetes/programs.py [NAME…]      builds all programs, or the ones named
"""

import os
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from session.runtime import CACHE  # noqa: E402
from session.sources import go_build, go_module  # noqa: E402

VERSION, STAGING = "v1.37.1", "v0.37.1"
MODULE = "k8s.io/kubernetes"
# Name and package, in the order in which they are built.
NODE = {name: f"./cmd/{name}" for name in ("kubelet", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kube-proxy")}
# Programs of test images, a device plugin and a driver of dynamic resource allocation.
IMAGES = {
    "agnhost": "./test/images/agnhost",
    "nonewprivs": "./test/images/nonewprivs",
    "regression-issue-74839": "./test/images/regression-issue-74839",
    "sample-device-plugin": "./test/images/sample-device-plugin",
    "dra-test-driver": "./test/e2e/dra/test-driver",
}
# Programs of other modules: module, version, package.
OTHERS = {
    "coredns": ("github.com/coredns/coredns", "v1.15.0", "."),
    "metrics-server": ("sigs.k8s.io/metrics-server", "v0.9.0", "./cmd/metrics-server"),
}
# Plugins of CoreDNS that are compiled in. With all of them, the libraries of three cloud providers are compiled too.
PLUGINS = ("cache", "debug", "errors", "file", "forward", "health", "hosts", "kubernetes", "loadbalance", "log", "loop", "ready", "reload", "rewrite", "root",
           "template", "whoami")
# An API server for the aggregation layer, which only e2e.test deploys.
SAMPLE_SERVER = {"sample-apiserver": ("k8s.io/sample-apiserver", STAGING, ".")}
MODULES = {**OTHERS, **SAMPLE_SERVER}
SUITE = ("e2e.test", "ginkgo", *SAMPLE_SERVER)


def path_of(name):
    """Returns the path of a built program; KUBELET replaces the kubelet."""
    if name == "kubelet" and os.environ.get("KUBELET"):
        return os.environ["KUBELET"]
    version = MODULES[name][1] if name in MODULES else VERSION
    return str(CACHE / f"{name}-{version}")


def source():
    """Returns a writable copy of Kubernetes, which requires the published versions of its staging modules."""
    directory = go_module(MODULE, VERSION, "kubernetes")
    # The archive of the module lacks the staging directory; its modules are published separately.
    (directory / "go.work").unlink(missing_ok=True)
    text = (directory / "go.mod").read_text()
    published = re.sub(r"^(\s*)(k8s\.io/[a-z-]+) => \./staging/\S+", rf"\1\2 => \2 {STAGING}", text, flags=re.MULTILINE)
    if published != text:
        (directory / "go.mod").write_text(published)
    return directory


def build(*names):
    """Builds programs unless they exist, and returns their paths by name."""
    for name in names:
        if not Path(path_of(name)).exists():
            _build(name)
    return {name: path_of(name) for name in names}


def _build(name):
    # One value of CGO_ENABLED for all programs: objects that were compiled with another one cannot be reused.
    if name in MODULES:
        module, version, package = MODULES[name]
        directory = go_module(module, version, name)
        if name == "coredns":
            imports = "".join(f'import _ "{module}/plugin/{plugin}"\n' for plugin in PLUGINS)
            (directory / "core/plugin/zplugin.go").write_text(f"package plugin\n\n{imports}")
        elif name == "metrics-server":  # the libraries that the other programs are built with; otherwise all of them are compiled twice
            (directory / "go.mod").write_text(re.sub(r"^(\s*k8s\.io/[a-z-]+) v0\.36\.\d+", rf"\1 {STAGING}", (directory / "go.mod").read_text(), flags=re.MULTILINE))
        go_build(directory, path_of(name), "-ldflags", "-s -w", package, cgo=True)
    elif name == "e2e.test":
        go_build(source(), path_of(name), "-ldflags", _stamped(), "./test/e2e", cgo=True, command=("test", "-c"))
    elif name == "ginkgo":
        go_build(source(), path_of(name), "-ldflags", "-s -w", "github.com/onsi/ginkgo/v2/ginkgo", cgo=True)
    else:
        go_build(source(), path_of(name), "-ldflags", _stamped(), {**NODE, **IMAGES}[name], cgo=True)


def _stamped():
    major, minor = VERSION.lstrip("v").split(".")[:2]
    values = {"gitVersion": VERSION, "gitMajor": major, "gitMinor": minor}
    return "-s -w " + " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in values.items())


if __name__ == "__main__":
    build(*(sys.argv[1:] or [*NODE, *IMAGES, *OTHERS, *SUITE]))
