"""kubectl exec, attach, cp, logs, port-forward, debug and top."""

import hashlib
import os
import subprocess

from session.program import Failure, assert_equal, run, wait_until
from session.terminal import Terminal

from . import addons
from .objects import BUSYBOX, FOREVER, pod, shell, web


def start(cluster):
    """Creates the pods of these tests."""
    ticks = "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.2; done"
    cluster.apply(pod("streams", shell(), web()), pod("attached", shell(script="while read line; do echo got $line; done", stdin=True), shell("terminal", "exec sh", stdin=True, tty=True)),
                  pod("talks", shell(script=ticks)))


def execs(steps, cluster):
    def execute(*command, flags=(), **options):
        return cluster.kubectl("exec", *flags, "streams", "-c", "main", "--", *command, **options)

    with steps.step("kubectl exec: separate outputs, exit code, a missing program"):
        cluster.wait_pod("streams")
        result = execute("sh", "-c", "echo out; echo err >&2; exit 9").check(9, err="err")
        assert_equal(result.out, "out\n", "stdout")
        execute("/no/such").check_fails(both="no/such|not found")
    with steps.step("kubectl exec -i: input and its end"):
        text = "".join(f"line {number}\n" for number in range(20000))
        assert_equal(execute("sh", "-c", "cat; echo done", flags=("-i",), stdin=text).check().out == text + "done\n", True, "all input is returned")
    with steps.step("kubectl exec -it: a terminal"):
        with Terminal(*cluster.command("exec", "-it", "streams", "-c", "main", "--", "sh"), rows=33, columns=99) as terminal:
            terminal.type("stty size; tty\n")
            terminal.wait_for("33 99")
            terminal.wait_for("/dev/pts/")
            terminal.resize(44, 111)
            terminal.type("sleep 1; stty size; exit 4\n")
            terminal.wait_for("44 111")
            terminal.expect_exit(4)
    with steps.step("kubectl attach -i: input reaches the container"):
        cluster.wait_pod("attached")
        client = subprocess.Popen(cluster.command("attach", "-i", "-q", "attached", "-c", "main"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            client.stdin.write("word\n")
            client.stdin.flush()
            assert_equal(client.stdout.readline(), "got word\n", "the response")
        finally:
            client.kill()
            client.wait()
        cluster.wait_for_log("attached", "main", "got word")
    with steps.step("kubectl attach -it: a terminal"):
        with Terminal(*cluster.command("attach", "-it", "attached", "-c", "terminal"), rows=33, columns=99) as terminal:
            terminal.type("stty size\n")
            terminal.wait_for("33 99")


def copies(steps, cluster, work):
    with steps.step("kubectl cp: 3 MB there and back, a directory"):
        source = work / "copied"
        source.mkdir()
        (source / "blob").write_bytes(os.urandom(3_000_000))
        (source / "empty").write_text("")
        cluster.kubectl("cp", source, "streams:/tmp/copied", "-c", "main").check()
        cluster.kubectl("cp", "streams:/tmp/copied", work / "returned", "-c", "main").check()
        digests = [hashlib.sha256((directory / "blob").read_bytes()).hexdigest() for directory in (source, work / "returned")]
        assert_equal(digests[1], digests[0], "the digest")
        assert_equal((work / "returned/empty").exists(), True, "the empty file")


def logs(steps, cluster):
    with steps.step("kubectl logs: -f, --tail, --timestamps, of all pods with a label"):
        cluster.wait_for_log("talks", "main", "line 5\n")
        client = subprocess.Popen(cluster.command("logs", "-f", "talks"), stdout=subprocess.PIPE, text=True)
        try:
            assert_equal([client.stdout.readline() for _ in range(20)], [f"line {number}\n" for number in range(1, 21)], "followed lines")
        finally:
            client.kill()
            client.wait()
        cluster.kubectl("logs", "talks", "--tail", "1", "--timestamps").check(out=r"^\d{4}-\d\d-\d\dT[\d:.]+Z line \d+$")
        cluster.kubectl("logs", "-l", "app=web", "--prefix", "--tail", "1").check(out=r"\[pod/web-")


def forwards(steps, cluster):
    def forward(target, port):
        client = subprocess.Popen(cluster.command("port-forward", target, f":{port}", "--address", "127.0.0.1"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return client, client.stdout.readline().split(" -> ")[0].split(":")[-1]

    for target, port, expected in (("pod/streams", 8080, "streams"), ("service/web", 80, "web-"), ("pod/streams", 99, None)):
        with steps.step(f"kubectl port-forward {target}: port {port}" + ("" if expected else ", which is closed")):
            client, local = forward(target, port)
            try:
                for _ in range(20 if expected else 1):
                    result = run("curl", "-fsS", "-m", "5", f"http://127.0.0.1:{local}/hostname")
                    if not expected:
                        result.check_fails()
                    elif not result.check().text.startswith(expected):
                        raise Failure(f"{result}")
            finally:
                client.kill()
                client.wait()


def debug(steps, cluster):
    with steps.step("kubectl debug: an ephemeral container sees the processes and files of its target"):
        script = f"ps; ls /proc/1/root/bin/busybox && echo debugged; {FOREVER}"
        cluster.kubectl("debug", "streams", "--image", BUSYBOX, "--target", "main", "-c", "debugger", "--profile", "general", "--", "sh", "-c", script).check()
        text = cluster.wait_for_log("streams", "debugger", "debugged")
        if "while :" not in text:
            raise Failure(f"the process of the target is missing:\n{text}")
        assert_equal("running" in cluster.container("streams", "debugger")["state"], True, "the ephemeral container is running")
    with steps.step("kubectl debug: a copy of a pod with another command"):
        cluster.kubectl("debug", "secure", "--copy-to", "secure-copy", "--container", "main", "--share-processes", "--", "sh", "-c", f"echo copied; {FOREVER}").check()
        cluster.wait_for_log("secure-copy", "main", "copied")
        cluster.delete("pod", "secure-copy", "--now")
    with steps.step("kubectl debug node: the file system and the processes of the node"):
        cluster.kubectl("debug", "node/node", "--image", BUSYBOX, "--profile", "sysadmin", "--", "sh", "-c", "ls -d /host/var/lib/kubelet; chroot /host true; ps | grep -c '[k]ubelet'; echo debugged").check()
        name = wait_until("the pod exists", lambda: next((name for name in cluster.kubectl("get", "pods", "-o", "name").check().out.split() if "node-debugger" in name), None))
        wait_until("it has run", lambda: "debugged" in cluster.kubectl("logs", name).out, 30)
        cluster.kubectl("logs", name).check(out="/host/var/lib/kubelet\n[1-9]")
        cluster.delete(name, "--now")


def top(steps, cluster):
    with steps.step("kubectl top: node, pods and containers, measured by metrics-server"):
        addons.wait_for_metrics(cluster)
        def measured():
            rows = [line.split() for line in cluster.kubectl("top", "pod", "streams", "--containers", "--no-headers").check().out.splitlines()]
            return rows if {"main", "web"} <= {row[1] for row in rows} else None

        cluster.wait_pod("streams")
        rows = wait_until("both containers are measured", measured, 60)
        if not all(row[2].endswith("m") and row[3].endswith("Mi") for row in rows):
            raise Failure(f"{rows}")
        memory = {row[1]: int(row[3].removesuffix("Mi")) for row in rows}
        if not 1 <= memory["web"] <= 200:
            raise Failure(f"memory of the web server: {memory}")
    with steps.step("the summary and the metrics of cAdvisor list every container of a pod"):
        def find():
            summary = cluster.kubectl("get", "--raw", "/api/v1/nodes/node/proxy/stats/summary").check().json
            return next((found for found in summary["pods"] if found["podRef"]["name"] == "streams" and found.get("network", {}).get("rxBytes")), None)

        found = wait_until("the summary of the pod", find, 30)
        missing = [name for name in ("cpu", "memory", "network", "process_stats") if name not in found]
        if missing or {"main", "web"} - {container["name"] for container in found["containers"]}:
            raise Failure(f"missing {missing}: {found}")

        def families():
            text = cluster.kubectl("get", "--raw", "/api/v1/nodes/node/proxy/metrics/cadvisor").check().out
            return {line.split("{")[0] for line in text.splitlines() if 'pod="streams"' in line}

        expected = {"container_cpu_usage_seconds_total", "container_memory_working_set_bytes", "container_network_receive_bytes_total"}
        wait_until("metrics", lambda: expected <= families(), 30)
