"""A file system for what engines write, as most nodes have one."""

import contextlib
import os
from pathlib import Path

from .program import run

# The file is sparse.
SIZE = 24 << 30


@contextlib.contextmanager
def journaled(work):
    """Returns a directory on a file system with a journal: `work`, or one in it that is mounted until the end of the context.

    ext4 without a journal, which small virtual machines have, does not use the inode of a removed file again for five minutes, and each creation of a file in
    its group searches past all of them (`recently_deleted` in fs/ext4/ialloc.c). There a pull of 10 000 files after removals of such images takes ten times as
    long, and the more, the faster the engine has removed them.
    """
    if _has_journal(work):
        yield work
        return
    file, mounted = work / "disk.img", work / "disk"
    mounted.mkdir()
    with file.open("wb"):
        os.truncate(file, SIZE)
    made = run("mkfs.ext4", "-q", "-E", "nodiscard", file)
    # Inode tables are not to be written while something is measured; those of a sparse file are zero.
    if made.code or run("mount", "-o", "loop,noinit_itable", file, mounted).code:
        print("# no file system with a journal: removed images make later pulls slow", flush=True)
        yield work
        return
    mounted.chmod(0o711)
    try:
        yield mounted
    finally:
        # What still uses it ends with the session.
        run("umount", "-l", mounted)


def _has_journal(directory):
    """Returns whether a directory is on a file system with a journal, or on one of another kind."""
    device = os.stat(directory).st_dev
    mounts = (line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines())
    number = f"{os.major(device)}:{os.minor(device)}"
    kinds = {fields[fields.index("-") + 1] for fields in mounts if fields[2] == number}
    if "ext4" not in kinds:
        return True
    name = Path(os.path.realpath(f"/sys/dev/block/{number}")).name
    return any(journal.name.startswith(f"{name}-") for journal in Path("/proc/fs/jbd2").glob("*"))
