//! Bounds of what plugins set for one container. Merging compares entries, so it is done only with a bounded number.

use super::Unusable;
use crate::messages::{Adjustment, Hooks, Resources, Seccomp};

/// Most entries of one list or map that all plugins together may set for a container.
const ENTRIES_MAX: usize = 4096;

/// Fails if a list or map of a response, together with what was collected before, is too long.
pub(super) fn check(plugin: &str, collected: &Adjustment, new: &Adjustment) -> Result<(), Unusable> {
    let sizes = sizes(collected).into_iter().zip(sizes(new));
    within(plugin, sizes.map(|((what, collected), (_, new))| (what, collected + new)))
}

/// Fails if a list or map of resources is too long.
pub(super) fn check_resources(plugin: &str, resources: &Resources) -> Result<(), Unusable> {
    within(plugin, resource_sizes(Some(resources)))
}

fn within(plugin: &str, sizes: impl IntoIterator<Item = (&'static str, usize)>) -> Result<(), Unusable> {
    match sizes.into_iter().find(|(_, count)| *count > ENTRIES_MAX) {
        Some((what, count)) => Err(Unusable::TooLong { plugin: plugin.to_owned(), what, count }),
        None => Ok(()),
    }
}

fn sizes(adjustment: &Adjustment) -> Vec<(&'static str, usize)> {
    let linux = adjustment.linux.as_ref();
    let mut sizes = vec![
        ("annotations", adjustment.annotations.len()),
        ("mounts", adjustment.mounts.len()),
        ("environment variables", adjustment.env.len()),
        ("arguments", adjustment.args.len()),
        ("limits", adjustment.rlimits.len()),
        ("CDI devices", adjustment.cdi_devices.len()),
        ("hooks", adjustment.hooks.as_ref().map_or(0, hooks)),
        ("devices", linux.map_or(0, |linux| linux.devices.len())),
        ("namespaces", linux.map_or(0, |linux| linux.namespaces.len())),
        ("sysctls", linux.map_or(0, |linux| linux.sysctl.len())),
        ("network devices", linux.map_or(0, |linux| linux.net_devices.len())),
        ("rules of seccomp", linux.and_then(|linux| linux.seccomp_policy.as_ref()).map_or(0, seccomp)),
    ];
    sizes.extend(resource_sizes(linux.and_then(|linux| linux.resources.as_ref())));
    sizes
}

fn resource_sizes(resources: Option<&Resources>) -> [(&'static str, usize); 3] {
    [
        ("limits of huge pages", resources.map_or(0, |resources| resources.hugepage_limits.len())),
        ("files of cgroup v2", resources.map_or(0, |resources| resources.unified.len())),
        ("device rules", resources.map_or(0, |resources| resources.devices.len())),
    ]
}

fn hooks(hooks: &Hooks) -> usize {
    let lists = [
        &hooks.prestart,
        &hooks.create_runtime,
        &hooks.create_container,
        &hooks.start_container,
        &hooks.poststart,
        &hooks.poststop,
    ];
    lists.iter().map(|list| list.len()).sum()
}

fn seccomp(policy: &Seccomp) -> usize {
    policy.syscalls.iter().map(|rule| 1 + rule.names.len() + rule.args.len()).sum()
}
