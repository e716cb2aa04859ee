//! A pod whose record cannot be read: it is in lists, not ready, and can be removed with all that is behind it.

use std::{collections::BTreeMap, sync::Arc};

use super::{Name, PidMode, SandboxConfig, SandboxMetadata, SandboxPhase, SandboxRecord, SharedMode};
use crate::{Error, clock};

/// On such a pod: why.
const ANNOTATION: &str = "io.pinion.broken";

/// What stands for the record. It has all that a pod can have, so that its removal looks for all.
pub(crate) fn broken(id: &str, why: &Error) -> (SandboxMetadata, SandboxRecord) {
    let config = SandboxConfig {
        name: Name { name: format!("broken-{}", id.get(..12).unwrap_or(id)), ..Name::default() },
        hostname: String::new(),
        log_directory: None,
        dns: None,
        ports: Vec::new(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::from([(ANNOTATION.to_owned(), why.message.clone())]),
        cgroup_parent: None,
        sysctls: BTreeMap::new(),
        network: SharedMode::Pod,
        ipc: SharedMode::Pod,
        pid: PidMode::Pod,
        user_namespace: None,
        privileged: false,
        runtime_handler: String::new(),
        resources: None,
        overhead: None,
    };
    let metadata = SandboxMetadata { id: id.to_owned(), config: Arc::new(config), created_at: clock::now() };
    (metadata, broken_status(why))
}

/// Of a pod of which only the status cannot be read.
pub(crate) fn broken_status(why: &Error) -> SandboxRecord {
    let mut record = SandboxRecord::reserved();
    record.phase = SandboxPhase::Networked;
    record.broken = Some(why.message.clone());
    record.enter(&format!("its record is broken: {}; remove the pod", why.message));
    record
}
