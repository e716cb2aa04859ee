"""Exec, attach, port-forward and logs through the kubelet's own HTTPS interface, as kubectl does them."""

import gzip
import hashlib
import re
import subprocess
import time
from pathlib import Path

from session.program import Failed, equal, run, until

from .pods import FOREVER, pod, shell

LINES = 60000
PROTOCOLS = ("spdy", "websocket")
ECHO = "while read line; do echo \"heard $line\"; done; echo end of input; " + FOREVER


def commands(steps, pods):
    with steps.step("pods for the streams start"):
        pods.start(pod("streams", shell("main", "echo page > /tmp/index.html; httpd -p 8080 -h /tmp; " + FOREVER)),
                   pod("attached", shell("main", ECHO, stdin=True), shell("terminal", "exec sh", stdin=True, tty=True)),
                   pod("bare", shell("main"), hostNetwork=True))
    for protocol in PROTOCOLS:
        def call(*command, stdin=None, flags=(), **more):
            return pods.exec("streams", "main", *command, protocol=protocol, stdin=stdin, flags=flags, **more)

        with steps.step(f"exec ({protocol}): both outputs apart, exit code"):
            done = call("sh", "-c", "echo out; echo err >&2; exit 9").must(9)
            equal((done.out, done.err), ("out\n", "err\n"), "outputs")
        with steps.step(f"exec ({protocol}): standard input, to its end"):
            text = "".join(f"line {number}\n" for number in range(20000))
            equal(call("sh", "-c", "cat; echo done", stdin=text).must().out == text + "done\n", True, "200 KB came back whole, and cat ended")
        with steps.step(f"exec ({protocol}): 50 MB of output, each byte"):
            out = call("sh", "-c", "yes 0123456789abcde | head -c 50000000 | tee /tmp/sum | md5sum >&2; cat /tmp/sum", timeout=90).must()
            equal(out.err.split()[0], hashlib.md5(out.out.encode()).hexdigest(), "md5")
        with steps.step(f"exec ({protocol}): a terminal of the caller's size, resized"):
            # A shell may have ignored the signal of its start, so the size is asked until it changes.
            script = "until [ \"$(stty size)\" = '50 132' ]; do stty size; sleep 0.1; done; stty size; tty"
            done = call("sh", "-c", script, flags=("-t", "--sizes=24x80@0s,50x132@1s")).must()
            # Of text that is read, Python makes the terminal's "\r\n" a plain end of line.
            for wanted in ("24 80\n", "50 132\n", "/dev/pts/"):
                if wanted not in done.out:
                    raise Failed(f"{wanted!r} is not in {done.out!r}")
        with steps.step(f"exec ({protocol}): what is not there, and who hangs up"):
            call("/no/such/program").fails(both="no/such/program|executable file not found|No such file")
            begun = subprocess.Popen(pods.node.client("exec", f"--protocol={protocol}", pods.node.url("exec", "default", "streams-node", "main",
                                                                                                       command=["sh", "-c", "echo begun; exec sleep 3210"])),
                                     stdout=subprocess.PIPE, text=True)
            equal(begun.stdout.readline(), "begun\n", "the first line")
            begun.kill()
            begun.wait()
            call("true").must()
            pods.exec("streams", "main", "sh", "-c", "kill $(pidof sleep) 2>/dev/null; true").must()


