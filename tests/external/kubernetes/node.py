"""The node of a cluster: kubelet and kube-proxy."""

import json
import signal
from pathlib import Path

from node.kubelet import ADDRESS, SYSCTLS
from session.program import run, spawn, wait_until

from .control_plane import DNS, GATES

KUBELET_DIRECTORY = Path("/var/lib/kubelet")
# The kubelet, its plugins and the node's agents use these paths; in a session they are directories of its own.
PRIVATE = ("/var/lib", "/var/log", "/opt")
MAX_PODS = 150


def set_up_directories(work):
    """Mounts private directories over those of the machine, and makes all mounts shared as systemd does."""
    for number, path in enumerate(PRIVATE):
        layers = work / f"private-{number}"
        for part in ("upper", "work"):
            (layers / part).mkdir(parents=True)
        run("mount", "-t", "overlay", "-o", f"lowerdir={path},upperdir={layers}/upper,workdir={layers}/work", "overlay", path).check()
    # Volumes need a file system with idmapped mounts, which overlayfs is not.
    for source, path in (("kubelet", KUBELET_DIRECTORY), ("pod-logs", Path("/var/log/pods"))):
        (work / source).mkdir(mode=0o755)
        path.mkdir(exist_ok=True)
        run("mount", "--bind", work / source, path).check()
    run("mount", "--make-rshared", "/").check()


def delegate_controllers():
    """On a machine whose v2 tree has controllers next to v1 hierarchies: enables them for the groups of the session.

    A group whose controllers are enabled for its children contains no processes, so those of the session move to a leaf.
    """
    root = Path("/sys/fs/cgroup/unified")
    controllers = (root / "cgroup.controllers").read_text().split() if root.exists() else []
    if controllers:
        (root / "session").mkdir()
        # The process that waits for the session from outside of its PID namespace is listed as 0.
        wait_until("the session has its group for itself", lambda: "0" not in (root / "cgroup.procs").read_text().split())
        for pid in (root / "cgroup.procs").read_text().split():
            (root / "session/cgroup.procs").write_text(pid)
    for controller in controllers:
        (root / "cgroup.subtree_control").write_text(f"+{controller}")


def pod_cgroups():
    """Returns the cgroups that the kubelet made for pods."""
    groups = Path("/sys/fs/cgroup")
    return [group for tree in ("kubepods", "*/kubepods") for level in ("pod*", "*/pod*") for group in groups.glob(f"{tree}/{level}")]


def remove_directories():
    """Unmounts what set_up_directories mounted, and what the kubelet left mounted below."""
    for path in ("/var/log/pods", KUBELET_DIRECTORY, *reversed(PRIVATE)):
        for line in sorted(Path("/proc/self/mountinfo").read_text().splitlines(), key=lambda line: -len(line.split(" ")[4])):
            mounted = line.split(" ")[4]
            if mounted == str(path) or mounted.startswith(f"{path}/"):
                run("umount", "-l", mounted)
    run("mount", "--make-rprivate", "/").check()


class Node:
    """Kubelet and kube-proxy of the node `node`."""

    def __init__(self, work, logs, programs, credentials, engine):
        self.work, self.logs, self.programs, self.credentials, self.engine = work, logs, programs, credentials, engine
        self.process = self.proxy = None
        self.sysctls = {name: (Path("/proc/sys") / name).read_text() for name in SYSCTLS}
        for name in ("manifests", "plugins"):
            (work / name).mkdir()

    def start(self, **changes):
        """Starts the kubelet, with changes of its configuration, and waits until it is healthy."""
        config = self._config(changes.pop("featureGates", {}))
        config.update(changes)
        (self.work / "kubelet.yaml").write_text(json.dumps(config))
        self.process = spawn(
            self.programs["kubelet"], "--config", self.work / "kubelet.yaml", "--kubeconfig", self.credentials.path("kubelet.conf"), "--root-dir", KUBELET_DIRECTORY,
            "--cert-dir", KUBELET_DIRECTORY / "pki", "--hostname-override", "node", "--node-ip", ADDRESS, "--v=2", log=self.logs / "kubelet.log")
        wait_until("the kubelet is healthy", self._healthy, 90)

    def _config(self, gates):
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "containerRuntimeEndpoint": self.engine.address,
            "staticPodPath": str(self.work / "manifests"), "volumePluginDir": str(self.work / "plugins"), "cgroupDriver": "cgroupfs", "failCgroupV1": False,
            "failSwapOn": False, "address": ADDRESS, "readOnlyPort": 0, "healthzPort": 10248,
            "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}, "x509": {"clientCAFile": str(self.credentials.path("ca.crt"))}},
            "authorization": {"mode": "Webhook"}, "clusterDNS": [DNS], "clusterDomain": "cluster.local", "enforceNodeAllocatable": ["pods"], "maxPods": MAX_PODS,
            "fileCheckFrequency": "2s", "makeIPTablesUtilChains": False, "serializeImagePulls": False, "registryPullQPS": 0, "kubeAPIQPS": 200, "kubeAPIBurst": 400,
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"}, "allowedUnsafeSysctls": ["net.core.somaxconn"],
            "crashLoopBackOff": {"maxContainerRestartPeriod": "20s"}, "resolvConf": str(self._resolv_conf()),
            "featureGates": {"PodAndContainerStatsFromCRI": self.engine.name == "pinion", **GATES, **gates}}

    def _resolv_conf(self):
        file = self.work / "resolv.conf"
        file.write_text("nameserver 192.0.2.1\n")
        return file

    def _healthy(self):
        if self.process.poll() is not None:
            raise SystemExit("cluster: start the kubelet: it exited; end of its log:\n" + "\n".join((self.logs / "kubelet.log").read_text().splitlines()[-15:]))
        return run("curl", "-fsS", "http://127.0.0.1:10248/healthz").out == "ok"

    def start_proxy(self):
        """Starts kube-proxy, which implements Services with nftables."""
        (self.work / "proxy.yaml").write_text(json.dumps({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "nftables", "hostnameOverride": "node",
            "clusterCIDR": self.engine.pod_network, "clientConnection": {"kubeconfig": str(self.credentials.path("admin.conf"))},
            # Those sysctls belong to the machine, not to the network namespace of the session.
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}}))
        self.proxy = spawn(self.programs["kube-proxy"], "--config", self.work / "proxy.yaml", log=self.logs / "kube-proxy.log")

    def stop(self):
        """Stops the kubelet; its pods keep running."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)

    def forget_managers(self):
        """Removes the state of the CPU and memory managers, without which another policy is refused."""
        for name in ("cpu_manager_state", "memory_manager_state"):
            (KUBELET_DIRECTORY / name).unlink(missing_ok=True)

    def clean_up(self):
        """Stops everything, removes the rules of kube-proxy and restores the sysctls of the machine."""
        self.stop()
        if self.proxy:
            self.proxy.terminate()
            self.proxy.wait(20)
        for family in ("ip", "ip6"):
            run("nft", "delete", "table", family, "kube-proxy")
        for name, value in self.sysctls.items():
            file = Path("/proc/sys") / name
            if file.read_text() != value:
                file.write_text(value)


