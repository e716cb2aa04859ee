//! Measurement of one pod or container.

use std::sync::Arc;

use cgroup::{Group, GroupPath};

use super::{
    ExpensiveStats, expensive,
    network::Interfaces,
    sample::{ContainerStats, SandboxSample},
    sampler::{KnownSample, is_younger},
};
use crate::{Error, clock, container::Container, engine::Inner, error::failed, sandbox::Sandbox};

/// Interval between two reads of the expensive statistics, in nanoseconds.
const EXPENSIVE_INTERVAL: u64 = 10_000_000_000;

/// Measures a running container, without the CPU rate, which [`KnownSample`] computes.
pub(super) fn container(
    engine: &Inner,
    container: &Container,
    last: Option<Arc<ExpensiveStats>>,
) -> Result<ContainerStats, Error> {
    let id = container.id();
    if !container.is_running() {
        return Err(Error::not_found("running container", id));
    }
    let status = container.status();
    let group = container.group(engine)?;
    let cgroup = group.stats().map_err(failed(format_args!("measure container {id}")))?;
    let at = clock::now();
    let expensive = match last.filter(|last| is_younger(last.at, EXPENSIVE_INTERVAL, at)) {
        Some(last) => last,
        None => Arc::new(expensive::read(group, status.pid, &status.resources, at)),
    };
    let writable_layer = engine.images.snapshot_usage(id);
    Ok(ContainerStats { container: status, at, cgroup, cpu_rate: None, writable_layer, expensive })
}

/// Measures a pod. `exclusive`: no other pod has the same parent cgroup.
pub(super) fn sandbox(
    engine: &Inner,
    sandbox: &Sandbox,
    interfaces: &Interfaces,
    (known, exclusive): (Option<&KnownSample<SandboxSample>>, bool),
) -> (SandboxSample, Option<Arc<Group>>) {
    let known_group = known.and_then(|known| known.group.clone());
    let group = known_group.or_else(|| group_of(engine, sandbox)).filter(|_| exclusive);
    // The cgroup may have been removed with the last container, or recreated with the next one: then it is opened again
    // at the next measurement.
    let cgroup = group.as_ref().and_then(|group| group.stats().ok());
    let network = if sandbox.is_ready() { interfaces.counters(engine, sandbox) } else { Vec::new() };
    let group = group.filter(|_| cgroup.is_some());
    (SandboxSample { sandbox: sandbox.status(), at: clock::now(), cgroup, cpu_rate: None, network }, group)
}

fn group_of(engine: &Inner, sandbox: &Sandbox) -> Option<Arc<Group>> {
    let path = GroupPath::parse(&engine.cgroup_of(sandbox)).ok()?;
    Group::open(&engine.trees, &path).ok().map(Arc::new)
}
