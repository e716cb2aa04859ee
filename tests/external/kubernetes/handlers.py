"""RuntimeClasses: three runtimes on one node at once, with static pods, probes, exec and logs of each."""

import json

from session import runtimes
from session.program import assert_equal, wait_until
from session.wrapper import hide_unified

from .objects import AGNHOST, FOREVER, pod, shell

# RuntimeClass and handler of the same name; None is the default handler, which needs no RuntimeClass.
CLASSES = (None, "runc", "crun")


def prepare():
    """Installs or builds the runtimes, and returns their paths by name."""
    return {"runc": str(runtimes.runc()), "crun": str(runtimes.crun())}


def config(binaries, work):
    """Returns the handlers in the configuration of Pinion."""
    binaries = {**binaries, "crun": hide_unified(binaries["crun"], work, joins=True)}
    return "".join(f'[handlers.{name}]\nbinary = "{binary}"\n' for name, binary in binaries.items())


def run(steps, cluster):
    """Runs a static pod and a pod of the API with each RuntimeClass, all at once."""
    with steps.step("RuntimeClasses and pods of each are accepted"):
        handlers = {**{name: name for name in CLASSES if name}, "absent-handler": "absent"}
        cluster.apply(*({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": handler} for name, handler in handlers.items()))
        for name in CLASSES:
            manifest = cluster.node.work / "manifests" / f"{_name(name)}.json"
            manifest.write_text(json.dumps(_pod(f"static-{_name(name)}", name)))
        cluster.apply(*(_pod(f"class-{_name(name)}", name) for name in CLASSES), _pod("class-absent", "absent-handler"))
    for name in CLASSES:
        for prefix, suffix in (("static", "-node"), ("class", "")):
            _check(steps, cluster, f"{prefix}-{_name(name)}{suffix}", name)
    with steps.step("a pod of a handler that is not configured waits, with the reason in its events"):
        wait_until("the event", lambda: "is not configured on this node" in cluster.describe("class-absent"), 60)
    with steps.step("static pods are removed with their manifests"):
        for manifest in (cluster.node.work / "manifests").glob("*.json"):
            manifest.unlink()
        wait_until("they are gone", lambda: "static-" not in cluster.kubectl("get", "pods", "-o", "name").check().out, 60)
        cluster.kubectl("delete", "runtimeclass", "--all").check()


def _name(runtime_class):
    return runtime_class or "native"


def _pod(name, runtime_class, **more):
    chosen = {"runtimeClassName": runtime_class} if runtime_class else {}
    probe = {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1}
    dying = {"exec": {"command": ["test", "!", "-e", "/tmp/die"]}, "periodSeconds": 1, "failureThreshold": 1}
    return pod(name, shell(script=f"echo output of {name}; touch /tmp/ready; {FOREVER}", readinessProbe=probe, livenessProbe=dying,
                           resources={"limits": {"memory": "64Mi", "cpu": "500m"}, "requests": {"memory": "16Mi", "cpu": "10m"}}),
               {"name": "web", "image": AGNHOST, "args": ["netexec", "--http-port=8080"], "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1}},
               **chosen, **more)


def _check(steps, cluster, name, runtime_class):
    with steps.step(f"{name}: probes, log, exec, restart by a failing liveness probe"):
        cluster.wait_pod(name, seconds=90)
        assert_equal(cluster.get("pod", name)["spec"].get("runtimeClassName"), runtime_class, "RuntimeClass")
        cluster.wait_for_log(name, "main", f"output of {name.removesuffix('-node')}")
        assert_equal(cluster.shell(name, "echo $((6*7))"), "42", "output of a command")
        address = cluster.get("pod", name)["status"]["podIP"]
        assert_equal(cluster.shell(name, f"wget -qO- http://{address}:8080/hostname"), name, "response of the other container")
        cluster.shell(name, "touch /tmp/die")
        wait_until("the container is restarted", lambda: cluster.container(name)["restartCount"] == 1, 60)
        cluster.wait_pod(name)
