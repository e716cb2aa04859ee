mod bad_input;
mod cgroup_view;
mod descriptors;
mod exec;
mod features;
mod hooks;
mod killed;
mod lifecycle;
mod limits;
mod shared_mounts;
mod terminal;

/// A test case: its name and its function.
pub(crate) type Case = (&'static str, fn());

pub(crate) fn all() -> impl Iterator<Item = Case> {
    let groups: [&[Case]; 11] = [
        lifecycle::CASES,
        bad_input::CASES,
        descriptors::CASES,
        hooks::CASES,
        terminal::CASES,
        killed::CASES,
        shared_mounts::CASES,
        exec::CASES,
        limits::CASES,
        cgroup_view::CASES,
        features::CASES,
    ];
    groups.into_iter().flatten().copied()
}
