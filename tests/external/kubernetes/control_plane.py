"""The control plane: etcd, API server, controller manager and scheduler, as processes of the session."""

import subprocess

from session.program import run, spawn, wait_until

from .credentials import API

ETCD = "http://127.0.0.1:2379"
PEER = "http://127.0.0.1:2380"
SERVICES = "10.96.0.0/16"
DNS = "10.96.0.10"
# Alpha features that the tests use.
GATES = {"ContainerStopSignals": True}
ISSUER = "https://kubernetes.default.svc.cluster.local"


class ControlPlane:
    """`logs` is the directory of the logs, `programs` the paths of the programs by name."""

    def __init__(self, work, logs, programs, credentials):
        self.work, self.logs, self.programs, self.credentials = work, logs, programs, credentials
        self.processes = {}

    def start(self):
        """Starts all parts and waits until the API server is ready."""
        self._spawn("etcd", "--data-dir", self.work / "etcd", "--listen-client-urls", ETCD, "--advertise-client-urls", ETCD, "--listen-peer-urls", PEER,
                    "--initial-advertise-peer-urls", PEER, "--initial-cluster", f"default={PEER}", "--unsafe-no-fsync", "--logger", "zap", "--log-level", "warn")
        wait_until("etcd responds", lambda: self._alive("etcd") and run("curl", "-fsS", f"{ETCD}/health").code == 0, 30)
        self._spawn("kube-apiserver", *self._api_server())
        ca = self.credentials.path("ca.crt")
        wait_until("the API server is ready", lambda: self._alive("kube-apiserver") and run("curl", "-fsS", "--cacert", ca, f"{API}/readyz").code == 0, 120)
        admin, path = self.credentials.path("admin.conf"), self.credentials.path
        reviews = ("--kubeconfig", admin, "--authentication-kubeconfig", admin, "--authorization-kubeconfig", admin, "--bind-address", "127.0.0.1", "--leader-elect=false")
        self._spawn("kube-controller-manager", *reviews, "--root-ca-file", path("ca.crt"), "--service-account-private-key-file", path("accounts.key"),
                    "--cluster-signing-cert-file", path("ca.crt"), "--cluster-signing-key-file", path("ca.key"), "--kube-api-qps", "200", "--kube-api-burst", "400")
        self._spawn("kube-scheduler", *reviews, "--kube-api-qps", "200", "--kube-api-burst", "400")

    def _api_server(self):
        path = self.credentials.path
        return (
            "--bind-address", "0.0.0.0", "--advertise-address", "192.0.2.2", "--secure-port", "6443", "--etcd-servers", ETCD,
            "--client-ca-file", path("ca.crt"), "--tls-cert-file", path("apiserver.crt"), "--tls-private-key-file", path("apiserver.key"),
            "--kubelet-client-certificate", path("admin.crt"), "--kubelet-client-key", path("admin.key"), "--kubelet-preferred-address-types", "InternalIP",
            "--service-account-issuer", ISSUER, "--service-account-key-file", path("accounts.pub"), "--service-account-signing-key-file", path("accounts.key"),
            "--service-cluster-ip-range", SERVICES, "--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction", "--allow-privileged",
            "--feature-gates", ",".join(f"{name}={str(value).lower()}" for name, value in GATES.items()),
            # Requests for the API of metrics-server go to it with this identity.
            "--enable-aggregator-routing", "--proxy-client-cert-file", path("aggregator.crt"), "--proxy-client-key-file", path("aggregator.key"),
            "--requestheader-client-ca-file", path("ca.crt"), "--requestheader-allowed-names", "aggregator", "--requestheader-username-headers", "X-Remote-User",
            "--requestheader-group-headers", "X-Remote-Group", "--requestheader-extra-headers-prefix", "X-Remote-Extra-")

    def _spawn(self, name, *arguments):
        self.processes[name] = spawn(self.programs[name], *arguments, log=self.logs / f"{name}.log")

    def _alive(self, name):
        if self.processes[name].poll() is not None:
            raise SystemExit(f"cluster: start {name}: it exited; end of its log:\n" + "\n".join((self.logs / f"{name}.log").read_text().splitlines()[-15:]))
        return True

    def stop(self):
        """Stops all parts, the API server and etcd last."""
        for name in reversed(self.processes):
            self.processes[name].terminate()
            try:
                self.processes[name].wait(20)
            except subprocess.TimeoutExpired:
                self.processes[name].kill()
                self.processes[name].wait()
