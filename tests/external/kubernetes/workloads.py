"""The objects that users create: controllers, Services, ConfigMaps, volumes, probes, hooks, security contexts."""

import re

from session.program import Failure, assert_equal, run, wait_until

from .objects import AGNHOST, BUSYBOX, FOREVER, NGINX, config, controller, job, pod, service, shell, spec, web

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def start(steps, cluster):
    """Creates all objects at once."""
    with steps.step("all workloads are accepted"):
        cluster.apply(
            config("ConfigMap", "settings", greeting="hello", file="line one\nline two\n"), config("Secret", "hidden", password="s3cret"),
            controller("Deployment", "web", spec(web()), replicas=3), service("web"),
            controller("DaemonSet", "agent", spec(shell(securityContext={"privileged": True}, volumeMounts=[
                {"name": "host", "mountPath": "/host", "mountPropagation": "HostToContainer"}]), hostNetwork=True, hostPID=True,
                volumes=[{"name": "host", "hostPath": {"path": "/var/lib/kubelet"}}])),
            controller("StatefulSet", "db", spec({"name": "main", "image": NGINX, "readinessProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 1}}),
                       replicas=2, serviceName="db"),
            service("db", port=80, target=80, clusterIP="None"),
            job("sum", shell(script="echo $((6*7))"), completions=3, parallelism=2),
            {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "tick"}, "spec": {
                "schedule": "* * * * *", "jobTemplate": {"spec": {"template": {"spec": spec(shell(script="echo tick"), restartPolicy="OnFailure")}}}}},
            *_pods())


def _pods():
    scratch, mounts = {"name": "scratch", "emptyDir": {}}, [{"name": "scratch", "mountPath": "/scratch"}]
    yield _volumes()
    yield pod("order", shell(script=f"cat /scratch/order; echo main; {FOREVER}", volumeMounts=mounts), volumes=[scratch], initContainers=[
        shell("first", "echo first > /scratch/order", volumeMounts=mounts),
        shell("sidecar", "echo sidecar >> /scratch/order; trap 'echo sidecar ends; exit 0' TERM; while :; do sleep 0.2; done", restartPolicy="Always",
              volumeMounts=mounts, startupProbe={"exec": {"command": ["grep", "-q", "sidecar", "/scratch/order"]}, "periodSeconds": 1})])
    yield pod("probes", {"name": "http", "image": AGNHOST, "args": ["liveness"], "livenessProbe": {
        "httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 1, "initialDelaySeconds": 3, "failureThreshold": 1}},
        {"name": "grpc", "image": AGNHOST, "args": ["grpc-health-checking", "--port=5001", "--http-port=8088"],
         "livenessProbe": {"grpc": {"port": 5001}, "periodSeconds": 1, "initialDelaySeconds": 2}},
        shell("exec", "touch /ok; sleep 6; rm /ok; sleep 3600", livenessProbe={"exec": {"command": ["cat", "/ok"]}, "periodSeconds": 1, "failureThreshold": 1}),
        shell("slow", readinessProbe={"exec": {"command": ["sleep", "5"]}, "timeoutSeconds": 1, "periodSeconds": 2}))
    yield pod("secure", shell(securityContext={"readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False, "runAsNonRoot": True,
                                               "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}, volumeMounts=mounts),
              volumes=[scratch], securityContext={"runAsUser": 1000, "runAsGroup": 3000, "fsGroup": 2000, "supplementalGroups": [4000],
                                                  "seccompProfile": {"type": "RuntimeDefault"}})
    yield pod("root-refused", shell(securityContext={"runAsNonRoot": True}))
    yield pod("userns", shell(securityContext={"procMount": "Unmasked"}, volumeMounts=mounts), hostUsers=False, volumes=[scratch], securityContext={"fsGroup": 2000})
    yield pod("hostport", web(ports=[{"containerPort": 8080, "hostPort": 18081}, {"containerPort": 8081, "hostPort": 18082, "protocol": "UDP"}],
                              args=["netexec", "--http-port=8080", "--udp-port=8081"]))
    yield pod("shared", shell(), shell("other", "exec sleep 4321"), shareProcessNamespace=True, hostname="named", subdomain="db",
              hostAliases=[{"ip": "192.0.2.7", "hostnames": ["alias.example"]}])
    yield pod("oom", shell(script="tail /dev/zero", resources={"limits": {"memory": "32Mi"}}), restartPolicy="OnFailure")
    yield pod("exits", shell("code", "echo reason > /dev/termination-log; exit 7"), shell("fallback", "echo from the log; exit 3", terminationMessagePolicy="FallbackToLogsOnError"),
              {"name": "absent", "image": BUSYBOX, "command": ["/no/such"]}, restartPolicy="Never")
    yield pod("imagevolume", shell(volumeMounts=[{"name": "image", "mountPath": "/image"}, {"name": "image", "mountPath": "/part", "subPath": "etc"}]),
              volumes=[{"name": "image", "image": {"reference": AGNHOST, "pullPolicy": "IfNotPresent"}}])
    yield pod("badimage", {"name": "main", "image": "registry.k8s.io/e2e-test-images/nothing:1"})
    yield pod("stopsignal", shell(script="trap 'echo usr1; exit 5' USR1; while :; do sleep 0.1; done", lifecycle={"stopSignal": "SIGUSR1"}),
              os={"name": "linux"}, restartPolicy="Never", terminationGracePeriodSeconds=30)
    yield pod("deadline", shell(), activeDeadlineSeconds=5)
    yield pod("rules", shell(script="sleep 1; exit 42", restartPolicy="Never", restartPolicyRules=[{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]),
              restartPolicy="Never")
    yield pod("podlevel", shell(), shell("greedy", "sleep 2; tail /dev/zero", resources={"limits": {"memory": "20Mi"}}),
              resources={"limits": {"cpu": "500m", "memory": "100Mi"}, "requests": {"cpu": "100m", "memory": "50Mi"}})


def _volumes():
    def key(source, kind, name):
        return {"valueFrom": {source: {"name": kind, "key": name}}}

    names = ("config", "secret", "memory", "fields", "token", "scratch")
    return pod(
        "volumes", shell(
            env=[{"name": "GREETING", **key("configMapKeyRef", "settings", "greeting")}, {"name": "PASSWORD", **key("secretKeyRef", "hidden", "password")},
                 {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}, {"name": "MEMORY", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory"}}}],
            volumeMounts=[*({"name": name, "mountPath": f"/{name}"} for name in names), {"name": "config", "mountPath": "/single", "subPath": "greeting"}],
            resources={"limits": {"cpu": "500m", "memory": "64Mi"}, "requests": {"cpu": "50m", "memory": "32Mi"}}),
        labels={"a": "b"}, volumes=[
            {"name": "config", "configMap": {"name": "settings"}}, {"name": "secret", "secret": {"secretName": "hidden", "defaultMode": 0o400}},
            {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}, {"name": "scratch", "emptyDir": {}},
            {"name": "fields", "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
            {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token", "audience": "other", "expirationSeconds": 600}}, {"configMap": {"name": "settings"}}]}}])


def controllers(steps, cluster):
    for kind, name in (("deployment", "web"), ("daemonset", "agent"), ("statefulset", "db")):
        with steps.step(f"{kind} {name} is rolled out"):
            cluster.kubectl("rollout", "status", f"{kind}/{name}", "--timeout=120s", timeout=130).check()
    with steps.step("a Job completes"):
        cluster.kubectl("wait", "--for=condition=Complete", "job/sum", "--timeout=60s", timeout=70).check()
        assert_equal(cluster.kubectl("logs", "-l", "job-name=sum").check().out.split(), ["42"] * 3, "logs of its pods")
    with steps.step("a rolling update replaces all pods of a Deployment"):
        before = set(cluster.kubectl("get", "pods", "-l", "app=web", "-o", "name").check().out.split())
        cluster.kubectl("set", "env", "deployment/web", "VERSION=2").check()
        cluster.kubectl("rollout", "status", "deployment/web", "--timeout=90s", timeout=100).check()
        wait_until("the old pods are gone", lambda: not before & set(cluster.kubectl("get", "pods", "-l", "app=web", "-o", "name").check().out.split()), 60)
    with steps.step("a StatefulSet recreates a deleted pod with its name"):
        first = cluster.get("pod", "db-0")["metadata"]["uid"]
        cluster.delete("pod", "db-0")
        wait_until("db-0 is there again", lambda: cluster.get("pod", "db-0")["metadata"]["uid"] != first, 60)
        cluster.wait_pod("db-0")


def services(steps, cluster):
    address = cluster.get("service", "web")["spec"]["clusterIP"]
    pods = {item["metadata"]["name"] for item in cluster.get("pods", "-l", "app=web")["items"]}
    with steps.step("a Service reaches all pods of a Deployment, also from one of them"):
        one = sorted(pods)[0]
        found = set(cluster.shell(one, f"for i in $(seq 30); do curl -s -m 5 http://{address}/hostname; echo; done", container="web").split())
        assert_equal(found, pods, "pods that responded")
    with steps.step("cluster DNS: a Service, the pods of a headless Service, the API server"):
        for name in ("web", "web.default.svc.cluster.local", "db-1.db"):
            cluster.shell(one, f"curl -sf -m 5 -o /dev/null http://{name}/", container="web")
        cluster.shell(one, f"curl -sf -m 5 --cacert {ACCOUNT}/ca.crt https://kubernetes.default/version", container="web")
    with steps.step("host ports over TCP and UDP"):
        cluster.wait_pod("hostport")
        wait_until("the port responds", lambda: run("curl", "-fsS", "-m", "3", "http://127.0.0.1:18081/hostname").out == "hostport")
        wait_until("the UDP port responds", lambda: run("bash", "-c", "exec 3<>/dev/udp/127.0.0.1/18082; echo hostname >&3; timeout 2 head -c 8 <&3").out == "hostport")


def volumes(steps, cluster):
    with steps.step("ConfigMap, Secret, downward API and token in variables and files"):
        cluster.wait_pod("volumes")
        assert_equal(cluster.shell("volumes", "echo $GREETING $PASSWORD $NODE $MEMORY; cat /single").split(), ["hello", "s3cret", "node", str(64 << 20), "hello"], "values")
        assert_equal(cluster.shell("volumes", "cat /config/file /secret/password; echo; cat /fields/labels").split("\n"), ["line one", "line two", "s3cret", 'a="b"'], "files")
        assert_equal(cluster.shell("volumes", "stat -Lc %a /secret/password; test -s /token/token; grep -c ' /memory tmpfs ' /proc/mounts").split(), ["400", "1"], "modes, mounts")
    with steps.step("a changed ConfigMap reaches the volume"):
        cluster.apply(config("ConfigMap", "settings", greeting="changed", file="line one\nline two\n"))
        cluster.kubectl("annotate", "pod", "volumes", "synchronize=now").check()
        wait_until("the file changes", lambda: cluster.shell("volumes", "cat /config/greeting") == "changed", 120)
    with steps.step("an image as a volume, complete and with subPath, read-only"):
        cluster.wait_pod("imagevolume")
        cluster.shell("imagevolume", "test -x /image/agnhost; grep -q user-defined /part/passwd; ! touch /image/new 2>/dev/null")


def lifecycle(steps, cluster):
    with steps.step("init container, sidecar and main container start in order; the sidecar ends last"):
        cluster.wait_pod("order")
        cluster.wait_for_log("order", "main", "first\nsidecar\nmain\n")
        follower = run("bash", "-c", f"{' '.join(cluster.command('logs', '-f', 'order', '-c', 'sidecar'))} & sleep 1; {' '.join(cluster.command('delete', 'pod', 'order'))} >&2; wait")
        follower.check(out="sidecar ends")
    with steps.step("liveness probes over HTTP and exec restart their containers, one over gRPC does not"):
        wait_until("restarts", lambda: all(cluster.container("probes", name)["restartCount"] for name in ("http", "exec")), 60)
        assert_equal([cluster.container("probes", name)["restartCount"] for name in ("grpc", "slow")], [0, 0], "restarts of the others")
        assert_equal(cluster.container("probes", "slow")["ready"], False, "a container whose probe times out is ready")
        cluster.kubectl("logs", "probes", "-c", "exec", "--previous").check()
    with steps.step("exit codes, termination messages, a missing program"):
        def state(name):
            found = cluster.container("exits", name)["state"]["terminated"]
            return found["exitCode"], found.get("message", "").strip()

        wait_until("all containers have terminated", lambda: all("terminated" in cluster.container("exits", name)["state"] for name in ("code", "fallback", "absent")), 60)
        assert_equal([state(name) for name in ("code", "fallback")], [(7, "reason"), (3, "from the log")], "exit codes and messages")
        if not re.search("no/such", state("absent")[1]):
            raise Failure(f"message of a missing program: {state('absent')}")
    with steps.step("OOMKilled; ImagePullBackOff; runAsNonRoot; activeDeadlineSeconds"):
        def reasons(name):
            return re.findall(r'"reason": ?"(\w+)"', cluster.kubectl("get", "pod", name, "-o", "json").check().out)

        for name, reason in (("oom", "OOMKilled"), ("badimage", "ImagePullBackOff|ErrImagePull"), ("root-refused", "CreateContainerConfigError"), ("deadline", "DeadlineExceeded")):
            wait_until(f"{name}: {reason}", lambda: any(re.fullmatch(reason, found) for found in reasons(name)), 60)
    with steps.step("a restart rule restarts a container of a pod that never restarts"):
        wait_until("the container restarts", lambda: cluster.container("rules")["restartCount"], 40)
    with steps.step("limits of the whole pod: a container above its own limit is killed, the other keeps running"):
        wait_until("greedy is killed", lambda: "OOMKilled" in str(cluster.container("podlevel", "greedy")), 40)
        assert_equal(cluster.container("podlevel")["restartCount"], 0, "restarts of the other container")
    with steps.step("a stop signal of the pod's specification"):
        cluster.wait_pod("stopsignal")
        follower = run("bash", "-c", f"{' '.join(cluster.command('logs', '-f', 'stopsignal'))} & sleep 1; {' '.join(cluster.command('delete', 'pod', 'stopsignal', '--wait=false'))} >&2; wait")
        follower.check(out="usr1")


def isolation(steps, cluster):
    with steps.step("user, groups, capabilities, no_new_privs, seccomp, read-only root"):
        cluster.wait_pod("secure")
        assert_equal(set(cluster.shell("secure", "id -u; id -G").split()), {"1000", "2000", "3000", "4000"}, "ids")
        assert_equal(cluster.shell("secure", "grep -E 'CapEff|NoNewPrivs|Seccomp:' /proc/self/status").split()[1::2], ["0" * 16, "1", "2"], "CapEff, NoNewPrivs, Seccomp")
        cluster.shell("secure", "! touch /new 2>/dev/null; touch /scratch/new")
    with steps.step("hostUsers: false with procMount: Unmasked; the volume has the ids of the pod"):
        cluster.wait_pod("userns")
        first = int(cluster.shell("userns", "cat /proc/self/uid_map").split()[1])
        if first < 65536:
            raise Failure(f"root of the pod is {first} on the host")
        assert_equal(cluster.shell("userns", "id -u; touch /scratch/x; stat -c %u:%g /scratch/x"), "0\n0:2000", "ids")
        # A masked path is covered by a mount.
        assert_equal(cluster.shell("userns", "grep -c ' /proc/' /proc/self/mountinfo || true"), "0", "mounts below /proc")
    with steps.step("a shared PID namespace; hostname, subdomain and host aliases"):
        cluster.wait_pod("shared")
        processes = cluster.shell("shared", "ps; hostname; cat /etc/hosts")
        for part in ("sleep 4321", "named", "alias.example", "named.db.default.svc.cluster.local"):
            if part not in processes:
                raise Failure(f"{part!r} is missing in\n{processes}")
    with steps.step("a DaemonSet with the host's network and processes"):
        name = cluster.kubectl("get", "pods", "-l", "app=agent", "-o", "name").check().text
        cluster.kubectl("exec", name, "--", "sh", "-c", "ls /host/pods | grep -q . && ps | grep -q '[p]inmon\\|[c]ontainerd' && ip addr show uplink0").check()
    with steps.step("a CronJob has run"):
        wait_until("a job of it is complete", lambda: any(item["metadata"]["name"].startswith("tick-") and item["status"].get("succeeded") for item in cluster.get("jobs")["items"]), 90)
        cluster.delete("cronjob", "tick")
