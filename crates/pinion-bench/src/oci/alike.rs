//! Whether the floor makes the container that the runtimes make.

use std::{io, process::Command};

use super::{
    Contestant,
    bundle::{self, Bundle, Shape},
};

/// What a container shows of itself: its mounts, devices, capabilities, filter, limits.
const SHOW: [&str; 3] = [
    "/bin/sh",
    "-c",
    "/bin/busybox cut -d' ' -f5 /proc/self/mountinfo | /bin/busybox sort; ls /dev | /bin/busybox sort; \
     grep -E '^(Cap|NoNewPrivs|Seccomp:|Groups)' /proc/self/status; /bin/busybox hostname; /bin/busybox ip -o link; \
     cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/devices/devices.list \
     | /bin/busybox sort; echo $$; /bin/busybox touch /proc/sys/x /sys/x; :",
];

/// Compares the floor with the first runtime; nothing to compare is fine.
pub(crate) fn alike(contestants: &[Contestant], base: &Bundle) -> io::Result<()> {
    let (Some(first), Some(floor)) = (contestants.first(), contestants.last()) else { return Ok(()) };
    let group = format!("{}-alike", floor.group);
    let Some(words) = floor.runtime.floor_words(&group, &SHOW) else { return Ok(()) };
    let bundle = base.sibling("alike")?;
    bundle
        .write(&bundle::spec(&Shape { args: &SHOW, group: &group, memory: 64 << 20, seccomp: true }, &base.rootfs()))?;
    let theirs = output(&first.runtime.run(&bundle.directory, &group, "bench-alike"))?;
    let own = output(&words)?;
    if theirs == own {
        return Ok(());
    }
    let differs = theirs.lines().zip(own.lines()).find(|(theirs, own)| theirs != own);
    Err(io::Error::other(format!(
        "the floor makes another container than {}: {differs:?} ({} and {} lines)",
        first.runtime.name,
        theirs.lines().count(),
        own.lines().count()
    )))
}

fn output(words: &[String]) -> io::Result<String> {
    let output = Command::new(&words[0]).args(&words[1..]).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
