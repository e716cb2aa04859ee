"""A real kubelet: pods are the manifests in a directory, everything else is asked over https://127.0.0.1:10250."""

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

from session.program import Failed, run, spawn, until
from session.runtime import CACHE
from session.sources import build, module

VERSION, STAGING = "v1.37.1", "v0.37.1"
PORT = 10250
# The room has no network but its own; a node has an address, a way out, and a name that resolves.
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
# What a kubelet sets for the whole machine when it starts.
SYSCTLS = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes")


def programs():
    """The kubelet (KUBELET, or built: 6 minutes, once) and our client for it."""
    kubelet = os.environ.get("KUBELET", str(CACHE / f"kubelet-{VERSION}"))
    if not Path(kubelet).exists():
        source = module("k8s.io/kubernetes", VERSION, "kubernetes")
        # The module's archive comes without the staging directory: its modules are published by themselves.
        (source / "go.work").unlink(missing_ok=True)
        text = (source / "go.mod").read_text()
        (source / "go.mod").write_text(re.sub(r"^(\s*)(k8s\.io/[a-z-]+) => \./staging/\S+", rf"\1\2 => \2 {STAGING}", text, flags=re.MULTILINE))
        stamp = "k8s.io/component-base/version"
        major, minor = VERSION.lstrip("v").split(".")[:2]
        build(source, kubelet, "-ldflags", f"-s -w -X {stamp}.gitVersion={VERSION} -X {stamp}.gitMajor={major} -X {stamp}.gitMinor={minor}",
              "./cmd/kubelet", cgo=True)
    source = Path(__file__).parent / "client"
    client = CACHE / "kubelet-client"
    if client.exists() and client.stat().st_mtime < max(file.stat().st_mtime for file in source.iterdir()):
        client.unlink()
    build(source, client, "-ldflags", "-s -w", ".")
    return {"kubelet": kubelet, "client": str(client)}


def furnish():
    """Makes the room a node's."""
    for words in ("link add uplink0 type veth peer name uplink1", f"addr add {ADDRESS}/24 dev uplink0", "link set uplink0 up", "link set uplink1 up",
                  "route add default via 192.0.2.1"):
        run("ip", *words.split()).must()
    with open("/etc/hosts", "a") as hosts:
        hosts.write(f"{ADDRESS} node\n")


class Kubelet:
    """One node."""

    def __init__(self, work, engine, built):
        self.work, self.engine, self.built = Path(work) / "node", engine, built
        for directory in ("root", "manifests", "begun", "pki", "plugins", "podlogs", "shared"):
            (self.work / directory).mkdir(parents=True)
        for directory in (self.work, self.work / "root", self.work / "shared"):
            directory.chmod(0o711)
        self.log, self.process = Path(os.environ.get("LOGS", self.work)) / "kubelet.log", None
        self.sysctls = {name: (Path("/proc/sys") / name).read_text() for name in SYSCTLS}

    def start(self, **gates):
        """Starts it with these feature gates and waits until it is healthy."""
        (self.work / "config.yaml").write_text(CONFIG.format(address=self.engine.address, work=self.work, port=PORT, gates=json.dumps(gates)))
        self.process = spawn(
            self.built["kubelet"], "--config", self.work / "config.yaml", "--root-dir", self.work / "root", "--cert-dir", self.work / "pki",
            "--hostname-override", "node", "--node-ip", ADDRESS, "--v=2", log=self.log, env={"PATH": os.environ["PATH"]})
        until("the kubelet is healthy", self._healthy, 60)
        return self

    def _healthy(self):
        if self.process.poll() is not None:
            sys.exit("kubelet: it ended; its log says:\n" + "\n".join(self.log.read_text().splitlines()[-10:]))
        return self.ask("/healthz") == "ok"

    def kill(self):
        """Without a warning."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Politely."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(30)

    def end(self):
        """Stops it and sets back what it set for the whole machine."""
        self.stop()
        # It makes its own directory a shared mount.
        while run("umount", self.work / "root").code == 0:
            pass
        for name, value in self.sysctls.items():
            if (Path("/proc/sys") / name).read_text() != value:
                (Path("/proc/sys") / name).write_text(value)

    def ask(self, path, timeout=30, **query):
        """GET; the text."""
        url = f"https://127.0.0.1:{PORT}{path}" + (f"?{urllib.parse.urlencode(query)}" if query else "")
        try:
            with urllib.request.urlopen(url, timeout=timeout, context=ssl._create_unverified_context()) as answer:  # noqa: S323: its own certificate
                return answer.read().decode(errors="replace")
        except urllib.error.HTTPError as error:
            raise Failed(f"GET {path}: {error.code} {error.read().decode(errors='replace')[:600]}") from None
        except OSError as error:
            raise Failed(f"GET {path}: {error}") from None

    def url(self, verb, *parts, **query):
        """Of a streaming endpoint."""
        return f"https://127.0.0.1:{PORT}/{verb}/" + "/".join(parts) + (f"?{urllib.parse.urlencode(query, doseq=True)}" if query else "")

    def client(self, verb, *argv):
        """The argument vector of our client."""
        return [self.built["client"], verb, *map(str, argv)]

    def pods(self):
        """Those that it knows, by the name in their manifest."""
        listed = json.loads(self.ask("/pods"))["items"] or []
        return {pod["metadata"]["name"].removesuffix("-node"): pod for pod in listed}

    def place(self, pod):
        """Writes a pod's manifest."""
        name = pod["metadata"]["name"]
        begun = self.work / "begun" / f"{name}.json"
        begun.write_text(json.dumps(pod))
        begun.rename(self.work / "manifests" / f"{name}.json")

    def withdraw(self, *names):
        """Takes manifests away: their pods are to go."""
        for name in names:
            (self.work / "manifests" / f"{name}.json").unlink()

    def said(self, pattern):
        """Lines of its log."""
        return [line for line in self.log.read_text(errors="replace").splitlines() if re.search(pattern, line)]
