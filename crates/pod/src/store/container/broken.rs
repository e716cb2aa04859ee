//! A container whose record cannot be read. It is listed, with an unknown state while it runs, and can be stopped and
//! removed with all its resources.

use std::sync::Arc;

use monitor_api::Holding;

use crate::{
    ContainerConfig, ContainerId, Error, SandboxId, clock,
    store::{ContainerMetadata, ContainerPhase, ContainerRecord, unknown_exit},
};

const SIGTERM: i32 = 15;

/// Returns substitutes for the metadata and the record. `holding` is what the monitor knows about the container.
pub(crate) fn broken(id: &ContainerId, holding: Option<&Holding>, why: &Error) -> (ContainerMetadata, ContainerRecord) {
    let sandbox = holding.and_then(|holding| SandboxId::parse(&holding.container.sandbox).ok());
    let metadata = ContainerMetadata {
        id: id.clone(),
        sandbox: sandbox.unwrap_or_else(SandboxId::unknown),
        config: Arc::new(ContainerConfig::minimal(format!("broken-{id:.12}"))),
        image_id: String::new(),
        created_at: clock::now(),
        log_path: None,
        cgroup: holding.map(|holding| holding.container.cgroup.clone()).unwrap_or_default(),
        stop_signal: SIGTERM,
        runtime: None,
        shim: None,
        vm: None,
    };
    let mut record = ContainerRecord { broken: Some(why.message.clone()), ..ContainerRecord::default() };
    match holding {
        Some(_) => record.phase = ContainerPhase::Created,
        None => record.mark_exited(&unknown_exit()),
    }
    record.enter(&format!("its record is broken: {}; remove the container", why.message));
    (metadata, record)
}
