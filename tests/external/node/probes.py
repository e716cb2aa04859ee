"""Probes of all kinds, restarts with back-off, exit codes and reasons, image pulls."""

from session.program import Failure, assert_equal, wait_until

from .pods import BUSYBOX, FOREVER, HEALTH, pod, shell

FREQUENT = {"periodSeconds": 1, "timeoutSeconds": 2}
WEB = "echo page > /tmp/index.html; exec httpd -f -p 8080 -h /tmp"


def start(pods):
    """Adds all manifests at once, because the pods take time to reach their states."""
    def probed(name, script, **probes):
        return shell(name, script, **{f"{kind}Probe": {**FREQUENT, **probe} for kind, probe in probes.items()})

    # containerd 2.4 does not respond before the last process that has the output open has exited.
    too_long = "exec sleep 60" if pods.node.engine.name == "containerd" else "sleep 60 & sleep 61"
    exec_ready = {"exec": {"command": ["test", "-e", "/tmp/ready"]}}
    manifests = [
        pod("ready",
            probed("exec", f"sleep 3; touch /tmp/ready; {FOREVER}", readiness=exec_ready),
            probed("http", WEB, readiness={"httpGet": {"path": "/index.html", "port": 8080}}, liveness={"tcpSocket": {"port": 8080}},
                   startup={"httpGet": {"path": "/", "port": 8080}}),
            {"name": "grpc", "image": HEALTH, "livenessProbe": {"grpc": {"port": 9000}, **FREQUENT}, "readinessProbe": {"grpc": {"port": 9000, "service": "ready"}, **FREQUENT}},
            shell("later", f"{FOREVER}", startupProbe={"exec": {"command": ["sh", "-c", "sleep 1; test -e /proc/1"]}, **FREQUENT})),
        pod("unready", {"name": "grpc", "image": HEALTH, "readinessProbe": {"grpc": {"port": 9000, "service": "sick"}, **FREQUENT}},
            probed("exec", FOREVER, readiness=exec_ready)),
        pod("sick", probed("main", f"touch /tmp/well; sleep 3; rm /tmp/well; {FOREVER}",
                           liveness={"exec": {"command": ["cat", "/tmp/well"]}, "failureThreshold": 2}), terminationGracePeriodSeconds=2),
        pod("slow", probed("main", FOREVER, liveness={"exec": {"command": ["sh", "-c", too_long]}, "timeoutSeconds": 1, "failureThreshold": 2})),
        pod("crash", shell("main", "echo run; exit 7")),
        pod("oom", shell("main", "echo begin; tail /dev/zero", resources={"limits": {"memory": "16Mi"}}), restartPolicy="Never"),
        pod("done", shell("main", "echo -n message > /dev/termination-log; exit 3"),
            shell("logged", "echo last words; exit 4", terminationMessagePolicy="FallbackToLogsOnError"),
            shell("elsewhere", "echo -n elsewhere > /tmp/message", terminationMessagePath="/tmp/message"), restartPolicy="Never"),
        pod("nowhere", shell("main"), shell("none", image="registry.k8s.io/pinion/none:1")),
        pod("noprogram", {"name": "main", "image": BUSYBOX, "command": ["/no/such/program"]}, restartPolicy="Never"),
    ]
    for manifest in manifests:
        pods.node.add_manifest(manifest)


def _wait_for_container(pods, name, container, condition, description, seconds=60):
    try:
        return wait_until(description, lambda: condition(pods.container(name, container)) and pods.container(name, container), seconds)
    except Failure as failure:
        raise Failure(f"{failure}\n{pods.diagnostics(name)}") from None


def readiness(steps, pods):
    for container in ("exec", "http", "grpc", "later"):
        with steps.step(f"startup, liveness and readiness probes: {container}"):
            _wait_for_container(pods, "ready", container, lambda state: state["ready"] and state["started"], f"{container} is ready")
    with steps.step("a container whose readiness probe fails is running, but not ready until the probe succeeds"):
        for container in ("grpc", "exec"):
            _wait_for_container(pods, "unready", container, lambda state: "running" in state["state"] and not state["ready"], f"{container} is running and not ready")
        pods.exec("unready", "exec", "touch", "/tmp/ready").check()
        _wait_for_container(pods, "unready", "exec", lambda state: state["ready"], "exec is ready")
        assert_equal(pods.container("unready", "grpc")["ready"], False, "ready of the container whose gRPC service is not serving")
    with steps.step("a container whose liveness probe fails is stopped with SIGTERM and restarted"):
        state = _wait_for_container(pods, "sick", "main", lambda state: state["restartCount"] >= 1 and "running" in state["state"], "the container was restarted")
        assert_equal(state["lastState"]["terminated"]["exitCode"], 0, "exit code of the previous container (it exits on SIGTERM)")
    with steps.step("a probe that exceeds its timeout fails; its processes are killed"):
        _wait_for_container(pods, "slow", "main", lambda state: state["restartCount"] >= 1 and "running" in state["state"], "the container was restarted")
        processes = pods.exec_script("slow", "main", "ps -o stat,args")
        # One probe may be running at this moment: a shell with two sleeps.
        if processes.count("sleep 60") > 1 or "Z" in [line.split()[0][0] for line in processes.splitlines()[1:]]:
            raise Failure(f"leaked processes in the container:\n{processes}")


