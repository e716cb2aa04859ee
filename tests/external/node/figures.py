"""Stats and metrics: from cAdvisor (what the kubelet does by default) and from the runtime; the evented PLEG."""

import json
import re
from pathlib import Path

from session.program import Failed, equal, until

from .pods import BUSYBOX, pod, shell

# What cAdvisor shows for a pod of containerd's, which it knows; a pod of ours it does not. `ENGINE=containerd ONLY=figures
# tests/external/kubelet` says if this list is not what it shows any more.
BY_CADVISOR = tuple((Path(__file__).parent / "cadvisor.txt").read_text().split())
# Of a pod that it does not know by its engine's name, and that nobody else is asked for while the gate is off.
BY_CADVISOR_ALONE = ("network.rxBytes", "network.txBytes", "network.name", "process_stats.process_count")
BUSY = "while :; do :; done & dd if=/dev/zero of=/tmp/file bs=64k count=64 2>/dev/null; while :; do echo x; sleep 0.5; done"


def figures(steps, pods):
    node = pods.node
    with steps.step("pods to measure start"):
        pods.start(pod("measured", shell("busy", BUSY, resources={"limits": {"cpu": "200m", "memory": "64Mi"}}), shell("idle")))
    known = node.engine.name == "containerd"
    with steps.step("/stats/summary by cAdvisor and the runtime together" + ("" if known else ", but for what cAdvisor alone could tell")):
        _summary(pods, "measured", lacking=() if known else BY_CADVISOR_ALONE)
    with steps.step("/metrics/resource has both containers"):
        _resource(pods)
    if known:
        with steps.step(f"the list of cAdvisor's {len(BY_CADVISOR)} metrics is that of this kubelet"):
            equal(sorted({name for name, *_ in _series(node.ask("/metrics/cadvisor"), "measured")}), sorted(BY_CADVISOR), "metrics")
    with steps.step("the kubelet starts with PodAndContainerStatsFromCRI and EventedPLEG; the pods go on"):
        ids = {name: pods.container("measured", name)["containerID"] for name in ("busy", "idle")}
        node.stop()
        node.start(PodAndContainerStatsFromCRI=True, EventedPLEG=True)
        pods.running("measured")
        equal({name: pods.container("measured", name)["containerID"] for name in ids}, ids, "container ids")
    with steps.step("/stats/summary from the runtime is complete"):
        _summary(pods, "measured")
    with steps.step("/metrics/resource has both containers, from the runtime"):
        _resource(pods)
    with steps.step("/metrics/cadvisor from the runtime: complete"):
        found = until("metrics of the pod", lambda: _series(node.ask("/metrics/cadvisor"), "measured"), 60)
        _complete(found, node.engine.name)
    with steps.step("/metrics/cadvisor from the runtime: true figures"):
        _true(pods)
    with steps.step("the evented PLEG has its stream, and a restart is seen by it"):
        counters = node.ask("/metrics")
        opened = re.search(r"^kubelet_evented_pleg_connection_success_count (\d+)", counters, re.MULTILINE)
        if not opened or opened[1] == "0":
            raise Failed("\n".join(line for line in counters.splitlines() if "evented_pleg" in line) or "no counter of the evented PLEG")
        pods.start(pod("events", shell("main")))
        said = node.said("Evented PLEG")
        if said:
            raise Failed("\n".join(said[-5:]))
        pods.exec("events", "main", "kill", "1")  # it may end with its container, before it can say so
        state = until("it was restarted", lambda: pods.container("events")["restartCount"] == 1 and pods.container("events"), 30)
        equal(state["lastState"]["terminated"]["exitCode"], 0, "exit code")
    with steps.step("by the evented PLEG no init container runs again, and the newest container of a name is the one that counts"):
        pods.start(pod("initialized", shell("main"), initContainers=[shell("init", "echo init")]))
        for count in (1, 2):
            pods.exec("initialized", "main", "kill", "1")
            until(f"it was restarted, {count}", lambda: pods.container("initialized")["restartCount"] == count and pods.container("initialized")["ready"], 60)
        equal(pods.container("initialized", "init")["restartCount"], 0, "restarts of the init container")
        again = [line for line in node.said("from runtime service failed") if "AlreadyExists" in line or "is reserved" in line]
        if again:
            raise Failed("\n".join(again[-3:]))
    with steps.step("the kubelet goes back to its defaults; the pods go on"):
        node.stop()
        node.start()
        pods.running("measured")
        equal({name: pods.container("measured", name)["containerID"] for name in ids}, ids, "container ids")


def _summary(pods, name, lacking=()):
    def complete():
        summary = json.loads(pods.node.ask("/stats/summary"))
        found = next((one for one in summary["pods"] if one["podRef"]["name"] == f"{name}-node"), None)
        if not found:
            raise Failed(f"pod {name} is not in the summary")
        seen = [path for path in _lacking(found) if path not in lacking]
        if seen:
            raise Failed(f"lacking: {', '.join(seen)}\n{json.dumps(found)[:2000]}")
        _plausible(found)
        return True

    # The first samples of a container that just started are taken in the background.
    until("the summary is complete and true", complete, 60)


