"""Exec, attach, port-forward and logs through the HTTPS interface of the kubelet, as kubectl uses it."""

import gzip
import hashlib
import re
import subprocess
import time
from pathlib import Path

from session.program import Failure, assert_equal, run, wait_until

from .pods import FOREVER, pod, shell

LINES = 60000
PROTOCOLS = ("spdy", "websocket")
ECHO = "while read line; do echo \"got $line\"; done; echo end of input; " + FOREVER


def execs(steps, pods):
    with steps.step("pods for the streams start"):
        pods.start(pod("streams", shell("main", "echo page > /tmp/index.html; httpd -p 8080 -h /tmp; " + FOREVER)),
                   pod("attached", shell("main", ECHO, stdin=True), shell("terminal", "exec sh", stdin=True, tty=True)),
                   pod("bare", shell("main"), hostNetwork=True))
    for protocol in PROTOCOLS:
        def call(*command, stdin=None, flags=(), **more):
            return pods.exec("streams", "main", *command, protocol=protocol, stdin=stdin, flags=flags, **more)

        with steps.step(f"exec ({protocol}): separate stdout and stderr, exit code"):
            result = call("sh", "-c", "echo out; echo err >&2; exit 9").check(9)
            assert_equal((result.out, result.err), ("out\n", "err\n"), "stdout and stderr")
        with steps.step(f"exec ({protocol}): standard input with its end"):
            text = "".join(f"line {number}\n" for number in range(20000))
            assert_equal(call("sh", "-c", "cat; echo done", stdin=text).check().out == text + "done\n", True, "200 KB are returned and cat exits")
        with steps.step(f"exec ({protocol}): 50 MB of output without loss"):
            out = call("sh", "-c", "yes 0123456789abcde | head -c 50000000 | tee /tmp/sum | md5sum >&2; cat /tmp/sum", timeout=90).check()
            assert_equal(out.err.split()[0], hashlib.md5(out.out.encode()).hexdigest(), "md5")
        with steps.step(f"exec ({protocol}): a terminal with the size of the caller's, resize"):
            # The resize may happen before the shell handles SIGWINCH, so the script polls the size.
            script = "until [ \"$(stty size)\" = '50 132' ]; do stty size; sleep 0.1; done; stty size; tty"
            result = call("sh", "-c", script, flags=("-t", "--sizes=24x80@0s,50x132@1s")).check()
            # Python converts the "\r\n" of the terminal to "\n".
            for expected in ("24 80\n", "50 132\n", "/dev/pts/"):
                if expected not in result.out:
                    raise Failure(f"{expected!r} is not in {result.out!r}")
        with steps.step(f"exec ({protocol}): a missing program, and a client that disconnects"):
            call("/no/such/program").check_fails(both="no/such/program|executable file not found|No such file")
            client = subprocess.Popen(pods.node.client("exec", f"--protocol={protocol}", pods.node.url("exec", "default", "streams-node", "main",
                                                                                                        command=["sh", "-c", "echo started; exec sleep 3210"])),
                                      stdout=subprocess.PIPE, text=True)
            assert_equal(client.stdout.readline(), "started\n", "the first line")
            client.kill()
            client.wait()
            call("true").check()
            pods.exec("streams", "main", "sh", "-c", "kill $(pidof sleep) 2>/dev/null; true").check()


