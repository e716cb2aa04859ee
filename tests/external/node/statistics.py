"""Stats and metrics from cAdvisor (the default of the kubelet) and from the runtime; the evented PLEG."""

import json
import re
from pathlib import Path

from session.program import Failure, assert_equal, wait_until

from .pods import BUSYBOX, pod, shell

# Metrics that cAdvisor reports for pods of containerd, which it supports; it does not support Pinion.
# `ENGINE=containerd ONLY=statistics tests/external/kubelet` fails if the list is outdated.
CADVISOR_METRICS = tuple((Path(__file__).parent / "cadvisor.txt").read_text().split())
# Fields that the summary has only from cAdvisor while the feature gate is disabled, so not for unsupported engines.
CADVISOR_ONLY_FIELDS = ("network.rxBytes", "network.txBytes", "network.name", "process_stats.process_count")
BUSY = "while :; do :; done & dd if=/dev/zero of=/tmp/file bs=64k count=64 2>/dev/null; while :; do echo x; sleep 0.5; done"


def statistics(steps, pods):
    node = pods.node
    with steps.step("a pod to measure starts"):
        pods.start(pod("measured", shell("busy", BUSY, resources={"limits": {"cpu": "200m", "memory": "64Mi"}}), shell("idle")))
    supported = node.engine.name == "containerd"
    with steps.step("/stats/summary from cAdvisor and the runtime together" + ("" if supported else ", without fields that only cAdvisor has")):
        summary(pods, "measured", allowed_missing=() if supported else CADVISOR_ONLY_FIELDS)
    with steps.step("/metrics/resource has both containers"):
        _resource(pods)
    if supported:
        with steps.step(f"cadvisor.txt lists the {len(CADVISOR_METRICS)} metrics of this kubelet's cAdvisor"):
            assert_equal(sorted({name for name, *_ in pod_series(node.get("/metrics/cadvisor"), "measured")}), sorted(CADVISOR_METRICS), "metrics")
    with steps.step("the kubelet starts with PodAndContainerStatsFromCRI and EventedPLEG; the pods keep running"):
        ids = {name: pods.container("measured", name)["containerID"] for name in ("busy", "idle")}
        node.stop()
        node.start(PodAndContainerStatsFromCRI=True, EventedPLEG=True)
        pods.wait_running("measured")
        assert_equal({name: pods.container("measured", name)["containerID"] for name in ids}, ids, "container ids")
    with steps.step("/stats/summary from the runtime is complete"):
        summary(pods, "measured")
    with steps.step("/metrics/resource has both containers, from the runtime"):
        _resource(pods)
    with steps.step("/metrics/cadvisor from the runtime is complete"):
        series = wait_until("/metrics/cadvisor has metrics of the pod", lambda: pod_series(node.get("/metrics/cadvisor"), "measured"), 60)
        _check_complete(series, node.engine.name)
    with steps.step("/metrics/cadvisor from the runtime has correct values"):
        _check_values(pods)
    with steps.step("the evented PLEG is connected, and detects a restart"):
        counters = node.get("/metrics")
        connections = re.search(r"^kubelet_evented_pleg_connection_success_count (\d+)", counters, re.MULTILINE)
        if not connections or connections[1] == "0":
            raise Failure("\n".join(line for line in counters.splitlines() if "evented_pleg" in line) or "no counter of the evented PLEG")
        pods.start(pod("events", shell("main")))
        lines = node.log_lines("Evented PLEG")
        if lines:
            raise Failure("\n".join(lines[-5:]))
        pods.exec("events", "main", "kill", "1")  # not checked: kill may be terminated together with its container
        state = wait_until("the container was restarted", lambda: pods.container("events")["restartCount"] == 1 and pods.container("events"), 30)
        assert_equal(state["lastState"]["terminated"]["exitCode"], 0, "exit code")
    with steps.step("with the evented PLEG no init container runs again, and the newest container of a name is used"):
        pods.start(pod("initialized", shell("main"), initContainers=[shell("init", "echo init")]))
        for count in (1, 2):
            pods.exec("initialized", "main", "kill", "1")
            wait_until(f"the container was restarted {count} times", lambda: pods.container("initialized")["restartCount"] == count and pods.container("initialized")["ready"], 60)
        assert_equal(pods.container("initialized", "init")["restartCount"], 0, "restarts of the init container")
        errors = [line for line in node.log_lines("from runtime service failed") if "AlreadyExists" in line or "is reserved" in line]
        if errors:
            raise Failure("\n".join(errors[-3:]))
    with steps.step("the kubelet starts with its defaults again; the pods keep running"):
        node.stop()
        node.start()
        pods.wait_running("measured")
        assert_equal({name: pods.container("measured", name)["containerID"] for name in ids}, ids, "container ids")


def summary(pods, name, allowed_missing=()):
    def complete():
        summary = json.loads(pods.node.get("/stats/summary"))
        stats = next((entry for entry in summary["pods"] if entry["podRef"]["name"] == f"{name}-node"), None)
        if not stats:
            raise Failure(f"pod {name} is not in the summary")
        missing = [path for path in _missing_fields(stats) if path not in allowed_missing]
        if missing:
            raise Failure(f"missing fields: {', '.join(missing)}\n{json.dumps(stats)[:2000]}")
        _check_plausible(stats)
        return True

    # The first samples of a new container are taken in the background.
    wait_until("the summary is complete and plausible", complete, 60)


