//! A container whose record cannot be read. It is listed, with an unknown state while it runs, and can be stopped and
//! removed with all its resources.

use std::{collections::BTreeMap, sync::Arc};

use monitor_api::Holding;

use crate::{
    ContainerConfig, ContainerId, Error, GroupsPolicy, PidMode, SandboxId, SeccompChoice, Security, UserChoice, clock,
    store::{ContainerMetadata, ContainerPhase, ContainerRecord, unknown_exit},
};

const SIGTERM: i32 = 15;

/// Returns substitutes for the metadata and the record. `holding` is what the monitor knows about the container.
pub(crate) fn broken(id: &ContainerId, holding: Option<&Holding>, why: &Error) -> (ContainerMetadata, ContainerRecord) {
    let sandbox = holding.and_then(|holding| SandboxId::parse(&holding.container.sandbox).ok());
    let metadata = ContainerMetadata {
        id: id.clone(),
        sandbox: sandbox.unwrap_or_else(SandboxId::unknown),
        config: Arc::new(config(id)),
        image_id: String::new(),
        created_at: clock::now(),
        log_path: None,
        cgroup: holding.map(|holding| holding.container.cgroup.clone()).unwrap_or_default(),
        stop_signal: SIGTERM,
        runtime: None,
        shim: None,
    };
    let mut record = ContainerRecord { broken: Some(why.message.clone()), ..ContainerRecord::default() };
    match holding {
        Some(_) => record.phase = ContainerPhase::Created,
        None => record.mark_exited(&unknown_exit()),
    }
    record.enter(&format!("its record is broken: {}; remove the container", why.message));
    (metadata, record)
}

fn config(id: &ContainerId) -> ContainerConfig {
    ContainerConfig {
        name: format!("broken-{id:.12}"),
        attempt: 0,
        image: String::new(),
        user_specified_image: String::new(),
        command: Vec::new(),
        args: Vec::new(),
        working_dir: None,
        env: Vec::new(),
        volumes: Vec::new(),
        devices: Vec::new(),
        cdi_devices: Vec::new(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        log_path: None,
        stdin: false,
        stdin_once: false,
        tty: false,
        resources: oci::Resources::default(),
        oom_score_adj: 0,
        security: Security {
            user: UserChoice::Image,
            supplemental_groups: Vec::new(),
            groups_policy: GroupsPolicy::Merge,
            privileged: false,
            readonly_rootfs: false,
            no_new_privileges: false,
            add_capabilities: Vec::new(),
            drop_capabilities: Vec::new(),
            add_ambient_capabilities: Vec::new(),
            seccomp: SeccompChoice::RuntimeDefault,
            apparmor: None,
            selinux_label: None,
            masked_paths: None,
            readonly_paths: None,
            pid: PidMode::Container,
            network: None,
            ipc: None,
            user_namespace: None,
            target: None,
        },
        stop_signal: None,
    }
}
