"""Probes of all kinds, restarts and their back-off, exit codes and reasons, image pulls."""

from session.program import Failed, equal, until

from .pods import BUSYBOX, FOREVER, HEALTH, pod, shell

OFTEN = {"periodSeconds": 1, "timeoutSeconds": 2}
WEB = "echo page > /tmp/index.html; exec httpd -f -p 8080 -h /tmp"


def start(pods):
    """Places all of them: what they must come to takes time."""
    def probed(name, script, **probes):
        return shell(name, script, **{f"{kind}Probe": {**OFTEN, **probe} for kind, probe in probes.items()})

    # containerd 2.4 does not answer before the last process that holds the output has ended.
    too_long = "exec sleep 60" if pods.node.engine.name == "containerd" else "sleep 60 & sleep 61"
    exec_ready = {"exec": {"command": ["test", "-e", "/tmp/ready"]}}
    every = [
        pod("ready",
            probed("exec", f"sleep 3; touch /tmp/ready; {FOREVER}", readiness=exec_ready),
            probed("http", WEB, readiness={"httpGet": {"path": "/index.html", "port": 8080}}, liveness={"tcpSocket": {"port": 8080}},
                   startup={"httpGet": {"path": "/", "port": 8080}}),
            {"name": "grpc", "image": HEALTH, "livenessProbe": {"grpc": {"port": 9000}, **OFTEN}, "readinessProbe": {"grpc": {"port": 9000, "service": "ready"}, **OFTEN}},
            shell("later", f"{FOREVER}", startupProbe={"exec": {"command": ["sh", "-c", "sleep 1; test -e /proc/1"]}, **OFTEN})),
        pod("unready", {"name": "grpc", "image": HEALTH, "readinessProbe": {"grpc": {"port": 9000, "service": "sick"}, **OFTEN}},
            probed("exec", FOREVER, readiness=exec_ready)),
        pod("sick", probed("main", f"touch /tmp/well; sleep 3; rm /tmp/well; {FOREVER}",
                           liveness={"exec": {"command": ["cat", "/tmp/well"]}, "failureThreshold": 2}), terminationGracePeriodSeconds=2),
        pod("slow", probed("main", FOREVER, liveness={"exec": {"command": ["sh", "-c", too_long]}, "timeoutSeconds": 1, "failureThreshold": 2})),
        pod("crash", shell("main", "echo run; exit 7")),
        pod("oom", shell("main", "echo begin; tail /dev/zero", resources={"limits": {"memory": "16Mi"}}), restartPolicy="Never"),
        pod("done", shell("main", "echo -n told > /dev/termination-log; exit 3"),
            shell("logged", "echo last words; exit 4", terminationMessagePolicy="FallbackToLogsOnError"),
            shell("elsewhere", "echo -n elsewhere > /tmp/message", terminationMessagePath="/tmp/message"), restartPolicy="Never"),
        pod("nowhere", shell("main"), shell("none", image="registry.k8s.io/pinion/none:1")),
        pod("noprogram", {"name": "main", "image": BUSYBOX, "command": ["/no/such/program"]}, restartPolicy="Never"),
    ]
    for one in every:
        pods.node.place(one)


def _within(pods, name, container, condition, what, seconds=60):
    try:
        return until(what, lambda: condition(pods.container(name, container)) and pods.container(name, container), seconds)
    except Failed as failure:
        raise Failed(f"{failure}\n{pods.story(name)}") from None


def ready(steps, pods):
    for container in ("exec", "http", "grpc", "later"):
        with steps.step(f"startup, liveness and readiness probes: {container}"):
            _within(pods, "ready", container, lambda state: state["ready"] and state["started"], f"{container} is ready")
    with steps.step("what fails its readiness probe runs, and is not ready, until it is well"):
        for container in ("grpc", "exec"):
            _within(pods, "unready", container, lambda state: "running" in state["state"] and not state["ready"], "it runs, not ready")
        pods.exec("unready", "exec", "touch", "/tmp/ready").must()
        _within(pods, "unready", "exec", lambda state: state["ready"], "it is ready")
        equal(pods.container("unready", "grpc")["ready"], False, "the one that says it is sick")
    with steps.step("what fails its liveness probe is restarted, and ends as it was told to"):
        state = _within(pods, "sick", "main", lambda state: state["restartCount"] >= 1 and "running" in state["state"], "it was restarted")
        equal(state["lastState"]["terminated"]["exitCode"], 0, "exit code of the one before (it ends on SIGTERM)")
    with steps.step("a probe that takes too long fails; nothing of it is left running"):
        _within(pods, "slow", "main", lambda state: state["restartCount"] >= 1 and "running" in state["state"], "it was restarted")
        shown = pods.out("slow", "main", "ps -o stat,args")
        # The one probe that may be under way at this moment is two sleeps and a shell.
        if shown.count("sleep 60") > 1 or "Z" in [line.split()[0][0] for line in shown.splitlines()[1:]]:
            raise Failed(f"left over in the container:\n{shown}")


