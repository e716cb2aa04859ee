"""Cgroups of a session, one in every hierarchy of the machine. They become the roots of its cgroup namespace."""

import os
import signal
import time
from pathlib import Path

from .program import wait_until


class Hierarchy:
    """A mounted hierarchy: `kind` is `cgroup` (v1) or `cgroup2`; `options` are the mount options that select it."""

    def __init__(self, mount_point, kind, options):
        self.mount_point, self.kind, self.options = Path(mount_point), kind, options


def hierarchies():
    """Lists the hierarchies that are mounted under /sys/fs/cgroup."""
    by_mount_point = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, after = line.split(" - ", 1)
        mount_point, (kind, _, options) = before.split(" ")[4], after.split(" ")[:3]
        if kind in ("cgroup", "cgroup2") and mount_point.startswith("/sys/fs/cgroup"):
            selected = [option for option in options.split(",") if option not in ("rw", "ro")]
            if any(option.startswith("name=") for option in selected):
                selected = ["none", *selected]
            by_mount_point[mount_point] = Hierarchy(mount_point, kind, ",".join(selected) if kind == "cgroup" else "")
    return list(by_mount_point.values())


class Groups:
    """The cgroups `<hierarchy>/<name>` in each hierarchy."""

    def __init__(self, paths):
        self.paths = paths

    @classmethod
    def create(cls, name):
        """Creates the cgroups."""
        paths = []
        for hierarchy in hierarchies():
            path = hierarchy.mount_point / name
            path.mkdir()
            paths.append(path)
            # A new v1 cpuset is empty, and processes cannot join an empty cpuset.
            for file in ("cpuset.cpus", "cpuset.mems"):
                if hierarchy.kind == "cgroup" and (path / file).exists():
                    (path / file).write_text((hierarchy.mount_point / file).read_text())
        return cls(paths)

    @classmethod
    def stale(cls, prefix):
        """Finds the cgroups with a prefix whose name ends with the pid of a process that does not exist anymore."""
        for hierarchy in hierarchies():
            paths = [path for path in hierarchy.mount_point.glob(f"{prefix}*") if path.is_dir()]
            yield cls([path for path in paths if not Path("/proc", path.name.rsplit("-", 1)[1]).exists()])

    def join(self):
        """Moves the calling process into all of the cgroups."""
        for path in self.paths:
            (path / "cgroup.procs").write_text("0")

    def release(self, process):
        """Moves a process from the v2 group of a hybrid machine back to the group of the caller, after the process has forked.

        It waits for pid 1 of the session outside of the session's PID namespace, so that the session cannot move it, and
        a group with processes cannot enable controllers for its children.
        """
        root = Path("/sys/fs/cgroup/unified")
        if not (root / "cgroup.procs").exists():
            return
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        wait_until("the session starts", lambda: process.poll() is not None or children.read_text().strip())
        own = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
        if process.poll() is None:
            (root / own.removeprefix("0::").lstrip("/") / "cgroup.procs").write_text(str(process.pid))

    def remove(self):
        """Kills the processes in the cgroups and removes the cgroups."""
        for path in self.paths:
            for _ in range(100):
                directories = [Path(directory) for directory, _, _ in os.walk(path, topdown=False)]
                for directory in directories:
                    _empty(directory)
                if not path.exists():
                    break
                time.sleep(0.05)


def _empty(directory):
    try:
        (directory / "freezer.state").write_text("THAWED")
    except OSError:
        pass
    try:
        for pid in (directory / "cgroup.procs").read_text().split():
            if int(pid) > 0:
                os.kill(int(pid), signal.SIGKILL)
        directory.rmdir()
    except OSError:  # still busy; the caller retries
        pass


def child_cgroups():
    """Returns the paths of all cgroups below the roots of the cgroup namespace."""
    roots = [hierarchy.mount_point for hierarchy in hierarchies()]
    paths = set()
    for root in roots:
        for directory, _, _ in os.walk(root):
            if directory != str(root) and Path(directory) not in roots:
                paths.add(directory)
    return paths


def prepare_v2():
    """On a machine with cgroup v2 only: moves the caller into a leaf, and enables every controller for its siblings."""
    root = Path("/sys/fs/cgroup")
    if not (root / "cgroup.controllers").exists():
        return
    leaf = root / "session"
    leaf.mkdir(exist_ok=True)
    (leaf / "cgroup.procs").write_text("0")
    for controller in (root / "cgroup.controllers").read_text().split():
        (root / "cgroup.subtree_control").write_text(f"+{controller}")


def _group(pid, controller):
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        number, names, path = line.split(":", 2)
        if controller in names.split(","):
            return Path(f"/sys/fs/cgroup/{controller}{path}")
        if number == "0" and Path("/sys/fs/cgroup/cgroup.controllers").exists():
            return Path(f"/sys/fs/cgroup{path}")
    raise KeyError(controller)


def limit_of(pid, key):
    """Reads a limit of a process's cgroup: `memory` (bytes), `cpu` ((quota, period) in µs), `pids` or `cpuset`."""
    group = _group(pid, key)

    def read(v1, v2):
        for name in (v2, v1):
            if (group / name).exists():
                return (group / name).read_text().strip()
        raise KeyError(f"{group} has neither {v1} nor {v2}")

    if key == "memory":
        return int(read("memory.limit_in_bytes", "memory.max"))
    if key == "cpu":
        if (group / "cpu.max").exists():
            return tuple(int(word) for word in (group / "cpu.max").read_text().split())
        return tuple(int((group / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
    return int(read("pids.max", "pids.max")) if key == "pids" else read("cpuset.cpus", "cpuset.cpus")
