"""Kubelet, daemon and monitor stopped and killed under running pods; and what is left when pods are removed."""

import os
import re
import signal
from pathlib import Path

from session.program import Failed, equal, run, until
from session.cgroups import below

from .pods import FOREVER, pod, shell

COUNTER = "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.05; done"


def _place(pods):
    pods.start(pod("lives", shell("main", COUNTER), shell("other"), shell("probed", f"touch /tmp/up; {FOREVER}",
                   livenessProbe={"exec": {"command": ["cat", "/tmp/up"]}, "periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": 10})),
               pod("ends", shell("main", f"trap 'exit 9' TERM; {FOREVER.split(';', 1)[1]}"), restartPolicy="OnFailure"))


def _alive(pods):
    """What must not change: processes, containers, restart counts."""
    found = {}
    for name in ("main", "other", "probed"):
        state = pods.container("lives", name)
        found[name] = (state["containerID"], state["restartCount"], pods.pid("lives", name))
    return found


def _unharmed(steps, pods, what, deed):
    """One deed under running pods."""
    node = pods.node
    with steps.step(f"{what}: containers keep their processes and restart counts; probes, exec and logs go on"):
        before, said = _alive(pods), len(pods.logs("lives", "main").splitlines())
        for _, _, pid in before.values():
            os.kill(pid, 0)
        deed()
        until("the kubelet and the engine answer", lambda: node.ask("/healthz") == "ok" and node.engine.crictl("version", timeout=10).code == 0, 60)
        pods.running("lives")
        equal(_alive(pods), before, "containers, restart counts, processes")
        equal(pods.out("lives", "other", "echo works"), "works", "exec")
        until("the log goes on", lambda: len(pods.logs("lives", "main").splitlines()) > said + 20)
        numbers = [int(word) for word in re.findall(r"^line (\d+)$", pods.logs("lives", "main"), re.MULTILINE)]
        equal(numbers, list(range(numbers[0], numbers[0] + len(numbers))), "lines of the log, each once")


def _exit_is_seen(steps, pods, what, deed):
    """A container ends while one of the three is away."""
    with steps.step(f"{what} while a container ends: its exit code is known"):
        before = pods.container("ends")
        pid = pods.pid("ends")

        def end():
            os.kill(pid, signal.SIGTERM)
            until("its process is gone", lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split(")")[1][:3])

        deed(end)
        state = until("it was restarted", lambda: pods.container("ends")["restartCount"] > before["restartCount"] and "running" in pods.container("ends")["state"]
                      and pods.container("ends"), 90)
        equal(state["lastState"]["terminated"]["exitCode"], 9, "exit code of the one before")


def _restarted(one, end, kill):
    def deed(between=lambda: None):
        one.kill() if kill else one.stop()
        between()
        one.start()
    return lambda: deed() if end is None else deed(end)


def restarts(steps, pods):
    node, engine = pods.node, pods.node.engine
    with steps.step("pods that must outlive everything start"):
        _place(pods)
    _unharmed(steps, pods, "the kubelet is restarted", _restarted(node, None, False))
    _unharmed(steps, pods, f"{engine.name} is restarted", _restarted(engine, None, False))


def kills(steps, pods):
    node, engine = pods.node, pods.node.engine
    _unharmed(steps, pods, "the kubelet is killed", _restarted(node, None, True))
    _unharmed(steps, pods, f"{engine.name} is killed", _restarted(engine, None, True))
    _exit_is_seen(steps, pods, "the kubelet is killed", lambda end: _restarted(node, end, True)())
    _exit_is_seen(steps, pods, f"{engine.name} is killed", lambda end: _restarted(engine, end, True)())
    if not hasattr(engine, "monitors"):
        return

    def monitor(between=lambda: None):
        old = engine.monitors()
        for pid in old:
            os.kill(pid, signal.SIGKILL)
        between()
        until("another monitor is there", lambda: engine.monitors() and engine.monitors() != old)

    def both():
        for pid in engine.monitors():
            os.kill(pid, signal.SIGKILL)
        engine.kill()
        engine.start()

    _unharmed(steps, pods, "the monitor is killed", monitor)
    _exit_is_seen(steps, pods, "the monitor is killed", monitor)
    _unharmed(steps, pods, "daemon and monitor are killed at once", both)
    with steps.step("all three are killed at once; pods go on"):
        before = _alive(pods)
        node.kill()
        both()
        node.start()
        pods.running("lives")
        equal(_alive(pods), before, "containers, restart counts, processes")


# What the kubelet is answered in a session like this one: containers that end or go meanwhile, probes that take too long, a
# daemon that is away, and what the pods of the session ask for wrongly.
EXPECTED = re.compile(r"code = (NotFound|DeadlineExceeded|Unavailable|Canceled|FailedPrecondition) |no/such/program|id of the pod is empty")


def clean(steps, node):
    """Neither log has an error that nobody provoked."""
    with steps.step("the kubelet was answered no error that it should not be; the daemon logged none"):
        wrong = [line[:600] for line in node.said("from (runtime|image) service failed") if not EXPECTED.search(line)]
        wrong += [line[:600] for line in Path(node.engine.log).read_text(errors="replace").splitlines() if re.search(r"\bERROR\b|panicked", line)]
        if wrong:
            raise Failed(f"{len(wrong)} errors:\n" + "\n".join(wrong[-8:]))


def gone(steps, pods):
    """Takes every manifest away and waits until nothing is left of the pods."""
    node, engine = pods.node, pods.node.engine
    with steps.step("removed pods end within their grace, and nothing of them is left"):
        names = [file.stem for file in (node.work / "manifests").glob("*.json")]
        node.withdraw(*names)
        until("the kubelet knows none", lambda: not node.pods(), 60)

        def left():
            things = [line for what in (("pods", "-q"), ("ps", "-aq")) for line in engine.crictl(*what).must().out.split()]
            things += [group for group in below() if re.search(r"kubepods.*/pod[0-9a-f-]+", group)]
            things += [str(path) for path in (node.work / "root/pods").glob("*") if not str(path).endswith("static-pods")]
            things += [str(path) for path in (node.work / "podlogs").glob("*")]
            things += [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines() if f"{node.work}/root/" in line]
            if things:
                raise Failed(f"{len(things)} are left: " + ", ".join(things[:8]))
            return True

        # The kubelet looks for what is left once a minute, and for directories every two.
        until("pods, cgroups, directories, mounts and logs are gone", left, 200)
        run("true")
