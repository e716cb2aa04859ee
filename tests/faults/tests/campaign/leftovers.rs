//! Everything that is on a node: what a pod may leave shows as a difference.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use system_tests::Node;

/// Deep enough for every directory that the engine makes.
const DEPTH: usize = 6;

/// Every mount, link, route, rule, cgroup, process and file of the engine on a node.
pub(crate) fn inventory(node: &Node) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let first = PathBuf::from(format!("/proc/{}", node.first()));
    let processes = node.processes();
    let monitor = processes.iter().find(|process| process.name == "pinmon" && process.takes_signals());
    let monitor_pid = monitor.map(|process| process.pid);
    let monitor = monitor.map(|process| process.directory.clone());
    for (owner, directory) in
        [Some(("node", first.clone())), monitor.map(|directory| ("monitor", directory))].into_iter().flatten()
    {
        let table = fs::read_to_string(directory.join("mountinfo")).unwrap_or_default();
        found.extend(table.lines().filter_map(|line| line.split(' ').nth(4)).map(|at| format!("mount {owner} {at}")));
    }
    let links = fs::read_to_string(first.join("net/dev")).unwrap_or_default();
    found
        .extend(links.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| format!("link {}", name.trim())));
    let routes = fs::read_to_string(first.join("net/route")).unwrap_or_default();
    found
        .extend(routes.lines().map(|line| format!("route {}", line.split('\t').take(3).collect::<Vec<_>>().join(" "))));
    let rules = node.run("nft", &["list", "ruleset"]).stdout;
    found.extend(
        rules
            .lines()
            .filter(|line| line.contains(" : ") && !line.trim().starts_with("type "))
            .map(|line| format!("nft {}", line.trim())),
    );
    for group in node.cgroups() {
        walk(&group, DEPTH, &mut |path, is_directory| {
            if is_directory {
                found.insert(format!("cgroup {}", path.display()));
            }
        });
    }
    let run = first.join("root/run");
    walk(&run, DEPTH, &mut |path, _| {
        found.insert(format!("file /run/{}", path.strip_prefix(&run).unwrap_or(path).display()));
    });
    let data = node.dir.path().join("data");
    walk(&data, 4, &mut |path, _| {
        found.insert(format!("data {}", path.strip_prefix(&data).unwrap_or(path).display()));
    });
    // The monitor has no zombies. The daemon and the node's first process reap what falls to them in their own time.
    let monitor = monitor_pid.unwrap_or(0);
    let alive = processes.iter().filter(|process| process.state != 'Z' || process.parent == monitor);
    found.extend(alive.map(|process| match process.state {
        'Z' => format!("zombie {} of {}", process.name, process.parent),
        _ => format!("process {} {}", process.name, process.command_line()),
    }));
    found.retain(|thing| !passing(thing));
    found
}

/// Prefixes of what comes and goes without a pod, or stays however many pods there were.
const PASSING: [&str; 6] = [
    "data tmp/trash",
    "process nft",
    "process nsenter",
    "process strace",
    "file /run/pinion/pinmon.log",
    "file /run/pinion/journal",
];

fn passing(thing: &str) -> bool {
    // The bystander's pauses, also on their way to their program.
    let pause = thing.starts_with("process ") && thing.ends_with(" sleep 0.05") || thing == "process sleep ";
    pause || PASSING.iter().any(|known| thing.starts_with(known))
}

/// Calls `visit` with every entry below a directory and whether it is a directory.
pub(crate) fn walk(directory: &Path, depth: usize, visit: &mut impl FnMut(&Path, bool)) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        visit(&entry.path(), is_directory);
        if is_directory && depth > 1 {
            walk(&entry.path(), depth - 1, visit);
        }
    }
}
