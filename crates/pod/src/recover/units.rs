//! The audit of systemd's units: registers the cgroups of running containers and pods that are not registered, and stops
//! the units of those that were removed. An earlier daemon was killed before it did that, or systemd refused it.

use std::sync::Arc;

use cgroup::GroupPath;
use monitor_api::HoldingState;

use crate::{
    CgroupDriver, Config, Error,
    node::{Registration, UnitOwner, cgroup_names, pod_limits},
    operation::blocking,
    parts::Parts,
    store::{Container, Sandbox, SandboxPhase},
};

/// Returns which units belong to an engine with this configuration.
pub(super) fn owner(config: &Config) -> UnitOwner {
    UnitOwner {
        description: format!("Pinion in {}", config.state_dir.display()),
        pod_slices: cgroup_names::pod_slices(&config.default_cgroup_parent),
    }
}

/// Requests an audit, which runs later. Without units, now and at an earlier daemon, there is nothing to do.
pub(super) async fn audit(parts: &Arc<Parts>) {
    let uses_units = |sandbox: &Arc<Sandbox>| sandbox.metadata.cgroup_driver == CgroupDriver::Systemd;
    if parts.node.driver != CgroupDriver::Systemd && !parts.registry.sandboxes().iter().any(uses_units) {
        return;
    }
    let listing = parts.node.units.begin_listing();
    let task_parts = Arc::clone(parts);
    let wanted = blocking(move || Ok::<_, Error>(wanted(&task_parts))).await;
    match wanted {
        Ok(wanted) => parts.node.units.audit(listing, wanted),
        Err(error) => tracing::warn!("list the units of pods: {error}"),
    }
}

/// Lists everything that must have a unit, the slices of pods first.
fn wanted(parts: &Parts) -> Vec<Registration> {
    let mut wanted = Vec::new();
    for sandbox in parts.registry.sandboxes() {
        if sandbox.metadata.cgroup_driver == CgroupDriver::Systemd && sandbox.record().phase != SandboxPhase::Stopped {
            wanted.extend(slice_of(parts, &sandbox));
            wanted.extend(init_of(parts, &sandbox));
        }
    }
    wanted.extend(parts.registry.containers().iter().filter_map(|container| scope_of(parts, container)));
    wanted
}

/// Returns the slice of a pod that names no parent.
fn slice_of(parts: &Parts, sandbox: &Sandbox) -> Option<Registration> {
    if sandbox.config().cgroup_parent.is_some() {
        return None;
    }
    let (record, config) = (sandbox.record(), sandbox.config());
    let resources = record.resources.as_ref().or(config.resources.as_ref());
    let overhead = record.overhead.as_ref().or(config.overhead.as_ref());
    let limits = pod_limits(resources, overhead).ok().flatten();
    let resources = limits.map(|(_, resources)| resources).unwrap_or_default();
    Some(Registration { path: GroupPath::parse(&parts.node.cgroup_of(sandbox)).ok()?, process: None, resources })
}

fn init_of(parts: &Parts, sandbox: &Sandbox) -> Option<Registration> {
    let process = parts.monitor.custody().process(sandbox.id().as_str(), &HoldingState::PodInit)?;
    let path = GroupPath::parse(&parts.node.init_cgroup_of(sandbox)).ok()?;
    Some(Registration { path, process: Some(process), resources: oci::Resources::default() })
}

/// Returns the scope of a container that has a process.
fn scope_of(parts: &Parts, container: &Container) -> Option<Registration> {
    if !container.has_streams() || !container.metadata.cgroup.ends_with(".scope") {
        return None;
    }
    let record = container.record();
    let path = GroupPath::parse(&container.metadata.cgroup).ok()?;
    let spec = container.spec(&parts.registry.records).ok()?;
    let created = spec.linux.and_then(|linux| linux.resources).unwrap_or_default();
    let resources = match record.resources.clone() {
        Some(update) => Registration::updated(created, update),
        None => created,
    };
    Some(Registration { path, process: Some((record.pid, record.start_time)), resources })
}
