//! A pod in the directory of a checkpoint.
//!
//! ```text
//! checkpoint.json   the description, written last: without it, the checkpoint is incomplete
//! state             memory and devices of the virtual machine, as QEMU writes them
//! layer-N.tar       writable layer of container N, in the format of image layers
//! ```
//! All files have secrets of the pod, and the mode 0600. QEMU trusts the state that it loads; this program does not trust the rest.

mod directory;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use vm::qemu::Accelerator;

use crate::{ContainerConfig, ContainerId, Error, SandboxConfig};

pub(super) use directory::{Output, Source};

/// Format of the description.
const VERSION: u32 = 1;
/// Name of the description.
const DESCRIPTION: &str = "checkpoint.json";
/// Name of the state of the virtual machine.
pub(super) const STATE: &str = "state";
/// Largest description, in bytes.
const DESCRIPTION_MAX: u64 = 16 << 20;
/// Most containers of a checkpoint, exited ones included.
const CONTAINERS_MAX: usize = 1024;
/// Most interfaces of a pod.
const INTERFACES_MAX: usize = 32;
/// Least version of QEMU that can save a file system.
pub(super) const QEMU_MIN: (u32, u32) = (8, 2);

/// Contents of `checkpoint.json`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Description {
    version: u32,
    /// Version of the contract with the agent in the guest.
    agent: u32,
    pub(super) handler: String,
    pub(super) machine: Machine,
    pub(super) pod: SandboxConfig,
    /// The containers that were running.
    pub(super) containers: Vec<SavedContainer>,
    /// Ids of containers that the guest has, too: they had exited.
    pub(super) exited: Vec<ContainerId>,
}

/// What the virtual machine monitor that loads the state must have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Machine {
    /// Type of the machine with its version.
    pub(super) kind: String,
    /// Version of QEMU that saved it.
    pub(super) qemu: (u32, u32),
    /// Whether KVM ran it.
    pub(super) kvm: bool,
    /// Memory of the boot, and what could be plugged in addition and was, in bytes.
    pub(super) memory: u64,
    pub(super) pluggable: u64,
    pub(super) plugged: u64,
    /// Processors of the boot, at present and at most.
    pub(super) cpus: u32,
    pub(super) cpus_present: u32,
    pub(super) cpus_max: u32,
    /// Numbers of the ports by their names.
    pub(super) ports: BTreeMap<String, u32>,
    /// Names and hardware addresses of the interfaces, in the order in which they were plugged.
    pub(super) interfaces: Vec<(String, [u8; 6])>,
}

/// A container in a checkpoint.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedContainer {
    /// Its id in the guest.
    pub(super) guest_id: ContainerId,
    pub(super) config: ContainerConfig,
    pub(super) image_id: String,
    /// Where its mounts are, in their order: the guest has them by their numbers.
    pub(super) mounts: Vec<String>,
}

/// Returns the name of the file with the writable layer of a container.
pub(super) fn layer(index: usize) -> String {
    format!("layer-{index}.tar")
}

impl Machine {
    pub(super) fn accelerator(&self) -> Accelerator {
        if self.kvm { Accelerator::Kvm } else { Accelerator::Tcg }
    }

    /// Refuses what no checkpoint has. What the virtual machine monitor refuses is not repeated here.
    fn check(&self) -> Result<(), Error> {
        let digits = |text: &str| !text.is_empty() && text.len() <= 3 && text.bytes().all(|byte| byte.is_ascii_digit());
        let version = self.kind.strip_prefix("pc-i440fx-").and_then(|version| version.split_once('.'));
        let names: BTreeSet<&str> = self.interfaces.iter().map(|(name, _)| name.as_str()).collect();
        let refused = [
            (!version.is_some_and(|(major, minor)| digits(major) && digits(minor)), "the type of the machine"),
            (self.memory.checked_add(self.pluggable).is_none() || self.plugged > self.pluggable, "its memory"),
            (self.cpus_present > self.cpus_max || !(1..=self.cpus_present).contains(&self.cpus), "its processors"),
            (self.ports.len() >= vm::qemu::DEFAULT_PORTS as usize, "its ports"),
            (self.interfaces.len() > INTERFACES_MAX || names.len() != self.interfaces.len(), "its interfaces"),
        ];
        match refused.iter().find(|(is_refused, _)| *is_refused) {
            Some((_, what)) => Err(invalid(format_args!("{what}"))),
            None => Ok(()),
        }
    }
}

impl Description {
    pub(super) fn new(
        handler: String,
        machine: Machine,
        pod: SandboxConfig,
        containers: Vec<SavedContainer>,
        exited: Vec<ContainerId>,
    ) -> Self {
        Self { version: VERSION, agent: agent_api::VERSION, handler, machine, pod, containers, exited }
    }

    /// Writes it as the last file of a checkpoint. Blocks.
    pub(super) fn write(&self, output: &Output) -> Result<(), Error> {
        let text = serde_json::to_vec(self).map_err(crate::error::failed("write the description of the checkpoint"))?;
        match text.len() as u64 <= DESCRIPTION_MAX {
            true => output.complete(DESCRIPTION, &text),
            false => {
                Err(Error::invalid(format!("the configurations of the pod are longer than {DESCRIPTION_MAX} bytes")))
            }
        }
    }

    /// Reads that of a checkpoint. Blocks.
    pub(super) fn read(source: &Source) -> Result<Self, Error> {
        let text = source.read(DESCRIPTION, DESCRIPTION_MAX)?;
        Self::parse(&text.ok_or_else(|| invalid("it is too long"))?)
    }

    /// Parses a description, which is not trusted.
    ///
    /// # Errors
    /// `InvalidArgument` for one that this version does not write.
    fn parse(text: &[u8]) -> Result<Self, Error> {
        #[derive(Deserialize)]
        struct Header {
            version: u32,
            agent: u32,
        }
        let Header { version, agent } = serde_json::from_slice(text).map_err(invalid)?;
        if version != VERSION {
            return Err(invalid(format_args!("its format is {version}; this version reads {VERSION}")));
        }
        if agent != agent_api::VERSION {
            let own = agent_api::VERSION;
            return Err(invalid(format_args!("its guest has an agent of version {agent} of the contract, not {own}")));
        }
        let description: Self = serde_json::from_slice(text).map_err(invalid)?;
        description.machine.check()?;
        let Self { containers, exited, .. } = &description;
        let ids: BTreeSet<&ContainerId> =
            containers.iter().map(|container| &container.guest_id).chain(exited).collect();
        let names: BTreeSet<&str> = containers.iter().map(|container| container.config.name.as_str()).collect();
        let is_valid = !containers.is_empty()
            && !names.contains("")
            && names.len() == containers.len()
            && ids.len() == containers.len() + exited.len()
            && ids.len() <= CONTAINERS_MAX
            && ids.iter().all(|id| crate::store::identifier::is_generated(id.as_str()));
        match is_valid {
            true => Ok(description),
            false => Err(invalid(format_args!("its containers"))),
        }
    }
}

fn invalid(cause: impl std::fmt::Display) -> Error {
    Error::invalid(format!("read {DESCRIPTION} of the checkpoint: not valid: {cause}"))
}

#[cfg(test)]
mod tests;
