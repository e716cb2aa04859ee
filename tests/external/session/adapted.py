"""Another runtime than ours on a machine whose root lacks a capability, as in some virtual machines and containers.

Other runtimes refuse a specification that asks for it ("unable to apply caps"), or for a negative oom_score_adj without
CAP_SYS_RESOURCE; ours leaves out what cannot be given. So that the sessions can be tried with another runtime there, it is
called through a small program that takes both out of config.json first.
"""

import os
import re
import sys
from pathlib import Path

_PROGRAM = """#!{python}
import json, os, sys
REAL, LACKING = {real!r}, {lacking!r}
given = sys.argv[1:]
def after(*names):
    return next((given[i + 1] for i, word in enumerate(given[:-1]) if word in names), None)
def clamp(process):
    for names in (process.get("capabilities") or {{}}).values():
        names[:] = [name for name in names if name not in LACKING]
    if process.get("oomScoreAdj", 0) < 0:
        process["oomScoreAdj"] = 0
def edit(path, key):
    with open(path) as file:
        spec = json.load(file)
    clamp(spec.get(key) or {{}} if key else spec)
    with open(path, "w") as file:
        json.dump(spec, file)
if "create" in given or "run" in given:
    edit((after("--bundle", "-b") or ".") + "/config.json", "process")
elif "exec" in given and after("--process", "-p"):
    edit(after("--process", "-p"), None)
os.execv(REAL, [REAL, *given])
"""
_NAMES = {24: "CAP_SYS_RESOURCE", 21: "CAP_SYS_ADMIN", 25: "CAP_SYS_TIME", 22: "CAP_SYS_BOOT", 16: "CAP_SYS_MODULE", 17: "CAP_SYS_RAWIO"}


def lacking():
    """The capabilities that root here does not have, of those that virtual machines and containers take away."""
    bounding = int(re.search(r"^CapBnd:\s+(\w+)$", Path("/proc/self/status").read_text(), re.MULTILINE).group(1), 16)
    return [name for bit, name in _NAMES.items() if not bounding >> bit & 1]


def adapt(runtime, directory):
    """The path to call the runtime by: its own, or that of a program written into the directory."""
    missing = lacking()
    if not missing or os.path.basename(runtime) == "pinrun":
        return runtime
    program = Path(directory) / os.path.basename(runtime)
    program.write_text(_PROGRAM.format(python=sys.executable, real=runtime, lacking=missing))
    program.chmod(0o755)
    return str(program)
