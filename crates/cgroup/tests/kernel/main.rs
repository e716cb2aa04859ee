//! Groups on the real kernel: `/pinion-test-<pid>` in every tree. Needs root and cgroup trees at `/sys/fs/cgroup`.
//!
//! Names given as arguments select the tests that contain one of them.

mod devices;
mod fixture;
mod layouts;
mod lifecycle;
mod limits;
mod processes;

/// All tests, in order.
const TESTS: &[(&str, fn())] = &[
    ("join_every_tree", processes::join_every_tree),
    ("kill_all", processes::kill_all),
    ("kill_while_frozen", processes::kill_while_frozen),
    ("freeze_and_thaw", processes::freeze_and_thaw),
    ("signal_each", processes::signal_each),
    ("exec_group_alone", processes::exec_group_alone),
    ("oom_kill_is_counted", processes::oom_kill_is_counted),
    ("stats_follow", processes::stats_follow),
    ("limits_stand", limits::limits_stand),
    ("update_both_ways", limits::update_both_ways),
    ("refused_limit_leaves_nothing", limits::refused_limit_leaves_nothing),
    ("occupied_names_the_process", lifecycle::occupied_names_the_process),
    ("unused_group_is_made_anew", lifecycle::unused_group_is_made_anew),
    ("remove_nested", lifecycle::remove_nested),
    ("remove_waits_for_the_killed", lifecycle::remove_waits_for_the_killed),
    ("sweep_parents", lifecycle::sweep_parents),
    ("missing_is_told", lifecycle::missing_is_told),
    ("devices_v1", devices::devices_v1),
    ("devices_bpf", devices::devices_bpf),
    ("no_tree_in_sight", layouts::no_tree_in_sight),
    ("pure_v2", layouts::pure_v2),
    ("pure_v1", layouts::pure_v1),
];

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    if std::env::args().any(|arg| arg == "--list") {
        return TESTS.iter().for_each(|(name, _)| println!("{name}: test"));
    }
    let selected = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()));
    let mut failed = Vec::new();
    for (name, test) in TESTS.iter().filter(|(name, _)| selected(name)) {
        let passed = std::panic::catch_unwind(test).is_ok();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        if !passed {
            failed.push(*name);
        }
    }
    if !failed.is_empty() {
        println!("failed: {}", failed.join(", "));
        std::process::exit(101);
    }
}
