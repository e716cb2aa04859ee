//! Measuring one.

use std::sync::Arc;

use cgroup::{Group, GroupPath};

use super::{
    Occasional,
    network::Interfaces,
    occasional,
    sample::{ContainerStats, SandboxSample},
    sampler::{Known, is_younger},
};
use crate::{Error, clock, container::Container, engine::Inner, error::failed, sandbox::Sandbox};

/// What is occasional is looked at again after so long, nanoseconds.
const OCCASION: u64 = 10_000_000_000;

/// Measures a container that runs; the rate is for [`Known`] to tell.
pub(super) fn container(
    engine: &Inner,
    container: &Container,
    last: Option<Arc<Occasional>>,
) -> Result<ContainerStats, Error> {
    let id = container.id();
    if !container.is_running() {
        return Err(Error::not_found("running container", id));
    }
    let status = container.status();
    let group = container.group(engine)?;
    let cgroup = group.stats().map_err(failed(format_args!("measure container {id}")))?;
    let at = clock::now();
    let occasional = match last.filter(|last| is_younger(last.at, OCCASION, at)) {
        Some(last) => last,
        None => Arc::new(occasional::look(group, status.pid, &status.resources, at)),
    };
    let writable_layer = engine.images.snapshot_usage(id);
    Ok(ContainerStats { container: status, at, cgroup, cpu_rate: None, writable_layer, occasional })
}

/// Measures a pod. `alone`: no other pod has the same cgroup above its containers.
pub(super) fn sandbox(
    engine: &Inner,
    sandbox: &Sandbox,
    interfaces: &Interfaces,
    (known, alone): (Option<&Known<SandboxSample>>, bool),
) -> (SandboxSample, Option<Arc<Group>>) {
    let group = known.and_then(|known| known.group.clone()).or_else(|| group_of(engine, sandbox)).filter(|_| alone);
    // Gone with its last container, or made again with the next: opened anew at the next look.
    let cgroup = group.as_ref().and_then(|group| group.stats().ok());
    let network = if sandbox.is_ready() { interfaces.of(engine, sandbox) } else { Vec::new() };
    let group = group.filter(|_| cgroup.is_some());
    (SandboxSample { sandbox: sandbox.status(), at: clock::now(), cgroup, cpu_rate: None, network }, group)
}

fn group_of(engine: &Inner, sandbox: &Sandbox) -> Option<Arc<Group>> {
    let path = GroupPath::parse(&engine.cgroup_of(sandbox)).ok()?;
    Group::open(&engine.trees, &path).ok().map(Arc::new)
}
