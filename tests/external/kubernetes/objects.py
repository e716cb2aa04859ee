"""Manifests of Kubernetes objects. Image versions are those of Kubernetes' test/utils/image/manifest.go."""

REGISTRY = "registry.k8s.io"
BUSYBOX = f"{REGISTRY}/e2e-test-images/busybox:1.37.0-2"
AGNHOST = f"{REGISTRY}/e2e-test-images/agnhost:2.66.1"
NGINX = f"{REGISTRY}/e2e-test-images/nginx:1.27.0-2"
DEVICE_PLUGIN = f"{REGISTRY}/e2e-test-images/sample-device-plugin:1.7"
# Script of a container that only has to be running.
FOREVER = "trap 'exit 0' TERM; while :; do sleep 1 & wait $!; done"


def shell(name="main", script=FOREVER, **more):
    """Returns a container that runs a shell script."""
    return {"name": name, "image": BUSYBOX, "command": ["sh", "-c", script], **more}


def web(name="web", **more):
    """Returns a container that serves /hostname and other paths over HTTP on port 8080."""
    return {"name": name, "image": AGNHOST, "args": ["netexec", "--http-port=8080"], "ports": [{"containerPort": 8080}],
            "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1}, **more}


def spec(*containers, **more):
    """Returns the specification of a pod."""
    return {"containers": list(containers), "terminationGracePeriodSeconds": 2, **more}


def pod(name, *containers, labels=None, annotations=None, **more):
    """Returns a pod."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels or {}, "annotations": annotations or {}}, "spec": spec(*containers, **more)}


def config(kind, name, **data):
    """Returns a ConfigMap or a Secret."""
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "data" if kind == "ConfigMap" else "stringData": data}


def controller(kind, name, template, api="apps/v1", **more):
    """Returns a controller whose pods have the label app=NAME."""
    labels = {"app": name}
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": template}, **more}}


def job(name, container, **more):
    """Returns a Job."""
    template = {"spec": spec(container, restartPolicy="Never")}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template, **more}}


def service(name, app=None, port=80, target=8080, **more):
    """Returns a Service for the pods with the label app=NAME."""
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"selector": {"app": app or name}, "ports": [{"name": "main", "port": port, "targetPort": target}], **more}}
