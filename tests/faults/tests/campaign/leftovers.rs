//! Takes an inventory of a node, so that leaked objects can be inventory by comparison.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use system_tests::Node;

/// Depth of the search: enough for every directory that the engine creates.
const DEPTH: usize = 6;

/// Returns every mount, link, route, rule, cgroup, process and file of the engine on a node.
pub(crate) fn inventory(node: &Node) -> BTreeSet<String> {
    let mut inventory = BTreeSet::new();
    let init = PathBuf::from(format!("/proc/{}", node.init_pid()));
    let processes = node.processes();
    let monitor = processes.iter().find(|process| process.name == "pinmon" && process.has_signalfd());
    let monitor_pid = monitor.map(|process| process.pid);
    let monitor = monitor.map(|process| process.directory.clone());
    for (owner, directory) in
        [Some(("node", init.clone())), monitor.map(|directory| ("monitor", directory))].into_iter().flatten()
    {
        let table = fs::read_to_string(directory.join("mountinfo")).unwrap_or_default();
        inventory.extend(
            table.lines().filter_map(|line| line.split(' ').nth(4)).map(|path| format!("mount {owner} {path}")),
        );
    }
    let links = fs::read_to_string(init.join("net/dev")).unwrap_or_default();
    inventory
        .extend(links.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| format!("link {}", name.trim())));
    let routes = fs::read_to_string(init.join("net/route")).unwrap_or_default();
    inventory
        .extend(routes.lines().map(|line| format!("route {}", line.split('\t').take(3).collect::<Vec<_>>().join(" "))));
    let rules = node.run("nft", &["list", "ruleset"]).stdout;
    inventory.extend(
        rules
            .lines()
            .filter(|line| line.contains(" : ") && !line.trim().starts_with("type "))
            .map(|line| format!("nft {}", line.trim())),
    );
    for group in node.cgroups() {
        walk(&group, DEPTH, &mut |path, is_directory| {
            if is_directory {
                inventory.insert(format!("cgroup {}", path.display()));
            }
        });
    }
    let run = init.join("root/run");
    walk(&run, DEPTH, &mut |path, _| {
        inventory.insert(format!("file /run/{}", path.strip_prefix(&run).unwrap_or(path).display()));
    });
    let data = node.dir.path().join("data");
    walk(&data, 4, &mut |path, _| {
        inventory.insert(format!("data {}", path.strip_prefix(&data).unwrap_or(path).display()));
    });
    // The monitor must have no zombies. The daemon and the init process of the node reap orphans asynchronously.
    let monitor = monitor_pid.unwrap_or(0);
    let alive = processes.iter().filter(|process| process.state != 'Z' || process.parent == monitor);
    inventory.extend(alive.map(|process| match process.state {
        'Z' => format!("zombie {} of {}", process.name, process.parent),
        _ => format!("process {} {}", process.name, process.command_line()),
    }));
    inventory.retain(|object| !is_ignored(object));
    inventory
}

/// Prefixes of objects that do not depend on pods.
const IGNORED: [&str; 6] = [
    "data tmp/trash",
    "process nft",
    "process nsenter",
    "process strace",
    "file /run/pinion/pinmon.log",
    "file /run/pinion/journal",
];

fn is_ignored(object: &str) -> bool {
    // The sleep processes of the bystander, also before their execve(2).
    let is_sleep = object.starts_with("process ") && object.ends_with(" sleep 0.05") || object == "process sleep ";
    is_sleep || IGNORED.iter().any(|prefix| object.starts_with(prefix))
}

/// Calls `visit` for every entry below a directory, with its path and whether it is a directory.
pub(crate) fn walk(directory: &Path, depth: usize, visit: &mut impl FnMut(&Path, bool)) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        visit(&entry.path(), is_directory);
        if is_directory && depth > 1 {
            walk(&entry.path(), depth - 1, visit);
        }
    }
}
