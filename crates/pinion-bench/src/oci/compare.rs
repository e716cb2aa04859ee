//! Checks that the floor creates the same container as the runtimes.

use std::{io, process::Command};

use super::{
    Contestant,
    bundle::{self, Bundle, Shape},
};

/// A script that prints properties of its container: mounts, devices, capabilities, seccomp filter, limits.
const SCRIPT: [&str; 3] = [
    "/bin/sh",
    "-c",
    "/bin/busybox cut -d' ' -f5 /proc/self/mountinfo | /bin/busybox sort; ls /dev | /bin/busybox sort; \
     grep -E '^(Cap|NoNewPrivs|Seccomp:|Groups)' /proc/self/status; /bin/busybox hostname; /bin/busybox ip -o link; \
     cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/devices/devices.list \
     | /bin/busybox sort; echo $$; /bin/busybox touch /proc/sys/x /sys/x; :",
];

/// Compares the container of the floor with that of the first runtime. Does nothing if there is no floor.
pub(crate) fn compare_with_floor(contestants: &[Contestant], base: &Bundle) -> io::Result<()> {
    let (Some(first), Some(floor)) = (contestants.first(), contestants.last()) else { return Ok(()) };
    let group = format!("{}-compare", floor.group);
    let Some(words) = floor.runtime.floor_command(&group, &SCRIPT) else { return Ok(()) };
    let bundle = base.sibling("compare")?;
    bundle.write(&bundle::spec(
        &Shape { args: &SCRIPT, group: &group, memory: 64 << 20, seccomp: true },
        &base.rootfs(),
    ))?;
    let expected = output(&first.runtime.run(&bundle.directory, &group, "bench-compare"))?;
    let actual = output(&words)?;
    if expected == actual {
        return Ok(());
    }
    let difference = expected.lines().zip(actual.lines()).find(|(expected, actual)| expected != actual);
    Err(io::Error::other(format!(
        "the container of the floor differs from that of {}: {difference:?} ({} and {} lines)",
        first.runtime.name,
        expected.lines().count(),
        actual.lines().count()
    )))
}

fn output(words: &[String]) -> io::Result<String> {
    let output = Command::new(&words[0]).args(&words[1..]).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