def ended(steps, pods):
    with steps.step("a crashing container backs off: restart count, exit code, reason"):
        state = _within(pods, "crash", "main", lambda state: state["restartCount"] >= 2 and state["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff",
                        "it backs off", 90)
        last = state["lastState"]["terminated"]
        equal((last["exitCode"], last["reason"]), (7, "Error"), "the run before")
        if not last["startedAt"] <= last["finishedAt"]:
            raise Failed(f"times: {last}")
        if "run" not in pods.logs("crash", "main", previous="true"):
            raise Failed("the log of the run before is empty")
    with steps.step("out of memory: OOMKilled, 137"):
        state = _within(pods, "oom", "main", lambda state: "terminated" in state["state"], "it ended")["state"]["terminated"]
        equal((state["exitCode"], state["reason"]), (137, "OOMKilled"), "how it ended")
        equal(pods.status("oom")["phase"], "Failed", "phase of the pod")
    with steps.step("termination messages: from the file, from another file, from the log"):
        for container, code, message in (("main", 3, "told"), ("logged", 4, "last words\n"), ("elsewhere", 0, "elsewhere")):
            state = _within(pods, "done", container, lambda state: "terminated" in state["state"], "it ended")["state"]["terminated"]
            equal((state["exitCode"], state.get("message")), (code, message), container)
    with steps.step("an image that is not there: ErrImagePull, with the reason; the container beside it runs"):
        state = _within(pods, "nowhere", "none", lambda state: state["state"].get("waiting", {}).get("reason") in ("ErrImagePull", "ImagePullBackOff"), "it waits")
        said = pods.node.said("pinion/none:1")
        if not any("not found" in line.lower() or "unknown" in line.lower() for line in said):
            raise Failed(f"no reason is told: {state} {said[-2:]}")
        _within(pods, "nowhere", "main", lambda state: "running" in state["state"], "the other runs")
    with steps.step("a program that is not there: an error that names it, no container is left behind half made"):
        state = _within(pods, "noprogram", "main", lambda state: "terminated" in state["state"] or "waiting" in state["state"] and "message" in state["state"]["waiting"],
                        "it failed")["state"]
        if "/no/such/program" not in str(state):
            raise Failed(f"the message does not name it: {state}")


def pulls(steps, pods, registry):
    requests = registry.log

    def asked(name):
        return sum(f"/{name}/manifests/" in line for line in requests.read_text(errors="replace").splitlines())

    with steps.step("imagePullPolicy: Always asks the registry for every container, IfNotPresent does not, Never refuses"):
        pods.start(pod("pulled", shell("always", imagePullPolicy="Always"), shell("present")))
        before = asked("e2e-test-images/busybox")
        if before == 0:
            raise Failed("the registry's log shows no manifest")
        pods.start(pod("present", shell("main")))
        equal(asked("e2e-test-images/busybox"), before, "requests after IfNotPresent")
        pods.start(pod("always", shell("main", imagePullPolicy="Always")))
        if asked("e2e-test-images/busybox") <= before:
            raise Failed("Always did not ask")
        pods.node.place(pod("never", shell("main", imagePullPolicy="Never", image="registry.k8s.io/pinion/never:1")))
        _within(pods, "never", "main", lambda state: state["state"].get("waiting", {}).get("reason") == "ErrImageNeverPull", "it waits")
    with steps.step("the status names image and digest"):
        state = pods.container("pulled", "present")
        equal(state["image"], BUSYBOX, "image")
        if "@sha256:" not in state["imageID"]:
            raise Failed(f"imageID {state['imageID']}")
