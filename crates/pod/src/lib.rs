//! The engine: sandboxes, containers, state, recovery. Independent of protobuf.
//!
//! ```text
//! Engine ── sandbox/{run,stop,remove}       phases as types: Reserved → Networked → Ready
//!   │       container/{create,start,stop,remove,exec,attach,…}
//!   ├── image      rootfs as a detached mount        ├── state    records on tmpfs: the ledger
//!   ├── network    address, ports                    ├── recover  after a restart: records × monitor × kernel
//!   └── monitor    client of pinmon, custody of descriptors, supervisor of the monitor
//! ```
//!
//! # Rules
//! * **An operation is a task of its own.** A caller that is cancelled does not leave it half done; a second request
//!   for the same operation waits for the first.
//! * **The record is written first.** `metadata.json` is written before the first kernel object of a sandbox or
//!   container is created, and the object's directory is removed last. So a directory without an owner lists all that
//!   must be undone.
//! * **Records are verified against the kernel**: a process is identified by its pid and start time, or by a pidfd.
//! * **Lists never block**: a status is a snapshot that is replaced as a whole; only slow operations hold the lock of
//!   an object.
//! * **What must not be lost is held twice**: `pinmon` and this process ([`monitor`]) both have the pidfd, terminal,
//!   read ends and log of every container, so that either process can die.
//! * Requests do not sync to disk: containers do not survive a reboot.

#![forbid(unsafe_code)]

pub mod annotation;
mod clock;
mod config;
mod container;
mod engine;
mod error;
mod exec;
mod monitor;
mod namespaces;
mod node;
mod observe;
mod operation;
mod parts;
mod process;
mod recover;
mod sandbox;
mod stdio;
mod store;

pub use cdi::Name as CdiName;
pub use cgroup::{DeviceIo, Pressure, Stalls, Stats};
pub use config::{Config, ReloadableConfig};
pub use engine::{Engine, EngineStatus, MonitorUpgrade};
pub use error::{Error, ErrorKind};
pub use exec::{ExecOutput, ExecRequest, Session, SessionControl, SessionExit};
pub use image::{
    Credentials, Error as ImageError, ErrorKind as ImageErrorKind, Image, ImageConfig, LayerProgress,
    OUTCOMES as IMAGE_OUTCOMES, ProgressCallback, Registries, Stage, Store, TransferLimits, Usage,
};
pub use monitor::{MONITOR_REQUESTS, MonitorMetrics};
pub use monitor_api::{MOUNTS_MAX, UserMappings};
pub use netns::PoolMetrics;
pub use network::{Config as NetworkConfig, Counters, Metrics as NetworkMetrics, PortMapping, Protocol};
pub use observe::{
    Condition, ContainerExit, ContainerStats, Denial, EXIT_REASONS, ExpensiveStats, Explanation, Generation, HugePages,
    MONITOR_CONTRACT, Metrics, MonitorIdentity, ObjectCounts, OomKill, OomLimit, SandboxSample, SandboxStats, Silence,
    StatsList, Validity,
};
pub use oci;
pub use operation::{Completion, Panicked};
pub use recover::{FORMATS, Format, check_format};
pub use sandbox::stop::PodUsers;
pub use stdio::pipe_holders::{Holder as PipeHolder, Rescue};
pub use store::{
    ContainerConfig, ContainerState, ContainerStatus, ContainerSummary, DeviceMapping, Dns, Event, EventKind,
    EventStream, GroupsPolicy, ImageVolume, Lagged, Name, PidMode, Propagation, START_ERROR, SandboxConfig,
    SandboxState, SandboxStatus, SandboxSummary, SeccompChoice, Security, SharedMode, Stage as TimelineStage,
    UserChoice, Volume,
};
pub use syscall::signal::Signal;
