use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use system_tests::Node;

/// Returns everything on a node that a pod could leak, as `scripts/machine-state` does within the namespaces of the
/// node.
pub(crate) fn state(node: &Node) -> BTreeSet<String> {
    let mounts = node.mountinfo();
    let mut state: BTreeSet<String> =
        mounts.iter().filter_map(|line| line.split(' ').nth(4)).map(|path| format!("mount {path}")).collect();
    let data = node.dir.path().join("data");
    for (kind, command) in [
        ("file", "find /run -xdev; find /run/pinion".to_owned()),
        ("link", "ip -o link | cut -d: -f2".to_owned()),
        ("nft", "nft list ruleset | grep -c ' : '".to_owned()),
        ("route", "ip route | cut -d' ' -f1-3".to_owned()),
        ("data", format!("find {} -maxdepth 2 | grep -v /blobs", data.display())),
        ("message queue or segment", "ipcs -a | grep 0x".to_owned()),
    ] {
        let output = node.run("sh", &["-c", &command]).stdout;
        state.extend(output.lines().map(|line| format!("{kind} {line}")));
    }
    let programs = ["pinion", "pinmon"];
    let processes = node.processes().into_iter().filter(|process| !programs.contains(&process.name.as_str()));
    // Zombies are distinguished from other processes; other states change all the time.
    let is_zombie = |process: &system_tests::Process| if process.state == 'Z' { " (zombie)" } else { "" };
    state.extend(processes.map(|process| format!("process {}{}", process.name, is_zombie(&process))));
    state.extend(node.cgroups().into_iter().map(|group| format!("cgroup {}", group.display())));
    state
}

/// Waits until nothing exists on a node that did not exist before. Returns what still does after the timeout.
pub(crate) fn leaked_since(node: &Node, before: &BTreeSet<String>, within: Duration) -> Vec<String> {
    let start = Instant::now();
    loop {
        let leaked: Vec<String> =
            state(node).difference(before).filter(|object| !is_permanent(object)).cloned().collect();
        if leaked.is_empty() || start.elapsed() > within {
            return leaked;
        }
        thread::sleep(Duration::from_millis(200));
    }
}

/// Whether an entry belongs to the daemon and not to a pod.
fn is_permanent(entry: &str) -> bool {
    // The parent directory of checkpoints, which exists if CRIU is installed.
    let is_checkpoint_directory = entry.starts_with("data ") && entry.ends_with("/data/checkpoint");
    is_checkpoint_directory
        || ["file /run/pinion/journal", "file /run/pinion/boot_id"].iter().any(|prefix| entry.starts_with(prefix))
}
