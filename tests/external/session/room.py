"""Throwaway namespaces and cgroups in which a session runs.

    tests/external/ctr                    installs, builds, makes the room
      └─ unshare (mount, pid, net, ipc, uts, cgroup)
           └─ pid 1: reaps; looks at what was left; ends it
                └─ the session, its daemons, its containers

The room has the machine's root, but a /run, a /dev/shm, an /etc, cgroups, links and processes of its own. So a session uses
the engines' usual places, sees nothing of what else runs on the machine, and ends as a whole: with pid 1 every process,
mount and link is gone. That does not hide what an engine or the runtime left: pid 1 looks before it ends, and what it finds
fails the session.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from . import cgroups
from .adapted import adapt
from .program import run
from .runtime import RUNTIME
from .steps import Steps

INSIDE = "PINION_EXTERNAL_INSIDE"
# What pinrun keeps until the machine stops: the pin of the mount namespace that its containers' are copied from.
KEPT = ("/run/pinrun/staging",)


def hold(name, body, prepare=None, limit=600, stays=(), adapted=True, tried=RUNTIME):
    """Runs `body(steps, work, prepared)` in a room of its own and ends the program with the session's exit code.

    `prepare()` runs before, on the machine itself, with its network: what it gives (JSON) is handed to the body. `work` is an
    empty directory on disk. `limit`: seconds that the whole session may take. `stays`: patterns of what an engine leaves by its
    nature, whatever the runtime (its own directories under /run, its own parent cgroup). `adapted`: see adapted.py. `tried`: the
    program that the session is about.
    """
    if os.environ.get(INSIDE):
        told = json.loads(os.environ.pop(INSIDE))
        sys.exit(_first_process(body, Path(told["work"]), told["prepared"], tuple(stays)))
    demand(tried)
    prepared = prepare() if prepare else None
    print(f"# {name} with {tried}", flush=True)
    sys.exit(_outside(name, prepared, limit, adapt if adapted else None))


def demand(tried=RUNTIME):
    """Ends the program unless it is root and there is something to try."""
    if os.geteuid() != 0:
        sys.exit("external: root is needed: sessions make namespaces and cgroups")
    if not os.access(tried, os.X_OK):
        sys.exit(f"external: there is no runtime at {tried}; build it (make build) or name another with RUNTIME= (an engine: PINION_BIN=)")


def _outside(name, prepared, limit, adaption):
    # Whoever ends this program, the room is taken away.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    _sweep()
    work = tempfile.mkdtemp(prefix=f"pinion-external-{name}-{os.getpid()}-")
    os.chmod(work, 0o711)
    groups = cgroups.Groups.make(f"pinion-test-external-{name}-{os.getpid()}")
    try:
        child = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child",
             "--net", "--ipc", "--uts", "--cgroup", "--mount-proc", sys.executable, os.path.realpath(sys.argv[0]), *sys.argv[1:]],
            env={**os.environ, INSIDE: json.dumps({"work": work, "prepared": prepared}), "TMPDIR": work, "RUNTIME": adaption(RUNTIME, work) if adaption else RUNTIME},
            preexec_fn=groups.join,
        )
        try:
            return child.wait(limit)
        except subprocess.TimeoutExpired:
            print(f"not ok - the session did not end within {limit} s", flush=True)
            return 1
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
    finally:
        groups.remove()
        shutil.rmtree(work, ignore_errors=True)


def _sweep():
    """Takes away the directories and groups of sessions that were killed (-9): their processes ended with them."""
    for directory in Path(tempfile.gettempdir()).glob("pinion-external-*-*-*"):
        if not Path("/proc", directory.name.split("-")[-2]).exists():
            shutil.rmtree(directory, ignore_errors=True)
    for group in cgroups.Groups.stale("pinion-test-external-"):
        group.remove()


def _first_process(body, work, prepared, stays):
    _furnish(work)
    before = seen()
    session = os.fork()
    if session == 0:
        os.setsid()
        os.chdir(work)
        steps = Steps()
        try:
            body(steps, work, prepared)
        except Exception as error:  # noqa: BLE001: outside of any step: nothing more can be tried
            with steps.step("the session"):
                raise error
        finally:
            code = steps.summary()
            sys.stdout.flush()
            os._exit(code)
    code = _reap_until(session)
    things = left(before, stays)
    print("not ok - nothing is left behind" if things else "ok - nothing is left behind", flush=True)
    for line in things[:40]:
        print(f"#   {line}", flush=True)
    if things[40:]:
        print(f"#   and {len(things) - 40} more", flush=True)
    return 1 if things else code


def _furnish(work):
    def mount(*argv):
        run("mount", *argv).must()

    groups = cgroups.hierarchies()
    mount("-t", "sysfs", "sysfs", "/sys")
    if not any(str(group.point) == "/sys/fs/cgroup" for group in groups):
        mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/sys/fs/cgroup")
    for group in groups:
        group.point.mkdir(exist_ok=True)
        mount("-t", group.kind, *(["-o", group.options] if group.options else []), group.kind, str(group.point))
    cgroups.settle_on_v2()
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/dev/shm")
    layers = work / "etc"
    for part in ("upper", "work"):
        (layers / part).mkdir(parents=True)
    mount("-t", "overlay", "-o", f"lowerdir=/etc,upperdir={layers}/upper,workdir={layers}/work", "overlay", "/etc")
    run("ip", "link", "set", "lo", "up").must()


def _reap_until(session):
    """Takes every process that ended, as pid 1 must, until the session itself has."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == session:
            return os.waitstatus_to_exitcode(status)


def _reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def seen():
    """What is in the room: links, mounts, cgroups, files, tables of nft."""
    links = [line.split(": ")[1].split("@")[0] for line in run("ip", "-o", "link").must().out.splitlines()]
    mounts = [line.split(" ")[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    # The runtime may keep the directory of its containers' states, but nothing in it.
    states = Path("/run") / os.path.basename(RUNTIME)
    files = {str(path) for directory in ("/run", "/dev/shm", states) if Path(directory).exists() for path in Path(directory).iterdir()} - {str(states)}
    pins = {str(path) for path in Path("/run/netns").glob("*")}
    tables = set(run("nft", "list", "tables").out.splitlines()) if shutil.which("nft") else set()
    return {"link": set(links), "mount": set(mounts), "cgroup": cgroups.below(), "file": files | pins, "nft": tables}


def left(before, stays, programs=()):
    """What is here that was not before, and processes of other names than these. Those that are about to end get some seconds.

    A session may ask that between its parts: then pid 1 and the session itself are left out.
    """
    own = {os.getpid(), os.getppid()}
    end = time.monotonic() + 5
    while True:
        if os.getpid() == 1:
            _reap()
        things = [f"process {pid}: {line}" for pid, line in processes() if pid not in own and _name(pid) not in programs]
        now = seen()
        for kind, found in now.items():
            things += [f"{kind} {thing}" for thing in sorted(found - before[kind]) if not any(re.fullmatch(pattern, thing) for pattern in (*KEPT, *stays))]
        if not things or time.monotonic() > end:
            return things
        time.sleep(0.1)


def _name(pid):
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def processes():
    """(pid, command line) of every process of the room but its first."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != "1":
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                yield int(entry.name), line or (entry / "comm").read_text().strip()
            except OSError:
                continue
