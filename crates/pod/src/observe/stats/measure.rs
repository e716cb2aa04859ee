//! Measurement of one pod or container.

use std::sync::Arc;

use cgroup::{Group, GroupPath};

use super::{
    expensive, guest,
    known_sample::{KnownSample, is_younger},
    network::Interfaces,
    subjects::Subjects,
};
use crate::{
    ContainerStats, Error, ExpensiveStats, SandboxSample, clock,
    error::failed,
    store::{Container, Sandbox},
};

/// Interval between two reads of the expensive statistics, in nanoseconds.
const EXPENSIVE_INTERVAL: u64 = 10_000_000_000;

/// Measures a running container, without the CPU rate, which [`KnownSample`] computes.
pub(super) fn container(
    subjects: &Subjects,
    container: &Container,
    last: Option<Arc<ExpensiveStats>>,
) -> Result<ContainerStats, Error> {
    let id = container.id();
    if !container.is_running() {
        return Err(Error::not_found("running container", id.as_str()));
    }
    let status = container.status();
    let writable_layer = subjects.node.images.snapshot_usage(id.as_str());
    if guest::is_in_guest(container) {
        let (at, cgroup, expensive) = guest::last(container)?;
        let expensive = Arc::new(expensive);
        return Ok(ContainerStats { container: status, at, cgroup, cpu_rate: None, writable_layer, expensive });
    }
    let group = container.group(&subjects.node.trees)?;
    let cgroup = group.stats().map_err(failed(format_args!("measure container {id}")))?;
    let at = clock::now();
    let expensive = match last.filter(|last| is_younger(last.at, EXPENSIVE_INTERVAL, at)) {
        Some(last) => last,
        None => Arc::new(expensive::read(group, status.pid, &status.resources, at)),
    };
    Ok(ContainerStats { container: status, at, cgroup, cpu_rate: None, writable_layer, expensive })
}

/// Measures a pod. `exclusive`: no other pod has the same parent cgroup.
pub(super) fn sandbox(
    subjects: &Subjects,
    sandbox: &Sandbox,
    interfaces: &Interfaces,
    (known, exclusive): (Option<&KnownSample<SandboxSample>>, bool),
) -> (SandboxSample, Option<Arc<Group>>) {
    let known_group = known.and_then(|known| known.group.clone());
    let group = known_group.or_else(|| group_of(subjects, sandbox)).filter(|_| exclusive);
    // The cgroup may have been removed with the last container, or recreated with the next one: then it is opened again
    // at the next measurement.
    let cgroup = group.as_ref().and_then(|group| group.stats().ok());
    let network = if sandbox.is_ready() { interfaces.counters(subjects, sandbox) } else { Vec::new() };
    let group = group.filter(|_| cgroup.is_some());
    (SandboxSample { sandbox: sandbox.status(), at: clock::now(), cgroup, cpu_rate: None, network }, group)
}

fn group_of(subjects: &Subjects, sandbox: &Sandbox) -> Option<Arc<Group>> {
    let path = GroupPath::parse(&subjects.node.cgroup_of(sandbox)).ok()?;
    Group::open(&subjects.node.trees, &path).ok().map(Arc::new)
}
