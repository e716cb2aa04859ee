"""Metrics from the kubelet's cAdvisor with the kubelet's default feature gates, through Pinion's socket for it."""

import os
import socket
from pathlib import Path

from session.program import Failure, assert_equal, wait_until

from .pods import BUSYBOX, pod, shell
from .statistics import BUSY, CADVISOR_METRICS, pod_series, summary

SOCKET = "/run/crio/crio.sock"


def cadvisor(steps, pods):
    node = pods.node
    engine, config = node.engine, node.engine.config.read_text()
    with steps.step("the engine and the kubelet restart with the socket for cAdvisor"):
        engine.config.write_text(f'{config}[cadvisor]\nsocket = "{SOCKET}"\n')
        _restart(node)
        pods.start(pod("cadvised", shell("busy", BUSY, resources={"limits": {"cpu": "200m", "memory": "64Mi"}}), shell("idle")),
                   pod("hosted", shell("main"), hostNetwork=True))
    with steps.step(f"/metrics/cadvisor has the {len(CADVISOR_METRICS)} metrics that it has for containerd"):
        wait_until("all metrics exist", lambda: _check_names(node), 60)
    with steps.step("the metrics have the names of pod, container and image; those of the network belong to the pod"):
        # cAdvisor does not report a CPU time of 0, which its first sample may have.
        wait_until("the labels are complete", lambda: _check_labels(node), 30)
    with steps.step("/stats/summary is complete"):
        # The kubelet leaves out a cgroup without processes whose interfaces have had no traffic.
        _send(pods)
        summary(pods, "cadvised")
    with steps.step("the network metrics continue after the process that cAdvisor read them by has exited"):
        first = wait_until("the pod has received data", lambda: _received(node), 60)
        for name in ("busy", "idle"):
            os.kill(pods.pid("cadvised", name), 9)
        wait_until("the containers were restarted", lambda: all(pods.container("cadvised", name)["restartCount"] == 1 for name in ("busy", "idle")), 60)
        pods.wait_running("cadvised")
        _send(pods)
        wait_until("the counters increase", lambda: _received(node) > first, 60)
        wait_until("all metrics of the new containers exist", lambda: _check_names(node), 60)
    with steps.step("after a restart of the daemon and of the kubelet all metrics exist"):
        _restart(node)
        wait_until("all metrics exist", lambda: _check_names(node), 60)
    with steps.step("the cgroups of the pods are removed"):
        groups = _groups(node)
        if not any(name.startswith("crio-") for name in groups):
            raise Failure(f"no cgroup is named for cAdvisor: {groups}")
        node.remove_manifests("cadvised", "hosted")
        wait_until("the pods are removed", lambda: not {"cadvised", "hosted"} & set(node.pods()), 60)
        wait_until("their cgroups are removed", lambda: not [name for name in _groups(node) if name.startswith("crio-")], 60)
    with steps.step("the engine and the kubelet restart without the socket"):
        engine.config.write_text(config)
        _restart(node)
        assert_equal(Path(SOCKET).exists(), False, "the socket exists")


def _restart(node):
    node.stop()
    node.engine.stop()
    node.engine.start()
    node.start()


def _page(node, name="cadvised"):
    return pod_series(node.get("/metrics/cadvisor"), name)


def _check_names(node):
    # The cgroup of the pod has the labels of the pod, but no container.
    names = {metric for metric, labels, _ in _page(node) if labels["container"]}
    missing = sorted(set(CADVISOR_METRICS) - names)
    if missing:
        raise Failure(f"missing metrics: {', '.join(missing)}")
    return True


def _check_labels(node):
    for metric in ("container_cpu_usage_seconds_total", "container_memory_working_set_bytes", "container_processes"):
        images = {labels["container"]: labels["image"] for name, labels, _ in _page(node) if name == metric}
        if not {"busy": BUSYBOX, "idle": BUSYBOX}.items() <= images.items():
            raise Failure(f"containers and images of {metric}: {images}")
    network = {(labels["container"], labels["namespace"], labels["interface"]) for name, labels, _ in _page(node) if name == "container_network_receive_bytes_total"}
    assert_equal(network, {("POD", "default", "eth0")}, "containers, namespaces and interfaces of the network metrics")
    hosted = {name for name, *_ in _page(node, "hosted")}
    if "container_memory_working_set_bytes" not in hosted or any("network" in name for name in hosted):
        raise Failure(f"metrics of a pod on the network of the node: {sorted(hosted)}")
    return True


def _send(pods):
    """Sends a packet to the pod, by a connection that is refused."""
    with socket.socket() as connection:
        connection.settimeout(5)
        connection.connect_ex((pods.status("cadvised")["podIP"], 9))


def _received(node):
    return sum(value for metric, _, value in _page(node) if metric == "container_network_receive_bytes_total")


def _groups(node):
    return {path.name for path in Path("/sys/fs/cgroup/memory/kubepods").rglob("*") if path.is_dir()}
