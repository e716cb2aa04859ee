"""Resize in place, eviction, and a node full of pods."""

import json
import time

from session.cgroups import limit_of
from session.program import Failure, assert_equal, run, wait_until

from .objects import controller, pod, shell, spec

MIB = 1 << 20
DENSITY = 110


def start(cluster):
    """Creates the pods of these tests."""
    resources = {"limits": {"cpu": "200m", "memory": "64Mi"}, "requests": {"cpu": "50m", "memory": "32Mi"}}
    fill = "sleep 2; dd if=/dev/zero of={file} bs=1M count=30 2>/dev/null; exec sleep 3600"
    cluster.apply(
        pod("resize", shell(script="exec sleep 1234", resources=resources, resizePolicy=[{"resourceName": name, "restartPolicy": "NotRequired"} for name in ("cpu", "memory")]),
            shell("restarted", resources={"limits": {"memory": "64Mi"}, "requests": {"memory": "32Mi"}},
                  resizePolicy=[{"resourceName": "memory", "restartPolicy": "RestartContainer"}])),
        pod("full-layer", shell(script=fill.format(file="/big"), resources={"limits": {"ephemeral-storage": "10Mi"}}), restartPolicy="Never"),
        pod("full-log", shell(script="sleep 2; yes 0123456789 | head -c 20000000; exec sleep 3600", resources={"limits": {"ephemeral-storage": "5Mi"}}), restartPolicy="Never"),
        pod("full-volume", shell(script=fill.format(file="/volume/big"), volumeMounts=[{"name": "volume", "mountPath": "/volume"}]), restartPolicy="Never",
            volumes=[{"name": "volume", "emptyDir": {"sizeLimit": "10Mi"}}]))


def resize(steps, cluster):
    def patch(container, **resources):
        body = {"spec": {"containers": [{"name": container, "resources": resources}]}}
        return cluster.kubectl("patch", "pod", "resize", "--subresource", "resize", "-p", json.dumps(body))

    def pid():
        return int(run("pgrep", "-x", "-f", "sleep 1234").check().text)

    with steps.step("resize in place: limits of CPU and memory change in the cgroup without a restart"):
        cluster.wait_pod("resize")
        before = pid()
        assert_equal((limit_of(before, "memory"), limit_of(before, "cpu")), (64 * MIB, (20000, 100000)), "limits before")
        patch("main", limits={"cpu": "300m", "memory": "96Mi"}, requests={"cpu": "100m", "memory": "48Mi"}).check()
        wait_until("the cgroup has the new limits", lambda: (limit_of(before, "memory"), limit_of(before, "cpu")) == (96 * MIB, (30000, 100000)), 60)
        wait_until("the status has the new limits", lambda: cluster.container("resize")["resources"]["limits"] == {"cpu": "300m", "memory": "96Mi"}, 60)
        assert_equal((pid(), cluster.container("resize")["restartCount"]), (before, 0), "process and restarts")
    with steps.step("resize with RestartContainer restarts this container only"):
        patch("restarted", limits={"memory": "80Mi"}).check()
        wait_until("the container restarts", lambda: cluster.container("resize", "restarted")["restartCount"] == 1, 90)
        assert_equal(cluster.container("resize")["restartCount"], 0, "restarts of the other container")
    with steps.step("a resize that the node cannot satisfy is refused and changes nothing"):
        patch("main", requests={"cpu": "900", "memory": "48Mi"}, limits={"cpu": "900", "memory": "96Mi"}).check_fails(both="allocatable")
        assert_equal((limit_of(before, "cpu"), cluster.container("resize")["restartCount"]), ((30000, 100000), 0), "limit and restarts")


def eviction(steps, cluster):
    for name, subject in (("full-layer", "its writable layer"), ("full-log", "its log"), ("full-volume", "an emptyDir")):
        with steps.step(f"a pod is evicted that exceeds the limit of {subject}"):
            # The kubelet measures file systems every minute.
            wait_until(f"{name} is evicted", lambda: cluster.get("pod", name)["status"].get("reason") == "Evicted", 150)
            cluster.delete("pod", name, "--now")
    with steps.step("the eviction API, and kubectl drain with a disruption budget"):
        cluster.apply(controller("Deployment", "drained", spec(shell()), replicas=2), {
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "drained"}, "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "drained"}}}})
        cluster.kubectl("rollout", "status", "deployment/drained", "--timeout=60s", timeout=70).check()
        wait_until("the budget is known", lambda: cluster.get("poddisruptionbudget", "drained")["status"].get("currentHealthy") == 2)
        drain = ("drain", "node", "--pod-selector", "app=drained", "--ignore-daemonsets", "--timeout=4s")
        cluster.kubectl(*drain).check_fails(both="disruption budget|timeout")
        cluster.delete("poddisruptionbudget", "drained")
        cluster.kubectl("uncordon", "node").check()
        before = cluster.kubectl("get", "pods", "-l", "app=drained", "-o", "name").check().out.split()
        cluster.kubectl("drain", "node", "--pod-selector", "app=drained", "--ignore-daemonsets", "--timeout=60s", timeout=70).check(both="evicted")
        cluster.kubectl("uncordon", "node").check()
        cluster.delete("deployment", "drained")
        wait_until("the pods are gone", lambda: not set(before) & set(cluster.kubectl("get", "pods", "-o", "name").check().out.split()), 60)


def density(steps, cluster):
    """Starts a Deployment of 110 pods and deletes it."""
    def ready():
        return cluster.get("deployment", "many")["status"].get("readyReplicas", 0)

    with steps.step(f"{DENSITY} pods at once become ready"):
        cluster.apply(controller("Deployment", "many", spec(shell(script="exec sleep 3600", resources={"requests": {"cpu": "1m", "memory": "1Mi"}})), replicas=0))
        begin = time.monotonic()
        cluster.kubectl("scale", "deployment/many", f"--replicas={DENSITY}").check()
        wait_until("all are ready", lambda: ready() == DENSITY, 240)
        print(f"# {DENSITY} pods are ready after {time.monotonic() - begin:.1f} s", flush=True)
    with steps.step("none of them has restarted; all addresses differ"):
        pods = cluster.get("pods", "-l", "app=many")["items"]
        assert_equal(len({found["status"]["podIP"] for found in pods}), DENSITY, "different addresses")
        restarts = [found["metadata"]["name"] for found in pods if found["status"]["containerStatuses"][0]["restartCount"]]
        if restarts:
            raise Failure(f"restarted: {restarts}")
    with steps.step(f"{DENSITY} pods are removed"):
        begin = time.monotonic()
        cluster.kubectl("delete", "deployment", "many").check()
        wait_until("all are gone", lambda: not cluster.kubectl("get", "pods", "-l", "app=many", "-o", "name").check().text, 240)
        print(f"# {DENSITY} pods are gone after {time.monotonic() - begin:.1f} s", flush=True)