def exits(steps, pods):
    with steps.step("CrashLoopBackOff of a crashing container: restart count, exit code, reason"):
        state = _wait_for_container(pods, "crash", "main", lambda state: state["restartCount"] >= 2 and state["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff",
                                    "the container is in CrashLoopBackOff", 90)
        last = state["lastState"]["terminated"]
        assert_equal((last["exitCode"], last["reason"]), (7, "Error"), "exit code and reason of the previous container")
        if not last["startedAt"] <= last["finishedAt"]:
            raise Failure(f"the container finished before it started: {last}")
        if "run" not in pods.logs("crash", "main", previous="true"):
            raise Failure("the log of the previous container is empty")
    with steps.step("out of memory: OOMKilled, exit code 137"):
        state = _wait_for_container(pods, "oom", "main", lambda state: "terminated" in state["state"], "the container has exited")["state"]["terminated"]
        assert_equal((state["exitCode"], state["reason"]), (137, "OOMKilled"), "exit code and reason")
        assert_equal(pods.status("oom")["phase"], "Failed", "phase of the pod")
    with steps.step("termination messages: from the file, from another file, from the log"):
        for container, code, message in (("main", 3, "message"), ("logged", 4, "last words\n"), ("elsewhere", 0, "elsewhere")):
            state = _wait_for_container(pods, "done", container, lambda state: "terminated" in state["state"], "the container has exited")["state"]["terminated"]
            assert_equal((state["exitCode"], state.get("message")), (code, message), container)
    with steps.step("a missing image: ErrImagePull with the reason; the other container of the pod is running"):
        state = _wait_for_container(pods, "nowhere", "none", lambda state: state["state"].get("waiting", {}).get("reason") in ("ErrImagePull", "ImagePullBackOff"), "the container is waiting")
        lines = pods.node.log_lines("pinion/none:1")
        if not any("not found" in line.lower() or "unknown" in line.lower() for line in lines):
            raise Failure(f"the reason is not reported: {state} {lines[-2:]}")
        _wait_for_container(pods, "nowhere", "main", lambda state: "running" in state["state"], "the other container is running")
    with steps.step("a missing program: an error with its name, and no incomplete container"):
        state = _wait_for_container(pods, "noprogram", "main", lambda state: "terminated" in state["state"] or "waiting" in state["state"] and "message" in state["state"]["waiting"],
                                    "the container failed")["state"]
        if "/no/such/program" not in str(state):
            raise Failure(f"the message does not contain the program: {state}")


def pulls(steps, pods, registry):
    requests = registry.log

    def manifest_requests(name):
        return sum(f"/{name}/manifests/" in line for line in requests.read_text(errors="replace").splitlines())

    with steps.step("imagePullPolicy: Always queries the registry for every container, IfNotPresent does not, Never fails"):
        pods.start(pod("pulled", shell("always", imagePullPolicy="Always"), shell("present")))
        before = manifest_requests("e2e-test-images/busybox")
        if before == 0:
            raise Failure("the log of the registry contains no request for a manifest")
        pods.start(pod("present", shell("main")))
        assert_equal(manifest_requests("e2e-test-images/busybox"), before, "requests after IfNotPresent")
        pods.start(pod("always", shell("main", imagePullPolicy="Always")))
        if manifest_requests("e2e-test-images/busybox") <= before:
            raise Failure("Always did not query the registry")
        pods.node.add_manifest(pod("never", shell("main", imagePullPolicy="Never", image="registry.k8s.io/pinion/never:1")))
        _wait_for_container(pods, "never", "main", lambda state: state["state"].get("waiting", {}).get("reason") == "ErrImageNeverPull", "the container is waiting")
    with steps.step("the status contains image and digest"):
        state = pods.container("pulled", "present")
        assert_equal(state["image"], BUSYBOX, "image")
        if "@sha256:" not in state["imageID"]:
            raise Failure(f"imageID {state['imageID']}")