def _check_plausible(stats):
    by_name = {container["name"]: container for container in stats["containers"]}
    assert_equal(sorted(by_name), ["busy", "idle"], "containers")
    if not 50_000_000 < by_name["busy"]["cpu"]["usageNanoCores"] < 400_000_000:
        raise Failure(f"expected a usage of 200m CPU: {by_name['busy']['cpu']}")
    if not 4 << 20 <= by_name["busy"]["rootfs"]["usedBytes"] <= 6 << 20:
        raise Failure(f"expected a usage of 4 MiB: {by_name['busy']['rootfs']}")


def _missing_fields(stats):
    fields = {"": ("cpu.usageNanoCores", "cpu.usageCoreNanoSeconds", "memory.workingSetBytes", "memory.usageBytes", "memory.rssBytes", "network.rxBytes",
                   "network.txBytes", "network.name", "ephemeral-storage.usedBytes", "process_stats.process_count"),
              "containers": ("cpu.usageNanoCores", "cpu.usageCoreNanoSeconds", "memory.workingSetBytes", "memory.usageBytes", "memory.rssBytes",
                             "memory.pageFaults", "rootfs.usedBytes", "rootfs.inodesUsed", "logs.usedBytes", "startTime")}
    for path in fields[""]:
        if _lookup(stats, path) is None:
            yield path
    for container in stats["containers"]:
        for path in fields["containers"]:
            if _lookup(container, path) is None:
                yield f"{container['name']}.{path}"


def _lookup(tree, path):
    for key in path.split("."):
        tree = (tree or {}).get(key)
    return tree


def _resource(pods):
    text = pods.node.get("/metrics/resource")
    for metric in ("container_cpu_usage_seconds_total", "container_memory_working_set_bytes", "container_start_time_seconds"):
        for name in ("busy", "idle"):
            if not re.search(rf'^{metric}{{[^}}]*container="{name}"[^}}]*pod="measured-node"', text, re.MULTILINE):
                raise Failure(f"{metric} of {name} is not in /metrics/resource")
    if not re.search(r'^pod_cpu_usage_seconds_total{[^}]*pod="measured-node"', text, re.MULTILINE):
        raise Failure("the pod is not in /metrics/resource")


def pod_series(text, name):
    """Returns metric, labels and value of all time series of a pod."""
    series = []
    for metric, labels, value in re.findall(r"^(\w+)\{(.*)\} (\S+)", text, re.MULTILINE):
        labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels))
        if labels.get("pod") == f"{name}-node":
            series.append((metric, labels, float(value)))
    return series


# Metrics of cAdvisor that the kubelet does not request from a runtime: they are about the machine, cAdvisor itself or
# Docker healthchecks.
NOT_REQUESTED = {"container_scrape_error", "container_tasks_state", "container_health_state"}


def _check_complete(series, engine):
    names = {name for name, *_ in series}
    missing = sorted(set(CADVISOR_METRICS) - names - NOT_REQUESTED)
    additional = ', '.join(sorted(names - set(CADVISOR_METRICS))) or 'none'
    print(f"# /metrics/cadvisor from {engine}: {len(names)} metrics of this pod; not in cAdvisor: {additional}", flush=True)
    if missing:
        raise Failure(f"metrics of cAdvisor that the runtime does not report: {', '.join(missing)}")
    for metric in ("container_cpu_usage_seconds_total", "container_memory_working_set_bytes"):
        containers = {labels.get("container") for name, labels, _ in series if name == metric}
        if not {"busy", "idle"} <= containers:
            raise Failure(f"{metric} is reported only for {containers}")
    for _, labels, _ in series:
        if not {"container", "id", "image", "namespace", "pod"} <= set(labels) or labels["namespace"] != "default":
            raise Failure(f"missing or wrong labels: {labels}")
        if labels["container"] != "POD" and labels["image"] != BUSYBOX:
            raise Failure(f"the label image is not {BUSYBOX}: {labels}")


def _check_values(pods):
    def value(metric, container=None):
        series = pod_series(pods.node.get("/metrics/cadvisor"), "measured")
        return sum(number for name, labels, number in series if name == metric and (container is None or labels.get("container") == container))

    first = value("container_cpu_usage_seconds_total", "busy")
    wait_until("the CPU time increases", lambda: value("container_cpu_usage_seconds_total", "busy") > first + 0.5, 40)
    assert_equal(value("container_spec_memory_limit_bytes", "busy"), float(64 << 20), "memory limit")
    assert_equal((value("container_spec_cpu_quota", "busy"), value("container_spec_cpu_period", "busy")), (20000.0, 100000.0), "CPU quota")
    if value("container_cpu_cfs_throttled_periods_total", "busy") <= 0:
        raise Failure("container_cpu_cfs_throttled_periods_total of a busy loop with a limit of 200m is 0")
    if value("container_network_receive_bytes_total") < 0 or value("container_processes", "busy") < 2:
        raise Failure("container_network_receive_bytes_total or container_processes has a wrong value")
