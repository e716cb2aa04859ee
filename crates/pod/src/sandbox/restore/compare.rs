//! Whether the configurations of a request are those that a checkpoint was made with, as far as they describe what it contains.

use std::collections::{BTreeMap, BTreeSet};

use oci::Spec;
use serde::Serialize;

use crate::{
    ContainerConfig, Error, SandboxConfig, Security,
    sandbox::saved_pod::{Description, SavedContainer},
};

fn refuse(field: &str, reason: &str) -> Error {
    Error::invalid(format!("{field}: {reason}"))
}

/// Returns an error unless both values are equal. Configurations do not implement `PartialEq`.
fn equal<T: Serialize>(field: &str, requested: &T, saved: &T) -> Result<(), Error> {
    match serde_json::to_value(requested).ok() == serde_json::to_value(saved).ok() {
        true => Ok(()),
        false => Err(refuse(field, "differs from that of the pod that was saved")),
    }
}

pub(super) fn check_pod(description: &Description, config: &SandboxConfig) -> Result<(), Error> {
    let saved = &description.pod;
    equal("runtime_handler", &config.runtime_handler, &description.handler)?;
    let at = "config.linux.security_context.namespace_options";
    equal(&format!("{at}.network"), &config.network, &saved.network)?;
    equal(&format!("{at}.ipc"), &config.ipc, &saved.ipc)?;
    equal(&format!("{at}.pid"), &config.pid, &saved.pid)?;
    equal("config.linux.security_context.privileged", &config.privileged, &saved.privileged)?;
    equal("config.linux.sysctls", &config.sysctls, &saved.sysctls)
}

/// Finds the requested configuration of each saved container, by its name. Returns them with the numbers of the containers.
pub(super) fn pair(
    description: &Description,
    requested: Vec<ContainerConfig>,
) -> Result<Vec<(usize, &SavedContainer, ContainerConfig)>, Error> {
    let field = "container_configs";
    let mut by_name = BTreeMap::new();
    for config in requested {
        if let Some(twice) = by_name.insert(config.name.clone(), config) {
            return Err(refuse(field, &format!("container {:?} is listed twice", twice.name)));
        }
    }
    let mut pairs = Vec::new();
    for (index, saved) in description.containers.iter().enumerate() {
        let name = &saved.config.name;
        let config = by_name.remove(name);
        let config =
            config.ok_or_else(|| refuse(field, &format!("container {name:?} of the checkpoint is missing")))?;
        pairs.push((index, saved, config));
    }
    match by_name.first_key_value() {
        Some((name, _)) => Err(refuse(field, &format!("the checkpoint has no container {name:?}"))),
        None => Ok(pairs),
    }
}

pub(super) fn check_container(saved: &SavedContainer, config: &ContainerConfig, image_id: &str) -> Result<(), Error> {
    let check = || {
        if image_id != saved.image_id {
            return Err(refuse("image", "is not the image that the container was created from"));
        }
        let before = &saved.config;
        equal("command", &config.command, &before.command)?;
        equal("args", &config.args, &before.args)?;
        equal("working_dir", &config.working_dir, &before.working_dir)?;
        let environment = |config: &ContainerConfig| config.env.iter().cloned().collect::<BTreeSet<_>>();
        equal("envs", &environment(config), &environment(before))?;
        equal("stdin", &(config.stdin, config.stdin_once), &(before.stdin, before.stdin_once))?;
        equal("tty", &config.tty, &before.tty)?;
        // The id of another container is a new one.
        let security = |config: &ContainerConfig| Security { target: None, ..config.security.clone() };
        equal("linux.security_context", &security(config), &security(before))?;
        let mounts = |config: &ContainerConfig| {
            let volumes = config.volumes.iter();
            volumes.map(|volume| (volume.container_path.clone(), volume.readonly)).collect::<Vec<_>>()
        };
        equal("mounts", &mounts(config), &mounts(before))
    };
    check().map_err(|error: Error| error.during(format_args!("container {:?}", config.name)))
}

/// Refuses a container whose mounts have other numbers than the saved ones: the guest would have them in each other's place.
pub(super) fn check_mounts(saved: &SavedContainer, spec: &Spec) -> Result<(), Error> {
    match spec.mounts.iter().map(|mount| &mount.destination).eq(&saved.mounts) {
        true => Ok(()),
        false => Err(refuse("mounts", "they are not those of the container that was saved")),
    }
}
