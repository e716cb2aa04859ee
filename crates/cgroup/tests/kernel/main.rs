//! Groups on the real kernel: `/pinion-test-<pid>` in every tree. Needs root and cgroup trees at `/sys/fs/cgroup`: v1
//! trees with a v2 tree beside them, or the v2 tree alone under systemd.
//!
//! Names given as arguments select the tests that contain one of them.

mod devices;
mod fixture;
mod layouts;
mod lifecycle;
mod limits;
mod processes;
mod systemd;
mod users;
mod v2;

type Test = (&'static str, fn());

/// Whatever trees are mounted.
const ANYWHERE: &[Test] = &[
    ("join_every_tree", processes::join_every_tree),
    ("kill_all", processes::kill_all),
    ("kill_while_frozen", processes::kill_while_frozen),
    ("freeze_and_thaw", processes::freeze_and_thaw),
    ("signal_each", processes::signal_each),
    ("exec_group_alone", processes::exec_group_alone),
    ("oom_kill_is_counted", processes::oom_kill_is_counted),
    ("stats_follow", processes::stats_follow),
    ("occupied_names_the_process", lifecycle::occupied_names_the_process),
    ("remove_nested", lifecycle::remove_nested),
    ("removal_is_one_pass_in_bounded_steps", lifecycle::removal_is_one_pass_in_bounded_steps),
    ("nesting_is_limited", lifecycle::nesting_is_limited),
    ("remove_waits_for_the_killed", lifecycle::remove_waits_for_the_killed),
    ("sweep_parents", lifecycle::sweep_parents),
    ("missing_is_told", lifecycle::missing_is_told),
    ("devices", devices::devices),
    ("no_tree_in_sight", layouts::no_tree_in_sight),
    ("user_without_a_group", users::user_without_a_group),
];

/// The controllers in v1 trees, and a v2 tree beside them.
const HYBRID: &[Test] = &[
    ("limits_stand", limits::limits_stand),
    ("update_both_ways", limits::update_both_ways),
    ("refused_limit_leaves_nothing", limits::refused_limit_leaves_nothing),
    ("unused_group_is_made_anew", lifecycle::unused_group_is_made_anew),
    ("kill_while_frozen_by_others", processes::kill_while_frozen_by_others),
    ("what_is_frozen_below_dies_after_a_thaw", processes::what_is_frozen_below_dies_after_a_thaw),
    ("thaw_below_is_one_pass_in_bounded_steps", lifecycle::thaw_below_is_one_pass_in_bounded_steps),
    ("removal_thaws_what_was_frozen_below", processes::removal_thaws_what_was_frozen_below),
    ("devices_bpf", devices::devices_bpf),
    ("pure_v2", layouts::pure_v2),
    ("pure_v1", layouts::pure_v1),
];

/// The v2 tree with all controllers, under systemd (`tests/vm`).
const V2: &[Test] = &[
    ("v2::limits_stand", v2::limits_stand),
    ("v2::update_both_ways", v2::update_both_ways),
    ("v2::update_is_checked", v2::update_is_checked),
    ("v2::refused_limit_leaves_nothing", v2::refused_limit_leaves_nothing),
    ("v2::a_process_in_the_way_is_named", v2::a_process_in_the_way_is_named),
    ("v2::unused_group_is_made_anew", v2::unused_group_is_made_anew),
    ("users::user_with_a_group", users::user_with_a_group),
    ("systemd::scope_has_its_limits", systemd::scope_has_its_limits),
    ("systemd::update_survives_a_reload", systemd::update_survives_a_reload),
    ("systemd::devices_are_denied", systemd::devices_are_denied),
    ("systemd::annotations_reach_the_unit", systemd::annotations_reach_the_unit),
    ("systemd::failures_leave_nothing", systemd::failures_leave_nothing),
    ("systemd::stop_ends_all", systemd::stop_ends_all),
];

/// v1 trees under systemd (`tests/vm`).
const V1_SYSTEMD: &[Test] = &[
    ("systemd::v1_scope_has_its_limits", systemd::v1_scope_has_its_limits),
    ("systemd::v1_update_survives_a_reload", systemd::v1_update_survives_a_reload),
    ("systemd::annotations_reach_the_unit", systemd::annotations_reach_the_unit),
    ("systemd::stop_ends_all", systemd::stop_ends_all),
];

/// Another init than systemd.
const NO_SYSTEMD: &[Test] = &[("systemd::none_is_told", systemd::none_is_told)];

fn tests() -> impl Iterator<Item = &'static Test> {
    let v2 = cgroup::Hierarchies::open().expect("cgroup trees").layout() == cgroup::Layout::V2;
    let systemd = std::path::Path::new("/run/systemd/system").exists();
    let here = if v2 { V2 } else { HYBRID };
    let by_init = match systemd {
        true if v2 => &[],
        true => V1_SYSTEMD,
        false => NO_SYSTEMD,
    };
    ANYWHERE.iter().chain(here).chain(by_init)
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    if std::env::args().any(|arg| arg == "--list") {
        return tests().for_each(|(name, _)| println!("{name}: test"));
    }
    let selected = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()));
    let mut failed = Vec::new();
    for (name, test) in tests().filter(|(name, _)| selected(name)) {
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
