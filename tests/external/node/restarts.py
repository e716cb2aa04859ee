"""Kubelet, daemon and monitor are restarted and killed while pods are running; removal of pods."""

import os
import re
import signal
from pathlib import Path

from session.cgroups import child_cgroups
from session.program import Failure, assert_equal, wait_until

from .pods import FOREVER, pod, shell

COUNTER = "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.05; done"


def _start(pods):
    pods.start(pod("lives", shell("main", COUNTER), shell("other"), shell("probed", f"touch /tmp/up; {FOREVER}",
                   livenessProbe={"exec": {"command": ["cat", "/tmp/up"]}, "periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": 10})),
               pod("ends", shell("main", f"trap 'exit 9' TERM; {FOREVER.split(';', 1)[1]}"), restartPolicy="OnFailure"))


def _container_states(pods):
    """Returns the container ids, restart counts and pids of the pod `lives`, which must not change."""
    states = {}
    for name in ("main", "other", "probed"):
        state = pods.container("lives", name)
        states[name] = (state["containerID"], state["restartCount"], pods.pid("lives", name))
    return states


def _check_unaffected(steps, pods, description, action):
    """Performs an action and checks that it does not affect running pods."""
    node = pods.node
    with steps.step(f"{description}: containers keep their processes and restart counts; probes, exec and logs continue to work"):
        before, line_count = _container_states(pods), len(pods.logs("lives", "main").splitlines())
        for _, _, pid in before.values():
            os.kill(pid, 0)
        action()
        wait_until("the kubelet and the engine respond", lambda: node.get("/healthz") == "ok" and node.engine.crictl("version", timeout=10).code == 0, 60)
        pods.wait_running("lives")
        assert_equal(_container_states(pods), before, "container ids, restart counts, pids")
        assert_equal(pods.exec_script("lives", "other", "echo works"), "works", "exec")
        wait_until("the log grows", lambda: len(pods.logs("lives", "main").splitlines()) > line_count + 20)
        numbers = [int(number) for number in re.findall(r"^line (\d+)$", pods.logs("lives", "main"), re.MULTILINE)]
        assert_equal(numbers, list(range(numbers[0], numbers[0] + len(numbers))), "line numbers in the log")


def _check_exit_code(steps, pods, description, action):
    """Stops a container while an action interrupts one of the three programs, and checks the reported exit code."""
    with steps.step(f"{description} while a container exits: its exit code is reported"):
        before = pods.container("ends")
        pid = pods.pid("ends")

        def stop_container():
            os.kill(pid, signal.SIGTERM)
            wait_until("the process has exited", lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split(")")[1][:3])

        action(stop_container)
        state = wait_until("the container was restarted", lambda: pods.container("ends")["restartCount"] > before["restartCount"] and "running" in pods.container("ends")["state"]
                      and pods.container("ends"), 90)
        assert_equal(state["lastState"]["terminated"]["exitCode"], 9, "exit code of the previous container")


def _restart(program, kill, in_between=lambda: None):
    """Returns an action that stops or kills a program, calls `in_between` and starts the program again."""
    def action():
        program.kill() if kill else program.stop()
        in_between()
        program.start()
    return action


def restarts(steps, pods):
    node, engine = pods.node, pods.node.engine
    with steps.step("the pods that must survive all restarts start"):
        _start(pods)
    _check_unaffected(steps, pods, "the kubelet is restarted", _restart(node, kill=False))
    _check_unaffected(steps, pods, f"{engine.name} is restarted", _restart(engine, kill=False))


def kills(steps, pods):
    node, engine = pods.node, pods.node.engine
    _check_unaffected(steps, pods, "the kubelet is killed", _restart(node, kill=True))
    _check_unaffected(steps, pods, f"{engine.name} is killed", _restart(engine, kill=True))
    _check_exit_code(steps, pods, "the kubelet is killed", lambda stop: _restart(node, kill=True, in_between=stop)())
    _check_exit_code(steps, pods, f"{engine.name} is killed", lambda stop: _restart(engine, kill=True, in_between=stop)())
    if not hasattr(engine, "monitors"):
        return

    def kill_monitor(in_between=lambda: None):
        old = engine.monitors()
        for pid in old:
            os.kill(pid, signal.SIGKILL)
        in_between()
        wait_until("a new monitor is running", lambda: engine.monitors() and engine.monitors() != old)

    def kill_daemon_and_monitor():
        for pid in engine.monitors():
            os.kill(pid, signal.SIGKILL)
        engine.kill()
        engine.start()

    _check_unaffected(steps, pods, "the monitor is killed", kill_monitor)
    _check_exit_code(steps, pods, "the monitor is killed", kill_monitor)
    _check_unaffected(steps, pods, "daemon and monitor are killed at the same time", kill_daemon_and_monitor)
    with steps.step("kubelet, daemon and monitor are killed at the same time; pods keep running"):
        before = _container_states(pods)
        node.kill()
        kill_daemon_and_monitor()
        node.start()
        pods.wait_running("lives")
        assert_equal(_container_states(pods), before, "container ids, restart counts, pids")


# Errors that the kubelet receives as expected in this session: for containers that exit or are removed at the same
# time, probes that exceed their timeout, a daemon that is not running, and invalid requests of the session's pods.
EXPECTED_ERRORS = re.compile(r"code = (NotFound|DeadlineExceeded|Unavailable|Canceled|FailedPrecondition) |no/such/program|id of the pod is empty")


def no_errors_logged(steps, node):
    """Checks that the log of the kubelet contains no unexpected error, and the log of the daemon none at all."""
    with steps.step("the kubelet received no unexpected errors; the daemon logged no errors"):
        errors = [line[:600] for line in node.log_lines("from (runtime|image) service failed") if not EXPECTED_ERRORS.search(line)]
        errors += [line[:600] for line in Path(node.engine.log).read_text(errors="replace").splitlines() if re.search(r"\bERROR\b|panicked", line)]
        if errors:
            raise Failure(f"{len(errors)} errors:\n" + "\n".join(errors[-8:]))


def removal(steps, pods):
    """Deletes every manifest and waits until the pods are removed without leftovers."""
    node, engine = pods.node, pods.node.engine
    with steps.step("removed pods end within their grace period and leave nothing behind"):
        names = [file.stem for file in (node.work / "manifests").glob("*.json")]
        node.remove_manifests(*names)
        wait_until("the kubelet has no pods", lambda: not node.pods(), 60)

        def no_leftovers():
            leaked = [line for arguments in (("pods", "-q"), ("ps", "-aq")) for line in engine.crictl(*arguments).check().out.split()]
            leaked += [group for group in child_cgroups() if re.search(r"kubepods.*/pod[0-9a-f-]+", group)]
            leaked += [str(path) for path in (node.work / "root/pods").glob("*") if not str(path).endswith("static-pods")]
            leaked += [str(path) for path in (node.work / "podlogs").glob("*")]
            leaked += [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines() if f"{node.work}/root/" in line]
            if leaked:
                raise Failure(f"{len(leaked)} leftovers: " + ", ".join(leaked[:8]))
            return True

        # The kubelet cleans up pods once a minute, and directories every two minutes.
        wait_until("pods, cgroups, directories, mounts and logs are removed", no_leftovers, 200)
