//! Pods whose record cannot be read: they are listed, are not ready, and can be removed with everything that belongs to
//! them.

use std::{collections::BTreeMap, sync::Arc};

use network::PodNetworks;

use crate::{
    CgroupDriver, CgroupNames, Error, Name, PidMode, SandboxConfig, SandboxId, SharedMode, clock,
    store::{SandboxMetadata, SandboxPhase, SandboxRecord},
};

/// Annotation of a broken pod: the reason.
const ANNOTATION: &str = "io.pinion.broken";

/// Returns a substitute for the record. It has every resource that a pod can have, so that the removal covers all; its
/// cgroups are named by the driver that is in use.
pub(crate) fn broken(id: &SandboxId, why: &Error, cgroup_driver: CgroupDriver) -> (SandboxMetadata, SandboxRecord) {
    let config = SandboxConfig {
        name: Name { name: format!("broken-{id:.12}"), ..Name::default() },
        hostname: String::new(),
        log_directory: None,
        dns: None,
        ports: Vec::new(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::from([(ANNOTATION.to_owned(), why.message.clone())]),
        cgroup_parent: None,
        sysctls: BTreeMap::new(),
        network: SharedMode::Pod,
        named: PodNetworks::default(),
        ipc: SharedMode::Pod,
        pid: PidMode::Pod,
        user_namespace: None,
        privileged: false,
        runtime_handler: String::new(),
        resources: None,
        overhead: None,
    };
    let metadata = SandboxMetadata {
        id: id.clone(),
        config: Arc::new(config),
        created_at: clock::now(),
        cgroup_driver,
        cgroup_names: CgroupNames::default(),
        restored: false,
    };
    (metadata, broken_status(why))
}

/// Returns a substitute for the status of a pod, if only that cannot be read.
pub(crate) fn broken_status(why: &Error) -> SandboxRecord {
    let mut record = SandboxRecord::reserved();
    record.phase = SandboxPhase::Networked;
    record.broken = Some(why.message.clone());
    record.enter(&format!("its record is broken: {}; remove the pod", why.message));
    record
}
