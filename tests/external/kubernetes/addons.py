"""Addons of a cluster, in pods of namespace kube-system: CoreDNS and metrics-server."""

from session.program import wait_until

from .control_plane import DNS
from .objects import REGISTRY
from .programs import OTHERS

COREFILE = """.:53 {
    errors
    health :8088
    ready :8181
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
    }
    cache 5
    loadbalance
}
"""


def _image(name):
    return f"{REGISTRY}/{name}:{OTHERS[name][1]}"


def _deployment(name, container, **spec):
    labels = {"k8s-app": name}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "kube-system"}, "spec": {
        "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {"containers": [container], **spec}}}}


def _service(name, selector, ports, **spec):
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "kube-system", "labels": {"k8s-app": selector}},
            "spec": {"selector": {"k8s-app": selector}, "ports": ports, **spec}}


def objects():
    """Returns the objects of both addons. Their service account may do everything: the cluster exists for one test."""
    ports = [{"name": f"dns-{protocol.lower()}", "port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]
    config = {"name": "config", "mountPath": "/etc/coredns"}
    return [
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "addons"},
         "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
         "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "kube-system"}]},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "coredns", "namespace": "kube-system"}, "data": {"Corefile": COREFILE}},
        _deployment("kube-dns", {
            "name": "coredns", "image": _image("coredns"), "args": ["-conf", "/etc/coredns/Corefile"], "volumeMounts": [config],
            "ports": [{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53, "protocol": "TCP"}],
            "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1}},
            dnsPolicy="Default", volumes=[{"name": "config", "configMap": {"name": "coredns"}}]),
        _service("kube-dns", "kube-dns", ports, clusterIP=DNS),
        _deployment("metrics-server", {
            "name": "metrics-server", "image": _image("metrics-server"),
            "args": ["--secure-port=4443", "--cert-dir=/tmp", "--kubelet-insecure-tls", "--kubelet-preferred-address-types=InternalIP", "--metric-resolution=15s"],
            "ports": [{"containerPort": 4443}],
            "readinessProbe": {"httpGet": {"path": "/readyz", "port": 4443, "scheme": "HTTPS"}, "periodSeconds": 2}}),
        _service("metrics-server", "metrics-server", [{"port": 443, "targetPort": 4443}]),
        {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1beta1.metrics.k8s.io"}, "spec": {
            "group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100, "insecureSkipTLSVerify": True,
            "service": {"name": "metrics-server", "namespace": "kube-system"}}},
    ]


def start(steps, cluster):
    """Starts the addons and waits until cluster DNS is ready."""
    with steps.step("CoreDNS and metrics-server start in pods"):
        cluster.apply(*objects())
        cluster.kubectl("rollout", "status", "-n", "kube-system", "deployment/kube-dns", "--timeout=90s", timeout=100).check()


def wait_for_metrics(cluster):
    """Waits until metrics-server has measured the node."""
    cluster.kubectl("rollout", "status", "-n", "kube-system", "deployment/metrics-server", "--timeout=90s", timeout=100).check()
    wait_until("kubectl top node", lambda: cluster.kubectl("top", "node").code == 0, 90)
