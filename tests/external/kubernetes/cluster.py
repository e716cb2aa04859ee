"""A cluster of one node: control plane, engine, kubelet, kube-proxy; and kubectl."""

import json
import os
from pathlib import Path

from node.kubelet import set_up_network
from session.engines import create_engine
from session.program import Failure, run, wait_until
from session.sources import Registry

from . import node as nodes
from .control_plane import ControlPlane
from .credentials import Credentials
from .images import Images


class Cluster:
    """`prepared` is the result of `prepare()`: the paths of the programs and the versions of the images. `engine_config` ends the
    configuration of the engine."""

    def __init__(self, work, engine, prepared, engine_config=""):
        self.work, self.programs = work, prepared["programs"]
        self.logs = Path(os.environ.get("LOGS", work)).resolve()
        self.logs.mkdir(parents=True, exist_ok=True)
        set_up_network()
        nodes.set_up_directories(work)
        nodes.delegate_controllers()
        # Specs of e2e.test start a registry of their own on port 5000 of the node.
        self.registry = Registry(work, port=5050)
        self.images = Images(self.registry.host, work, self.programs, prepared["tags"])
        self.credentials = Credentials(work / "credentials")
        self.engine = create_engine(engine, work, registry=self.registry.host, extra_config=engine_config)
        self.control_plane = ControlPlane(work, self.logs, self.programs, self.credentials)
        self.node = nodes.Node(work, self.logs, self.programs, self.credentials, self.engine)

    def start(self):
        """Starts everything and waits until the node is ready."""
        self.control_plane.start()
        self.engine.start()
        self.node.start()
        self.node.start_proxy()
        self.wait_ready()

    def wait_ready(self):
        """Waits until the node is ready and the default namespace can be used."""
        wait_until("the node is ready", lambda: self.kubectl("wait", "--for=condition=Ready", "node/node", "--timeout=5s").code == 0, 90)
        wait_until("the default service account exists", lambda: self.kubectl("get", "serviceaccount", "default").code == 0, 60)

    def stop(self):
        """Deletes all pods and stops everything."""
        try:
            if self.control_plane.processes.get("kube-apiserver"):
                self.remove_pods("--all-namespaces")
                # A pod that was deleted without a grace period is gone from the API before the kubelet has removed it.
                wait_until("the kubelet removed the cgroups of all pods", lambda: not nodes.pod_cgroups(), 60)
        finally:
            self.node.clean_up()
            self.control_plane.stop()
            self.engine.clean_up()
            self.registry.stop()
            nodes.remove_directories()
            run("ip", "link", "del", "uplink0")

    def remove_pods(self, *namespace):
        """Deletes all pods and controllers of the default namespace, or of all."""
        self.kubectl("delete", "deployments,daemonsets,statefulsets,jobs,cronjobs,pods", "--all", *namespace, "--wait=false", timeout=60).check()
        wait_until("all pods are gone", lambda: not self.kubectl("get", "pods", *namespace, "-o", "name").check().text, 150)

    def kubectl(self, *argv, **options):
        """Runs kubectl as an administrator."""
        return run(*self.command(*argv), **options)

    def command(self, *argv):
        """Returns the argument vector of kubectl."""
        return [self.programs["kubectl"], "--kubeconfig", str(self.credentials.path("admin.conf")), *map(str, argv)]

    def apply(self, *objects):
        """Creates or changes objects."""
        manifest = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        return self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(manifest)).check()

    def get(self, *argv):
        """Returns an object, or a list of objects, as JSON."""
        return self.kubectl("get", *argv, "-o", "json").check().json

    def delete(self, *argv):
        """Deletes objects and waits until they are gone."""
        return self.kubectl("delete", *argv, timeout=120).check()

    def wait_pod(self, name, condition="Ready", seconds=60):
        """Waits for a condition of a pod."""
        result = self.kubectl("wait", f"--for=condition={condition}", f"pod/{name}", f"--timeout={seconds}s", timeout=seconds + 10)
        if result.code:
            raise Failure(f"{result}\n{self.describe(name)}")

    def describe(self, name):
        """Returns what kubectl reports about a pod."""
        return self.kubectl("describe", "pod", name).out[-3000:]

    def container(self, pod, name="main"):
        """Returns the status of a container."""
        status = self.get("pod", pod)["status"]
        kinds = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
        return next(state for kind in kinds for state in status.get(kind, []) if state["name"] == name)

    def shell(self, pod, script, container="main", **options):
        """Runs a shell script in a container and returns its standard output."""
        return self.kubectl("exec", pod, "-c", container, "--", "sh", "-c", script, **options).check().text

    def wait_for_log(self, pod, container, *texts, seconds=40):
        """Waits until the log of a container contains all texts; returns the log."""
        def log():
            text = self.kubectl("logs", pod, "-c", container).check().out
            missing = [part for part in texts if part not in text]
            if missing:
                raise Failure(f"{missing} missing in:\n{text[-1500:]}")
            return text or "\n"

        return wait_until(f"the log of {pod}/{container}", log, seconds)
