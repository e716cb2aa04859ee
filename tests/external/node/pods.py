"""Manifests of static pods, and what their containers say."""

import json
from pathlib import Path

from session.program import Failed, run, until

BUSYBOX = "registry.k8s.io/e2e-test-images/busybox:1.29-2"
HEALTH = "registry.k8s.io/pinion/health:1"
# What a container does that only has to be there.
FOREVER = "trap 'exit 0' TERM; while :; do sleep 1 & wait $!; done"


def shell(name, script=FOREVER, **more):
    """A container that runs a shell script."""
    return {"name": name, "image": BUSYBOX, "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", script], **more}


def pod(name, *containers, **spec):
    """A pod of these."""
    grace = spec.pop("terminationGracePeriodSeconds", 5)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", **spec.pop("metadata", {})},
            "spec": {"containers": list(containers), "terminationGracePeriodSeconds": grace, **spec}}


class Pods:
    """The pods of one node, asked by name."""

    def __init__(self, node):
        self.node = node

    def start(self, *pods, ready=True):
        """Places them and waits until every container of each runs (and is ready)."""
        for one in pods:
            self.node.place(one)
        for one in pods:
            self.running(one["metadata"]["name"], ready=ready)

    def running(self, name, ready=True, seconds=60):
        """Waits until all its containers run."""
        def all_run():
            status = self.node.pods()[name]["status"]
            wanted = len(self.node.pods()[name]["spec"]["containers"])
            states = status.get("containerStatuses", [])
            return len(states) == wanted and all("running" in state["state"] and (state["ready"] or not ready) for state in states) \
                and (status.get("podIP") or self.node.pods()[name]["spec"].get("hostNetwork"))

        try:
            return until(f"pod {name} runs", all_run, seconds)
        except Failed as failure:
            raise Failed(f"{failure}\n{self.story(name)}") from None

    def status(self, name):
        return self.node.pods()[name]["status"]

    def container(self, pod, name=None):
        """The status of one container; without a name, of the only one."""
        status = self.status(pod)
        every = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
        if name is None:
            return status["containerStatuses"][0]
        for state in every:
            if state["name"] == name:
                return state
        raise KeyError(f"pod {pod} has no status of {name} yet")

    def logs(self, pod, container, **query):
        """As `kubectl logs` gets them."""
        return self.node.ask(f"/containerLogs/default/{pod}-node/{container}", **query)

    def says(self, pod, container, text, seconds=40):
        """Waits until a text is in a container's log."""
        return until(f"{text!r} in the log of {pod}/{container}", lambda: (found := self.logs(pod, container)) and text in found and found, seconds)

    def exec(self, pod, container, *command, protocol="spdy", stdin=None, flags=(), timeout=60):
        """As `kubectl exec` does."""
        url = self.node.url("exec", "default", f"{pod}-node", container, command=list(command))
        return run(*self.node.client("exec", f"--protocol={protocol}", *(["-i"] if stdin is not None else []), *flags, url), stdin=stdin, timeout=timeout)

    def out(self, pod, container, script):
        """What a shell script prints in a container."""
        return self.exec(pod, container, "sh", "-c", script).must().word

    def pid(self, pod, container=None):
        """The container's first process, as the machine sees it."""
        found = self.container(pod, container)["containerID"].split("://")[1]
        info = self.node.engine.crictl("inspect", found).must().json
        return int(info["info"]["pid"] if isinstance(info["info"], dict) else json.loads(info["info"])["pid"])

    def story(self, name):
        """Why a pod is not as it should be."""
        lines = [f"the kubelet shows {json.dumps(self.node.pods().get(name, {}).get('status'), indent=1)[-3000:]}"]
        lines += ["the kubelet's log:"] + [line[:600] for line in self.node.said(rf"{name}-node") if line.startswith(("E", "W"))][-8:]
        lines += ["the daemon's log:"] + [line[:400] for line in Path(self.node.engine.log).read_text(errors="replace").splitlines()
                                          if "WARN" in line or "ERROR" in line or "level=error" in line or name in line][-12:]
        return "\n".join(lines)
