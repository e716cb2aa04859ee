//! Tests of groups on the real kernel, below `/pinion-test-<pid>` in every tree. They need root and cgroup trees at
//! `/sys/fs/cgroup`: v1 trees with a v2 tree next to them, or only the v2 tree under systemd.
//!
//! Arguments select the tests whose names contain one of them.

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

/// Tests for every layout.
const ANYWHERE: &[Test] = &[
    ("join_every_tree", processes::join_every_tree),
    ("kill_all", processes::kill_all),
    ("kill_while_frozen", processes::kill_while_frozen),
    ("freeze_and_thaw", processes::freeze_and_thaw),
    ("signal_reaches_all_processes", processes::signal_reaches_all_processes),
    ("exec_group", processes::exec_group),
    ("oom_kill_is_counted", processes::oom_kill_is_counted),
    ("stats_reflect_usage", processes::stats_reflect_usage),
    ("occupied_group_error_names_the_process", lifecycle::occupied_group_error_names_the_process),
    ("remove_nested", lifecycle::remove_nested),
    ("removal_is_one_pass_in_bounded_steps", lifecycle::removal_is_one_pass_in_bounded_steps),
    ("nesting_is_limited", lifecycle::nesting_is_limited),
    ("remove_waits_for_killed_processes", lifecycle::remove_waits_for_killed_processes),
    ("remove_empty_parents", lifecycle::remove_empty_parents),
    ("missing_group_is_reported", lifecycle::missing_group_is_reported),
    ("devices", devices::devices),
    ("trees_are_used_by_descriptor", layouts::trees_are_used_by_descriptor),
    ("user_without_delegation", users::user_without_delegation),
];

/// Tests for controllers in v1 trees with a v2 tree next to them.
const HYBRID: &[Test] = &[
    ("limits_are_written", limits::limits_are_written),
    ("limits_are_raised_and_lowered", limits::limits_are_raised_and_lowered),
    ("refused_limit_leaves_no_group", limits::refused_limit_leaves_no_group),
    ("complete_in_every_tree", processes::complete_in_every_tree),
    ("unused_group_is_created_again", lifecycle::unused_group_is_created_again),
    ("kill_while_frozen_in_v1", processes::kill_while_frozen_in_v1),
    ("killed_descendants_die_after_thaw", processes::killed_descendants_die_after_thaw),
    ("thaw_descendants_is_one_pass_in_bounded_steps", lifecycle::thaw_descendants_is_one_pass_in_bounded_steps),
    ("removal_thaws_descendants", processes::removal_thaws_descendants),
    ("devices_bpf", devices::devices_bpf),
    ("pure_v2", layouts::pure_v2),
    ("pure_v1", layouts::pure_v1),
];

/// Tests for the v2 tree with all controllers, under systemd (`tests/vm`).
const V2: &[Test] = &[
    ("v2::limits_are_written", v2::limits_are_written),
    ("v2::limits_are_raised_and_lowered", v2::limits_are_raised_and_lowered),
    ("v2::update_is_checked", v2::update_is_checked),
    ("v2::refused_limit_leaves_no_group", v2::refused_limit_leaves_no_group),
    ("v2::held_controllers_stay_enabled", v2::held_controllers_stay_enabled),
    (
        "v2::limits_are_written_although_controllers_are_disabled",
        v2::limits_are_written_although_controllers_are_disabled,
    ),
    ("v2::process_in_parent_is_named", v2::process_in_parent_is_named),
    ("v2::unused_group_is_created_again", v2::unused_group_is_created_again),
    ("users::user_with_delegation", users::user_with_delegation),
    ("systemd::scope_has_its_limits", systemd::scope_has_its_limits),
    ("systemd::update_survives_a_reload", systemd::update_survives_a_reload),
    ("systemd::devices_are_denied", systemd::devices_are_denied),
    ("systemd::annotations_reach_the_unit", systemd::annotations_reach_the_unit),
    ("systemd::failures_leave_no_scope", systemd::failures_leave_no_scope),
    ("systemd::stop_kills_all_processes", systemd::stop_kills_all_processes),
];

/// Tests for v1 trees under systemd (`tests/vm`).
const V1_SYSTEMD: &[Test] = &[
    ("systemd::v1_scope_has_its_limits", systemd::v1_scope_has_its_limits),
    ("systemd::v1_update_survives_a_reload", systemd::v1_update_survives_a_reload),
    ("systemd::annotations_reach_the_unit", systemd::annotations_reach_the_unit),
    ("systemd::stop_kills_all_processes", systemd::stop_kills_all_processes),
];

/// Tests without systemd.
const NO_SYSTEMD: &[Test] = &[("systemd::missing_systemd_is_reported", systemd::missing_systemd_is_reported)];

fn tests() -> impl Iterator<Item = &'static Test> {
    let v2 = cgroup::Hierarchies::open().expect("open the cgroup trees").layout() == cgroup::Layout::V2;
    let systemd = std::path::Path::new("/run/systemd/system").exists();
    let by_layout = if v2 { V2 } else { HYBRID };
    let by_init = match systemd {
        true if v2 => &[],
        true => V1_SYSTEMD,
        false => NO_SYSTEMD,
    };
    ANYWHERE.iter().chain(by_layout).chain(by_init)
}

fn main() {
    testbed::remove_stale_groups("pinion-test-");
    testbed::run_cases(tests().copied(), |test| test()).exit()
}
