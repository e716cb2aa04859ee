//! Programs that a test installs.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// Executes crun. crun 1.8 refuses hybrid cgroups, so it is executed without the v2 tree there, and its container is added
/// to the v2 tree afterwards.
pub const CRUN: &str = r#"#!/bin/sh
grep -q ' /sys/fs/cgroup/unified ' /proc/mounts || exec crun "$@"
unshare --mount sh -c 'umount /sys/fs/cgroup/unified && exec crun "$@"' crun "$@" || exit
case " $* " in *' create '*)
    bundle=${*##*--bundle }
    bundle=${bundle%% *}
    group=/sys/fs/cgroup/unified$(sed 's/.*"cgroupsPath":"\([^"]*\)".*/\1/' "$bundle/config.json")
    mkdir -p "$group" && cat "$bundle/pid" > "$group/cgroup.procs"
esac
"#;

/// Writes a program to a directory, and returns its path.
pub fn install_program(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    fs::write(&path, text).expect("write a program");
    fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("chmod");
    path
}
