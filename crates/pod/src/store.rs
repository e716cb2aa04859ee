//! What is on record: the objects in memory ([`Registry`]) and the state directory, the ledger of what was created.
//!
//! ```text
//! <state>/boot_id                         everything below is discarded after a reboot
//! <state>/sandbox/<id>/metadata.json      immutable, written before anything is created
//!                      status.json        written to a temporary file and renamed
//! <state>/container/<id>/metadata.json status.json process.json stdin stdout stderr
//! <state>/broken/                         records that could not be read
//! ```
//! A directory is removed after everything that it names has been removed. Nothing is synced: after a crash of the
//! machine the state is discarded anyway.

mod container;
mod directory;
pub(crate) mod events;
pub(crate) mod identifier;
mod log_loss;
mod names;
mod pipe_calls;
mod record;
mod registry;
mod sandbox;
mod summary;
mod timeline;

pub use container::{
    Cause, ContainerConfig, ContainerState, ContainerStatus, DeviceMapping, GroupsPolicy, ImageVolume, Propagation,
    START_ERROR, SeccompChoice, Security, UserChoice, VmProcess, Volume,
};
pub(crate) use container::{
    Container, ContainerMetadata, ContainerName, ContainerPhase, ContainerRecord, ContainerRuntime, ContainerShim,
    ContainerVm, SIGKILLED, SPEC, Sent, ShimProcess, broken_container, unknown_exit,
};
pub(crate) use directory::{FIFOS, STDIN, StateDirectory, TMPFS_SOURCE};
pub use events::{Event, EventKind, EventStream, Lagged};
pub use identifier::{ContainerId, ObjectId, SandboxId, Selects};
#[cfg(test)]
pub(crate) use pipe_calls::BLOCKED_MAX;
pub(crate) use pipe_calls::{BLOCKED, PipeCalls};
pub(crate) use record::{Kind, LoadedRecord, RECORD_VERSION, Records};
pub(crate) use registry::Registry;
pub use sandbox::{Dns, Name, PidMode, SandboxConfig, SandboxState, SandboxStatus, SharedMode};
pub(crate) use sandbox::{
    GuestExec, Sandbox, SandboxMetadata, SandboxPhase, SandboxRecord, VmConnection, broken_sandbox, broken_status,
};
pub use summary::{ContainerSummary, SandboxSummary};
pub use timeline::Stage;