def _plausible(found):
    by_name = {one["name"]: one for one in found["containers"]}
    equal(sorted(by_name), ["busy", "idle"], "containers")
    if not 50_000_000 < by_name["busy"]["cpu"]["usageNanoCores"] < 400_000_000:
        raise Failed(f"200m of CPU are used: {by_name['busy']['cpu']}")
    if not 4 << 20 <= by_name["busy"]["rootfs"]["usedBytes"] <= 6 << 20:
        raise Failed(f"4 MiB are written: {by_name['busy']['rootfs']}")


def _lacking(found):
    wanted = {"": ("cpu.usageNanoCores", "cpu.usageCoreNanoSeconds", "memory.workingSetBytes", "memory.usageBytes", "memory.rssBytes", "network.rxBytes",
                   "network.txBytes", "network.name", "ephemeral-storage.usedBytes", "process_stats.process_count"),
              "containers": ("cpu.usageNanoCores", "cpu.usageCoreNanoSeconds", "memory.workingSetBytes", "memory.usageBytes", "memory.rssBytes",
                             "memory.pageFaults", "rootfs.usedBytes", "rootfs.inodesUsed", "logs.usedBytes", "startTime")}
    for path in wanted[""]:
        if _at(found, path) is None:
            yield path
    for container in found["containers"]:
        for path in wanted["containers"]:
            if _at(container, path) is None:
                yield f"{container['name']}.{path}"


def _at(tree, path):
    for key in path.split("."):
        tree = (tree or {}).get(key)
    return tree


def _resource(pods):
    text = pods.node.ask("/metrics/resource")
    for metric in ("container_cpu_usage_seconds_total", "container_memory_working_set_bytes", "container_start_time_seconds"):
        for name in ("busy", "idle"):
            if not re.search(rf'^{metric}{{[^}}]*container="{name}"[^}}]*pod="measured-node"', text, re.MULTILINE):
                raise Failed(f"{metric} of {name} is not in /metrics/resource")
    if not re.search(r'^pod_cpu_usage_seconds_total{[^}]*pod="measured-node"', text, re.MULTILINE):
        raise Failed("the pod is not in /metrics/resource")


def _series(text, name):
    """(metric, labels, value) of one pod."""
    found = []
    for metric, labels, value in re.findall(r"^(\w+)\{(.*)\} (\S+)", text, re.MULTILINE):
        labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels))
        if labels.get("pod") == f"{name}-node":
            found.append((metric, labels, float(value)))
    return found


# What the kubelet's cAdvisor shows and a runtime is not asked for: it is about the machine, cAdvisor's own, or of Docker's healthchecks.
NOT_ASKED = {"container_scrape_error", "container_tasks_state", "container_health_state"}


def _complete(found, engine):
    names = {name for name, *_ in found}
    lacking = sorted(set(BY_CADVISOR) - names - NOT_ASKED)
    print(f"# /metrics/cadvisor by {engine}: {len(names)} metrics of this pod; more than cAdvisor's: {', '.join(sorted(names - set(BY_CADVISOR))) or 'none'}", flush=True)
    if lacking:
        raise Failed(f"cAdvisor shows these, the runtime does not: {', '.join(lacking)}")
    for metric in ("container_cpu_usage_seconds_total", "container_memory_working_set_bytes"):
        of = {labels.get("container") for name, labels, _ in found if name == metric}
        if not {"busy", "idle"} <= of:
            raise Failed(f"{metric} is there for {of}")
    for _, labels, _ in found:
        if not {"container", "id", "image", "namespace", "pod"} <= set(labels) or labels["namespace"] != "default":
            raise Failed(f"labels: {labels}")
        if labels["container"] != "POD" and labels["image"] != BUSYBOX:
            raise Failed(f"the image as its users name it: {labels}")


def _true(pods):
    def value(metric, container=None):
        series = _series(pods.node.ask("/metrics/cadvisor"), "measured")
        return sum(number for name, labels, number in series if name == metric and (container is None or labels.get("container") == container))

    first = value("container_cpu_usage_seconds_total", "busy")
    until("CPU time rises", lambda: value("container_cpu_usage_seconds_total", "busy") > first + 0.5, 40)
    equal(value("container_spec_memory_limit_bytes", "busy"), float(64 << 20), "memory limit")
    equal((value("container_spec_cpu_quota", "busy"), value("container_spec_cpu_period", "busy")), (20000.0, 100000.0), "CPU quota")
    if value("container_cpu_cfs_throttled_periods_total", "busy") <= 0:
        raise Failed("200m of a busy loop are throttled, the metric is 0")
    if value("container_network_receive_bytes_total") < 0 or value("container_processes", "busy") < 2:
        raise Failed("processes or network")
