use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use system_tests::Node;

/// Everything on a node that a pod may leave behind: `scripts/machine-state` within the node's namespaces.
pub(crate) fn state(node: &Node) -> BTreeSet<String> {
    let mounts = node.mountinfo();
    let mut state: BTreeSet<String> =
        mounts.iter().filter_map(|line| line.split(' ').nth(4)).map(|at| format!("mount {at}")).collect();
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
    let ours = ["pinion", "pinmon"];
    let processes = node.processes().into_iter().filter(|process| !ours.contains(&process.name.as_str()));
    // Whether one runs or sleeps changes all the time; a zombie is another matter.
    let is_zombie = |process: &system_tests::Process| if process.state == 'Z' { " (zombie)" } else { "" };
    state.extend(processes.map(|process| format!("process {}{}", process.name, is_zombie(&process))));
    state.extend(node.cgroups().into_iter().map(|group| format!("cgroup {}", group.display())));
    state
}

/// Waits until a node holds nothing that it did not hold before; returns what it still holds after the bound.
pub(crate) fn since(node: &Node, before: &BTreeSet<String>, within: Duration) -> Vec<String> {
    let begin = Instant::now();
    loop {
        let leaked: Vec<String> = state(node).difference(before).filter(|one| !is_kept(one)).cloned().collect();
        if leaked.is_empty() || begin.elapsed() > within {
            return leaked;
        }
        thread::sleep(Duration::from_millis(200));
    }
}

/// What a daemon keeps however many pods there were.
fn is_kept(entry: &str) -> bool {
    // The directory that checkpoints are made in, where CRIU is installed; theirs are below it.
    let of_checkpoints = entry.starts_with("data ") && entry.ends_with("/data/checkpoint");
    of_checkpoints
        || ["file /run/pinion/journal", "file /run/pinion/boot_id"].iter().any(|known| entry.starts_with(known))
}
