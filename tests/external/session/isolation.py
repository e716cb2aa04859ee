"""Throwaway namespaces and cgroups in which a session runs.

    tests/external/ctr                    installs, builds, creates the namespaces
      └─ unshare (mount, pid, net, ipc, uts, cgroup)
           └─ pid 1: reaps, checks for leftovers, exits
                └─ the session, its daemons, its containers

A session has the root file system of the machine, but its own /run, /dev/shm, /etc, cgroups, links and processes. So
engines use their default paths and do not see anything else that runs on the machine, and when pid 1 exits, all
processes, mounts and links are removed. To detect leaks of an engine or the runtime, pid 1 checks for leftovers before
it exits; the session fails if it finds any.
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
from .program import run
from .runtime import RUNTIME
from .steps import Steps
from .wrapper import wrap

# Set for pid 1 of a session; contains its arguments as JSON.
INSIDE = "PINION_EXTERNAL_INSIDE"
# pinrun keeps the pin of its staging mount namespace until the machine stops.
ALWAYS_ALLOWED = ("/run/pinrun/staging",)


def run_session(name, body, prepare=None, limit=600, allowed_leftovers=(), wrap_runtime=True, program=RUNTIME):
    """Runs `body(steps, work, prepared)` in new namespaces and exits with the exit code of the session.

    `prepare()` runs first, outside of the namespaces and with the network of the machine; its result (JSON) is passed to
    the body. `work` is an empty directory on disk. `limit` is the time limit of the session in seconds.
    `allowed_leftovers` are patterns of objects that the engine keeps with any runtime (its directories under /run, its
    parent cgroup). `wrap_runtime` enables wrapper.py. `program` is the program under test.
    """
    if os.environ.get(INSIDE):
        arguments = json.loads(os.environ.pop(INSIDE))
        sys.exit(_first_process(body, Path(arguments["work"]), arguments["prepared"], tuple(allowed_leftovers)))
    check_requirements(program)
    prepared = prepare() if prepare else None
    print(f"# {name} with {program}", flush=True)
    sys.exit(_run_isolated(name, prepared, limit, wrap_runtime))


def check_requirements(program=RUNTIME):
    """Exits with an error unless the user is root and the program under test is executable."""
    if os.geteuid() != 0:
        sys.exit("external: must run as root: sessions create namespaces and cgroups")
    if not os.access(program, os.X_OK):
        sys.exit(f"external: {program} is not executable; build it with `make build`, or set RUNTIME (for an engine PINION_BIN)")


def _run_isolated(name, prepared, limit, wrap_runtime):
    # Exit by an exception on a signal too, so that the directory and the cgroups are removed.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    _remove_stale()
    work = tempfile.mkdtemp(prefix=f"pinion-external-{name}-{os.getpid()}-")
    os.chmod(work, 0o711)
    groups = cgroups.Groups.create(f"pinion-test-external-{name}-{os.getpid()}")
    try:
        child = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child",
             "--net", "--ipc", "--uts", "--cgroup", "--mount-proc", sys.executable, os.path.realpath(sys.argv[0]), *sys.argv[1:]],
            env={**os.environ, INSIDE: json.dumps({"work": work, "prepared": prepared}), "TMPDIR": work, "RUNTIME": wrap(RUNTIME, work) if wrap_runtime else RUNTIME},
            preexec_fn=groups.join,
        )
        try:
            groups.release(child)
            return child.wait(limit)
        except subprocess.TimeoutExpired:
            print(f"not ok - the session timed out after {limit} s", flush=True)
            return 1
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
    finally:
        groups.remove()
        shutil.rmtree(work, ignore_errors=True)


def _remove_stale():
    """Removes the directories and cgroups of sessions that were killed by SIGKILL; their processes ended with them."""
    for directory in Path(tempfile.gettempdir()).glob("pinion-external-*-*-*"):
        if not Path("/proc", directory.name.split("-")[-2]).exists():
            shutil.rmtree(directory, ignore_errors=True)
    for group in cgroups.Groups.stale("pinion-test-external-"):
        group.remove()


def _first_process(body, work, prepared, allowed_leftovers):
    _mount_private_directories(work)
    before = snapshot()
    session = os.fork()
    if session == 0:
        os.setsid()
        os.chdir(work)
        steps = Steps()
        try:
            body(steps, work, prepared)
        except (Exception, SystemExit) as error:  # noqa: BLE001: an error outside of a step ends the session
            with steps.step("the session"):
                raise error
        finally:
            code = steps.summary()
            sys.stdout.flush()
            os._exit(code)
    code = _reap_until(session)
    leaked = leftovers(before, allowed_leftovers)
    print(f"{'not ok' if leaked else 'ok'} - no leftovers", flush=True)
    for line in leaked[:40]:
        print(f"#   {line}", flush=True)
    if leaked[40:]:
        print(f"#   and {len(leaked) - 40} more", flush=True)
    return 1 if leaked else code


def _mount_private_directories(work):
    def mount(*argv):
        run("mount", *argv).check()

    hierarchies = cgroups.hierarchies()
    mount("-t", "sysfs", "sysfs", "/sys")
    if not any(str(hierarchy.mount_point) == "/sys/fs/cgroup" for hierarchy in hierarchies):
        mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/sys/fs/cgroup")
    for hierarchy in hierarchies:
        hierarchy.mount_point.mkdir(exist_ok=True)
        mount("-t", hierarchy.kind, *(["-o", hierarchy.options] if hierarchy.options else []), hierarchy.kind, str(hierarchy.mount_point))
    cgroups.prepare_v2()
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/dev/shm")
    layers = work / "etc"
    for part in ("upper", "work"):
        (layers / part).mkdir(parents=True)
    mount("-t", "overlay", "-o", f"lowerdir=/etc,upperdir={layers}/upper,workdir={layers}/work", "overlay", "/etc")
    run("ip", "link", "set", "lo", "up").check()


def _reap_until(session):
    """Reaps all children, as pid 1 must, until the session has exited; returns its exit code."""
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


def snapshot():
    """Returns what exists in the namespaces of the session: links, mounts, cgroups, files, nft tables."""
    links = [line.split(": ")[1].split("@")[0] for line in run("ip", "-o", "link").check().out.splitlines()]
    mounts = [line.split(" ")[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    # The runtime may keep its state directory, but it must be empty.
    states = Path("/run") / os.path.basename(RUNTIME)
    files = {str(path) for directory in ("/run", "/dev/shm", states) if Path(directory).exists() for path in Path(directory).iterdir()} - {str(states)}
    pins = {str(path) for path in Path("/run/netns").glob("*")}
    tables = set(run("nft", "list", "tables").out.splitlines()) if shutil.which("nft") else set()
    return {"link": set(links), "mount": set(mounts), "cgroup": cgroups.child_cgroups(), "file": files | pins, "nft": tables}


def leftovers(before, allowed, programs=()):
    """Lists what exists now and is not in the snapshot `before`, and processes with other names than `programs`.

    Waits up to five seconds for objects that are being removed. A session may call this between its parts; pid 1 and
    the caller are never listed.
    """
    callers = {os.getpid(), os.getppid()}
    end = time.monotonic() + 5
    while True:
        if os.getpid() == 1:
            _reap()
        leaked = [f"process {pid}: {line}" for pid, line in processes() if pid not in callers and _name(pid) not in programs]
        for kind, names in snapshot().items():
            leaked += [f"{kind} {name}" for name in sorted(names - before[kind])
                       if not any(re.fullmatch(pattern, name) for pattern in (*ALWAYS_ALLOWED, *allowed))]
        if not leaked or time.monotonic() > end:
            return leaked
        time.sleep(0.1)


def _name(pid):
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def processes():
    """Lists pid and command line of every process of the PID namespace except pid 1."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != "1":
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                yield int(entry.name), line or (entry / "comm").read_text().strip()
            except OSError:
                continue
