"""A real kubelet. Its pods are manifests in a directory; all requests go to https://127.0.0.1:10250."""

import json
import os
import re
import signal
import ssl
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from kubernetes import programs as kubernetes
from session.program import Failure, run, spawn, wait_until
from session.runtime import CACHE
from session.sources import go_build

PORT = 10250
# Address of the node. The network namespace of the session has no connection to the network of the machine.
ADDRESS = "192.0.2.2"
CONFIG = """apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: {address}
staticPodPath: {work}/manifests
podLogsDir: {work}/podlogs
volumePluginDir: {work}/plugins
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
registerNode: false
address: 127.0.0.1
port: {port}
readOnlyPort: 0
healthzPort: 0
authentication: {{anonymous: {{enabled: true}}, webhook: {{enabled: false}}}}
authorization: {{mode: AlwaysAllow}}
enforceNodeAllocatable: []
fileCheckFrequency: 1s
syncFrequency: 5s
containerLogMaxSize: 64Ki
containerLogMaxFiles: 3
containerLogMonitorInterval: 3s
evictionHard: {{memory.available: 50Mi, nodefs.available: 1%, imagefs.available: 1%}}
allowedUnsafeSysctls: ["net.core.somaxconn"]
crashLoopBackOff: {{maxContainerRestartPeriod: 20s}}
featureGates: {gates}
"""
# Sysctls of the whole machine that a kubelet sets when it starts.
SYSCTLS = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes")


def programs():
    """Returns the paths of the kubelet (KUBELET, or built once in 6 minutes) and of the test client."""
    source = Path(__file__).parent / "client"
    client = CACHE / "kubelet-client"
    if client.exists() and client.stat().st_mtime < max(file.stat().st_mtime for file in source.iterdir()):
        client.unlink()
    go_build(source, client, "-ldflags", "-s -w", ".")
    return {**kubernetes.build("kubelet"), "client": str(client)}


def set_up_network():
    """Gives the node an address, a default route and a name that resolves."""
    for arguments in ("link add uplink0 type veth peer name uplink1", f"addr add {ADDRESS}/24 dev uplink0", "link set uplink0 up", "link set uplink1 up",
                  "route add default via 192.0.2.1"):
        run("ip", *arguments.split()).check()
    with open("/etc/hosts", "a") as hosts:
        hosts.write(f"{ADDRESS} node\n")


class Kubelet:
    """A node: a kubelet and its engine."""

    def __init__(self, work, engine, programs):
        self.work, self.engine, self.programs = Path(work) / "node", engine, programs
        for directory in ("root", "manifests", "partial", "pki", "plugins", "podlogs", "shared"):
            (self.work / directory).mkdir(parents=True)
        for directory in (self.work, self.work / "root", self.work / "shared"):
            directory.chmod(0o711)
        self.log, self.process = Path(os.environ.get("LOGS", self.work)) / "kubelet.log", None
        self.sysctls = {name: (Path("/proc/sys") / name).read_text() for name in SYSCTLS}

    def start(self, **gates):
        """Starts the kubelet with these feature gates and waits until it is healthy."""
        (self.work / "config.yaml").write_text(CONFIG.format(address=self.engine.address, work=self.work, port=PORT, gates=json.dumps(gates)))
        self.process = spawn(
            self.programs["kubelet"], "--config", self.work / "config.yaml", "--root-dir", self.work / "root", "--cert-dir", self.work / "pki",
            "--hostname-override", "node", "--node-ip", ADDRESS, "--v=2", log=self.log, env={"PATH": os.environ["PATH"]})
        wait_until("the kubelet is healthy", self._healthy, 60)
        return self

    def _healthy(self):
        if self.process.poll() is not None:
            sys.exit("kubelet: start the kubelet: it exited; end of its log:\n" + "\n".join(self.log.read_text().splitlines()[-10:]))
        return self.get("/healthz") == "ok"

    def kill(self):
        """Kills the kubelet with SIGKILL."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Stops the kubelet with SIGTERM."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(30)

    def clean_up(self):
        """Stops the kubelet and restores the sysctls of the machine."""
        self.stop()
        # The kubelet mounts its root directory as a shared mount.
        while run("umount", self.work / "root").code == 0:
            pass
        for name, value in self.sysctls.items():
            if (Path("/proc/sys") / name).read_text() != value:
                (Path("/proc/sys") / name).write_text(value)

    def get(self, path, timeout=30, **query):
        """Sends a GET request to the kubelet and returns the body."""
        url = f"https://127.0.0.1:{PORT}{path}" + (f"?{urllib.parse.urlencode(query)}" if query else "")
        try:
            with urllib.request.urlopen(url, timeout=timeout, context=ssl._create_unverified_context()) as response:  # noqa: S323: self-signed certificate
                return response.read().decode(errors="replace")
        except urllib.error.HTTPError as error:
            raise Failure(f"GET {path}: {error.code} {error.read().decode(errors='replace')[:600]}") from None
        except OSError as error:
            raise Failure(f"GET {path}: {error}") from None

    def url(self, verb, *parts, **query):
        """Returns the URL of a streaming endpoint."""
        return f"https://127.0.0.1:{PORT}/{verb}/" + "/".join(parts) + (f"?{urllib.parse.urlencode(query, doseq=True)}" if query else "")

    def client(self, verb, *argv):
        """Returns the argument vector of the test client."""
        return [self.programs["client"], verb, *map(str, argv)]

    def pods(self):
        """Returns the pods of the kubelet by the name in their manifest."""
        items = json.loads(self.get("/pods"))["items"] or []
        return {pod["metadata"]["name"].removesuffix("-node"): pod for pod in items}

    def add_manifest(self, pod):
        """Writes the manifest of a pod; the kubelet starts it."""
        name = pod["metadata"]["name"]
        partial = self.work / "partial" / f"{name}.json"
        partial.write_text(json.dumps(pod))
        partial.rename(self.work / "manifests" / f"{name}.json")

    def remove_manifests(self, *names):
        """Deletes manifests; the kubelet removes their pods."""
        for name in names:
            (self.work / "manifests" / f"{name}.json").unlink()

    def log_lines(self, pattern):
        """Returns the lines of the kubelet's log that match a pattern."""
        return [line for line in self.log.read_text(errors="replace").splitlines() if re.search(pattern, line)]