def attached(steps, pods):
    for number, protocol in enumerate(PROTOCOLS):
        with steps.step(f"attach ({protocol}): input arrives, output comes, and the log has it too"):
            url = pods.node.url("attach", "default", "attached-node", "main")
            client = subprocess.Popen(pods.node.client("attach", "-i", f"--protocol={protocol}", url), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            try:
                client.stdin.write(f"word{number}\n")
                client.stdin.flush()
                equal(client.stdout.readline(), f"heard word{number}\n", "the answer")
            finally:
                client.kill()
                client.wait()
            pods.says("attached", "main", f"heard word{number}")
            equal("running" in pods.container("attached", "main")["state"], True, "it still runs after the client is gone")
        with steps.step(f"attach ({protocol}): to a terminal"):
            url = pods.node.url("attach", "default", "attached-node", "terminal")
            client = subprocess.Popen(pods.node.client("attach", "-i", "-t", "--sizes=33x99@0s", f"--protocol={protocol}", url),
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            try:
                seen, end = b"", time.monotonic() + 20
                while b"33 99" not in seen and time.monotonic() < end:
                    client.stdin.write(b"stty size\n")
                    client.stdin.flush()
                    seen += client.stdout.read1(4096)
                if b"33 99" not in seen:
                    raise Failed(f"{seen!r}")
            finally:
                client.kill()
                client.wait()


def forwarded(steps, pods):
    for protocol in PROTOCOLS:
        for name, port in (("streams", 8080), ("bare", 10250)):
            with steps.step(f"port-forward ({protocol}): 20 requests to pod {name}, and one to a port where nobody listens"):
                def forward(to):
                    client = subprocess.Popen(pods.node.client("forward", f"--protocol={protocol}", pods.node.url("portForward", "default", f"{name}-node"), to),
                                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                    return client, client.stdout.readline().strip()

                client, local = forward(port)
                try:
                    url, wanted = (f"http://127.0.0.1:{local}/index.html", "page") if name == "streams" else (f"https://127.0.0.1:{local}/healthz", "ok")
                    for _ in range(20):
                        equal(run("curl", "-fsSk", "-m", "5", url).must().word, wanted, "the answer")
                finally:
                    client.stdin.close()
                    client.wait(10)
                client, local = forward(81)
                try:
                    run("curl", "-fsS", "-m", "5", f"http://127.0.0.1:{local}/").fails()
                finally:
                    client.stdin.close()
                    client.wait(10)


def logs(steps, pods):
    with steps.step("logs -f follows; tail, since and timestamps"):
        pods.start(pod("talks", shell("main", "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.2; done")))
        pods.says("talks", "main", "line 5\n")
        url = pods.node.url("containerLogs", "default", "talks-node", "main", follow="true")
        client = subprocess.Popen(["curl", "-sNk", url], stdout=subprocess.PIPE, text=True)
        try:
            equal([client.stdout.readline() for _ in range(20)], [f"line {number}\n" for number in range(1, 21)], "followed")
        finally:
            client.kill()
            client.wait()
        equal(len(pods.logs("talks", "main", tailLines=3).splitlines()), 3, "tail")
        if not re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z line", pods.logs("talks", "main", timestamps="true", tailLines=1)):
            raise Failed(pods.logs("talks", "main", timestamps="true", tailLines=1))
    with steps.step(f"the kubelet rotates a log of {LINES} lines; none is lost or doubled"):
        # The kubelet keeps three files; the oldest are collected here before it drops them.
        script = f"i=0; while [ $i -lt {LINES} ]; do i=$((i+1)); echo line $i of the log that is rotated; [ $((i%3000)) = 0 ] && sleep 1; done; {FOREVER}"
        pods.node.place(pod("rotates", shell("main", script)))
        until("its log is there", lambda: _log_files(pods))
        collected, end = {}, time.monotonic() + 90
        while time.monotonic() < end:
            for file in _log_files(pods):
                text = _read(file)
                # The same line in two files (a copy that is being packed) has one stamp; one that was written twice has two.
                for stamp, number in re.findall(r"^(\S+) stdout F line (\d+) of the log that is rotated$", text, re.MULTILINE):
                    collected.setdefault(int(number), set()).add(stamp)
            if LINES in collected:
                break
            time.sleep(0.2)
        missing = sorted(set(range(1, LINES + 1)) - set(collected))
        if missing:
            raise Failed(f"{len(missing)} lines are lost, the first {missing[:5]}")
        doubled = [number for number, stamps in collected.items() if len(stamps) > 1]
        if doubled:
            raise Failed(f"{len(doubled)} lines are doubled, the first {doubled[:5]}")
        if len(_log_files(pods)) < 2:
            raise Failed(f"it was not rotated: {_log_files(pods)}")


def _log_files(pods):
    return sorted((pods.node.work / "podlogs").glob("default_rotates-node_*/main/*"))


def _read(file):
    try:
        if file.suffix == ".gz":
            return gzip.decompress(file.read_bytes()).decode()
        return "" if file.suffix == ".tmp" else Path(file).read_text()
    except (OSError, EOFError):
        return ""

