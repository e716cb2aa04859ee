"""A wrapper for other runtimes on machines whose root lacks a capability, such as some virtual machines and containers.

Other runtimes refuse a spec that requests such a capability ("unable to apply caps"), or a negative oom_score_adj if
CAP_SYS_RESOURCE is missing; pinrun omits capabilities that root lacks. To run the sessions with another runtime on such
a machine, it is called through a small program that first removes both from config.json.
"""

import os
import re
import sys
from pathlib import Path

_PROGRAM = """#!{python}
import json, os, sys
RUNTIME, MISSING = {runtime!r}, {missing!r}
arguments = sys.argv[1:]
def value_of(*names):
    return next((arguments[i + 1] for i, argument in enumerate(arguments[:-1]) if argument in names), None)
def clamp(process):
    for names in (process.get("capabilities") or {{}}).values():
        names[:] = [name for name in names if name not in MISSING]
    if process.get("oomScoreAdj", 0) < 0:
        process["oomScoreAdj"] = 0
def edit(path, key):
    with open(path) as file:
        spec = json.load(file)
    clamp(spec.get(key) or {{}} if key else spec)
    with open(path, "w") as file:
        json.dump(spec, file)
if "create" in arguments or "run" in arguments:
    edit((value_of("--bundle", "-b") or ".") + "/config.json", "process")
elif "exec" in arguments and value_of("--process", "-p"):
    edit(value_of("--process", "-p"), None)
os.execv(RUNTIME, [RUNTIME, *arguments])
"""
_NAMES = {24: "CAP_SYS_RESOURCE", 21: "CAP_SYS_ADMIN", 25: "CAP_SYS_TIME", 22: "CAP_SYS_BOOT", 16: "CAP_SYS_MODULE", 17: "CAP_SYS_RAWIO"}


def missing_capabilities():
    """Returns the capabilities that root lacks on this machine, of those that virtual machines and containers drop."""
    bounding = int(re.search(r"^CapBnd:\s+(\w+)$", Path("/proc/self/status").read_text(), re.MULTILINE).group(1), 16)
    return [name for bit, name in _NAMES.items() if not bounding >> bit & 1]


def wrap(runtime, directory):
    """Returns the path of a wrapper for the runtime in `directory`, or the runtime's own path if none is needed."""
    missing = missing_capabilities()
    if not missing or os.path.basename(runtime) == "pinrun":
        return runtime
    program = Path(directory) / os.path.basename(runtime)
    program.write_text(_PROGRAM.format(python=sys.executable, runtime=runtime, missing=missing))
    program.chmod(0o755)
    return str(program)


_HIDE_UNIFIED = """#!/bin/sh
case " $* " in *' create '*)
    bundle=${{*##*--bundle }}
    bundle=${{bundle%% *}}
    sed -i 's/"ociVersion": *"[^"]*"/"ociVersion":"1.0.2"/' "$bundle/config.json"
esac
grep -q ' /sys/fs/cgroup/unified ' /proc/mounts || exec {runtime} "$@"
unshare --mount --propagation unchanged sh -c 'mount --make-rprivate /sys/fs/cgroup && umount /sys/fs/cgroup/unified && exec {runtime} "$@"' crun "$@" || exit
if {joins} && [ -n "$bundle" ]; then
    group=/sys/fs/cgroup/unified$(sed 's/.*"cgroupsPath":"\\([^"]*\\)".*/\\1/' "$bundle/config.json")
    mkdir -p "$group" && cat "$bundle/pid" > "$group/cgroup.procs"
fi
"""


def hide_unified(runtime, directory, joins):
    """Returns the path of a wrapper in `directory` for crun 1.8, which refuses the v2 tree at /sys/fs/cgroup/unified and newer versions
    of the specification than 1.0.

    The tree is hidden and the version lowered. With `joins` the new container is added to the cgroup in that tree afterwards, if the
    bundle has a file `pid`.
    """
    program = Path(directory) / f"hybrid-{os.path.basename(runtime)}"
    program.write_text(_HIDE_UNIFIED.format(runtime=runtime, joins="true" if joins else "false"))
    program.chmod(0o755)
    return str(program)
