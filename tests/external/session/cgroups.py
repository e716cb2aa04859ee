"""Groups of our own in every cgroup hierarchy of the machine, which become the roots of a session's cgroup namespace."""

import os
import signal
import time
from pathlib import Path


class Hierarchy:
    """One mounted hierarchy: `kind` is `cgroup` (v1) or `cgroup2`, `options` those it must be mounted with."""

    def __init__(self, point, kind, options):
        self.point, self.kind, self.options = Path(point), kind, options


def hierarchies():
    """Those the machine has mounted under /sys/fs/cgroup."""
    found = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, after = line.split(" - ", 1)
        point, (kind, _, options) = before.split(" ")[4], after.split(" ")[:3]
        if kind in ("cgroup", "cgroup2") and point.startswith("/sys/fs/cgroup"):
            words = [word for word in options.split(",") if word not in ("rw", "ro")]
            if any(word.startswith("name=") for word in words):
                words = ["none", *words]
            found[point] = Hierarchy(point, kind, ",".join(words) if kind == "cgroup" else "")
    return list(found.values())


class Groups:
    """`<hierarchy>/<name>` in each."""

    def __init__(self, paths):
        self.paths = paths

    @classmethod
    def make(cls, name):
        """Makes them."""
        paths = []
        for hierarchy in hierarchies():
            path = hierarchy.point / name
            path.mkdir()
            paths.append(path)
            # A v1 cpuset is empty at first, and an empty one takes no process.
            for file in ("cpuset.cpus", "cpuset.mems"):
                if hierarchy.kind == "cgroup" and (path / file).exists():
                    (path / file).write_text((hierarchy.point / file).read_text())
        return cls(paths)

    @classmethod
    def stale(cls, prefix):
        """Those of this beginning whose name ends with the pid of a process that is gone."""
        for hierarchy in hierarchies():
            paths = [path for path in hierarchy.point.glob(f"{prefix}*") if path.is_dir()]
            yield cls([path for path in paths if not Path("/proc", path.name.rsplit("-", 1)[1]).exists()])

    def join(self):
        """Moves the calling process into all of them."""
        for path in self.paths:
            (path / "cgroup.procs").write_text("0")

    def remove(self):
        """Ends whatever is still in them and takes them away."""
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
    except OSError:  # still busy: the caller comes again
        pass


def below():
    """All groups under the roots that the calling process sees."""
    roots = [hierarchy.point for hierarchy in hierarchies()]
    found = set()
    for root in roots:
        for directory, _, _ in os.walk(root):
            if directory != str(root) and Path(directory) not in roots:
                found.add(directory)
    return found


def settle_on_v2():
    """On a machine with cgroup v2 alone: moves the caller into a leaf, and hands every controller to the groups beside it."""
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
    """The limit that the kernel holds for a process: `memory` (bytes), `cpu` (quota, period), `pids`, `cpuset` (a list)."""
    group = _group(pid, key)

    def read(v1, v2):
        for name in (v2, v1):
            if (group / name).exists():
                return (group / name).read_text().strip()
        raise KeyError(f"{group}: neither {v1} nor {v2}")

    if key == "memory":
        return int(read("memory.limit_in_bytes", "memory.max"))
    if key == "cpu":
        if (group / "cpu.max").exists():
            return tuple(int(word) for word in (group / "cpu.max").read_text().split())
        return tuple(int((group / f"cpu.cfs_{what}_us").read_text()) for what in ("quota", "period"))
    return int(read("pids.max", "pids.max")) if key == "pids" else read("cpuset.cpus", "cpuset.cpus")