def attach(steps, pods):
    for number, protocol in enumerate(PROTOCOLS):
        with steps.step(f"attach ({protocol}): input reaches the container, output reaches the client and the log"):
            url = pods.node.url("attach", "default", "attached-node", "main")
            client = subprocess.Popen(pods.node.client("attach", "-i", f"--protocol={protocol}", url), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            try:
                client.stdin.write(f"word{number}\n")
                client.stdin.flush()
                assert_equal(client.stdout.readline(), f"got word{number}\n", "the response")
            finally:
                client.kill()
                client.wait()
            pods.wait_for_log("attached", "main", f"got word{number}")
            assert_equal("running" in pods.container("attached", "main")["state"], True, "the container is running after the client disconnected")
        with steps.step(f"attach ({protocol}): a terminal"):
            url = pods.node.url("attach", "default", "attached-node", "terminal")
            client = subprocess.Popen(pods.node.client("attach", "-i", "-t", "--sizes=33x99@0s", f"--protocol={protocol}", url),
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            try:
                output, end = b"", time.monotonic() + 20
                while b"33 99" not in output and time.monotonic() < end:
                    client.stdin.write(b"stty size\n")
                    client.stdin.flush()
                    output += client.stdout.read1(4096)
                if b"33 99" not in output:
                    raise Failure(f"the terminal does not have the size 33 99: {output!r}")
            finally:
                client.kill()
                client.wait()


def port_forward(steps, pods):
    for protocol in PROTOCOLS:
        for name, port in (("streams", 8080), ("bare", 10250)):
            with steps.step(f"port-forward ({protocol}): 20 requests to pod {name}, and one to a closed port"):
                def forward(to):
                    client = subprocess.Popen(pods.node.client("forward", f"--protocol={protocol}", pods.node.url("portForward", "default", f"{name}-node"), to),
                                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                    return client, client.stdout.readline().strip()

                client, local = forward(port)
                try:
                    url, expected = (f"http://127.0.0.1:{local}/index.html", "page") if name == "streams" else (f"https://127.0.0.1:{local}/healthz", "ok")
                    for _ in range(20):
                        assert_equal(run("curl", "-fsSk", "-m", "5", url).check().text, expected, "the response")
                finally:
                    client.stdin.close()
                    client.wait(10)
                client, local = forward(81)
                try:
                    run("curl", "-fsS", "-m", "5", f"http://127.0.0.1:{local}/").check_fails()
                finally:
                    client.stdin.close()
                    client.wait(10)


def logs(steps, pods):
    with steps.step("logs -f follows; tail, since and timestamps"):
        pods.start(pod("talks", shell("main", "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.2; done")))
        pods.wait_for_log("talks", "main", "line 5\n")
        url = pods.node.url("containerLogs", "default", "talks-node", "main", follow="true")
        client = subprocess.Popen(["curl", "-sNk", url], stdout=subprocess.PIPE, text=True)
        try:
            assert_equal([client.stdout.readline() for _ in range(20)], [f"line {number}\n" for number in range(1, 21)], "followed lines")
        finally:
            client.kill()
            client.wait()
        assert_equal(len(pods.logs("talks", "main", tailLines=3).splitlines()), 3, "tail")
        if not re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z line", pods.logs("talks", "main", timestamps="true", tailLines=1)):
            raise Failure(pods.logs("talks", "main", timestamps="true", tailLines=1))
    with steps.step(f"the kubelet rotates a log of {LINES} lines; no line is lost or duplicated"):
        # The kubelet keeps three files; the test reads the older ones before it deletes them.
        script = f"i=0; while [ $i -lt {LINES} ]; do i=$((i+1)); echo line $i of the log that is rotated; [ $((i%3000)) = 0 ] && sleep 1; done; {FOREVER}"
        pods.node.add_manifest(pod("rotates", shell("main", script)))
        wait_until("the log exists", lambda: _log_files(pods))
        collected, end = {}, time.monotonic() + 90
        while time.monotonic() < end:
            for file in _log_files(pods):
                text = _read(file)
                # A line that is in two files because one is being compressed has one time stamp; a duplicate has two.
                for stamp, number in re.findall(r"^(\S+) stdout F line (\d+) of the log that is rotated$", text, re.MULTILINE):
                    collected.setdefault(int(number), set()).add(stamp)
            if LINES in collected:
                break
            time.sleep(0.2)
        missing = sorted(set(range(1, LINES + 1)) - set(collected))
        if missing:
            raise Failure(f"{len(missing)} lines are lost, the first {missing[:5]}")
        duplicates = [number for number, stamps in collected.items() if len(stamps) > 1]
        if duplicates:
            raise Failure(f"{len(duplicates)} lines are duplicated, the first {duplicates[:5]}")
        if len(_log_files(pods)) < 2:
            raise Failure(f"the log was not rotated: {_log_files(pods)}")


def _log_files(pods):
    return sorted((pods.node.work / "podlogs").glob("default_rotates-node_*/main/*"))


def _read(file):
    try:
        if file.suffix == ".gz":
            return gzip.decompress(file.read_bytes()).decode()
        return "" if file.suffix == ".tmp" else Path(file).read_text()
    except (OSError, EOFError):
        return ""

