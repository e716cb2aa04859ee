"""Manifests of static pods, and the status, logs and execs of their containers."""

import json
from pathlib import Path

from session.program import Failure, run, wait_until

BUSYBOX = "registry.k8s.io/e2e-test-images/busybox:1.29-2"
HEALTH = "registry.k8s.io/pinion/health:1"
# Script of a container that only has to be running.
FOREVER = "trap 'exit 0' TERM; while :; do sleep 1 & wait $!; done"


def shell(name, script=FOREVER, **more):
    """Returns a container that runs a shell script."""
    return {"name": name, "image": BUSYBOX, "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", script], **more}


def pod(name, *containers, **spec):
    """Returns the manifest of a pod with these containers."""
    grace = spec.pop("terminationGracePeriodSeconds", 5)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", **spec.pop("metadata", {})},
            "spec": {"containers": list(containers), "terminationGracePeriodSeconds": grace, **spec}}


class Pods:
    """The pods of a node, by name."""

    def __init__(self, node):
        self.node = node

    def start(self, *pods, ready=True):
        """Adds the manifests and waits until every container is running (and ready)."""
        for manifest in pods:
            self.node.add_manifest(manifest)
        for manifest in pods:
            self.wait_running(manifest["metadata"]["name"], ready=ready)

    def wait_running(self, name, ready=True, seconds=60):
        """Waits until all containers of a pod are running (and ready)."""
        def all_running():
            status = self.node.pods()[name]["status"]
            count = len(self.node.pods()[name]["spec"]["containers"])
            states = status.get("containerStatuses", [])
            return len(states) == count and all("running" in state["state"] and (state["ready"] or not ready) for state in states) \
                and (status.get("podIP") or self.node.pods()[name]["spec"].get("hostNetwork"))

        try:
            return wait_until(f"pod {name} is running", all_running, seconds)
        except Failure as failure:
            raise Failure(f"{failure}\n{self.diagnostics(name)}") from None

    def status(self, name):
        return self.node.pods()[name]["status"]

    def container(self, pod, name=None):
        """Returns the status of a container; without a name, of the first one."""
        status = self.status(pod)
        states = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
        if name is None:
            return status["containerStatuses"][0]
        for state in states:
            if state["name"] == name:
                return state
        raise KeyError(f"pod {pod} has no status of container {name} yet")

    def logs(self, pod, container, **query):
        """Returns the log of a container, as `kubectl logs` does."""
        return self.node.get(f"/containerLogs/default/{pod}-node/{container}", **query)

    def wait_for_log(self, pod, container, text, seconds=40):
        """Waits until the log of a container contains a text."""
        return wait_until(f"{text!r} is in the log of {pod}/{container}", lambda: (log := self.logs(pod, container)) and text in log and log, seconds)

    def exec(self, pod, container, *command, protocol="spdy", stdin=None, flags=(), timeout=60):
        """Executes a command in a container, as `kubectl exec` does."""
        url = self.node.url("exec", "default", f"{pod}-node", container, command=list(command))
        return run(*self.node.client("exec", f"--protocol={protocol}", *(["-i"] if stdin is not None else []), *flags, url), stdin=stdin, timeout=timeout)

    def exec_script(self, pod, container, script):
        """Executes a shell script in a container and returns its output."""
        return self.exec(pod, container, "sh", "-c", script).check().text

    def pid(self, pod, container=None):
        """Returns the pid of a container's first process in the PID namespace of the session."""
        container_id = self.container(pod, container)["containerID"].split("://")[1]
        info = self.node.engine.crictl("inspect", container_id).check().json
        return int(info["info"]["pid"] if isinstance(info["info"], dict) else json.loads(info["info"])["pid"])

    def diagnostics(self, name):
        """Returns the status of a pod and lines about it from the logs of kubelet and engine."""
        lines = [f"status of the pod: {json.dumps(self.node.pods().get(name, {}).get('status'), indent=1)[-3000:]}"]
        lines += ["log of the kubelet:"] + [line[:600] for line in self.node.log_lines(rf"{name}-node") if line.startswith(("E", "W"))][-8:]
        lines += ["log of the engine:"] + [line[:400] for line in Path(self.node.engine.log).read_text(errors="replace").splitlines()
                                          if "WARN" in line or "ERROR" in line or "level=error" in line or name in line][-12:]
        return "\n".join(lines)
