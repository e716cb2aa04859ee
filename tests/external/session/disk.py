"""A file system for what engines write, as most nodes have one."""

import contextlib
import os
from pathlib import Path

from .program import Failure, run

# The file is sparse; it must not fill the disk.
SIZE_MAX, SIZE_MIN, SHARE = 24 << 30, 4 << 30, 0.7


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
    try:
        _mount(file, mounted)
    except (Failure, OSError) as failure:
        print(f"# no file system with a journal, without which removed images make later pulls slow: {failure}", flush=True)
        file.unlink(missing_ok=True)
        yield work
        return
    try:
        yield mounted
    finally:
        # What an engine has left mounted there would not be found after a lazy unmount.
        unmounted = run("umount", mounted)
        if unmounted.code:
            print(f"# {unmounted.err.strip()}", flush=True)
            run("umount", "-l", mounted)


def _mount(file, directory):
    disk = os.statvfs(directory)
    size = min(SIZE_MAX, int(disk.f_bavail * disk.f_frsize * SHARE))
    if size < SIZE_MIN:
        raise Failure(f"only {size >> 20} MiB for it")
    with file.open("wb"):
        os.truncate(file, size)
    run("mkfs.ext4", "-q", "-E", "nodiscard", file).check()
    # Inode tables are not to be written while something is measured; those of a sparse file are zero. Not with `discard`: the kernel would make holes while
    # something is measured.
    run("mount", "-o", "loop,noinit_itable", file, directory).check()
    directory.chmod(0o711)


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
