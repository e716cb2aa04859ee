mod bad_input;
mod cgroup_view;
mod descriptors;
mod exec;
mod hooks;
mod killed;
mod lifecycle;
mod limits;
mod shared_mounts;
mod tell;
mod terminal;

/// A case: its name and what it does.
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
        tell::CASES,
    ];
    groups.into_iter().flatten().copied()
}
