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
mod concurrency;
mod config;
mod container;
mod creation;
mod engine;
mod error;
mod events;
mod failpoint;
mod failures;
mod filter;
mod health;
mod host_files;
mod identifier;
mod leftovers;
mod metrics;
mod monitor;
mod mount_source;
mod name_registry;
mod orphans;
mod pipe_holders;
mod process;
mod pulls;
mod reconcile;
mod recover;
mod reset;
mod retry;
mod sandbox;
mod session;
mod single_flight;
mod state;
mod stats;
mod summary;
mod timeline;
mod undo;
mod upgrade;
mod user_namespaces;
mod why;

pub use cdi::Name as CdiName;
pub use cgroup::{DeviceIo, Pressure, Stalls, Stats};
pub use config::Config;
pub use container::{
    ContainerConfig, ContainerState, ContainerStatus, DeviceMapping, ExecOutput, ExecRequest, GroupsPolicy,
    ImageVolume, Propagation, START_ERROR, SeccompChoice, Security, UserChoice, Volume,
};
pub use engine::{Condition, Engine, EngineStatus};
pub use error::{Error, ErrorKind};
pub use events::{Event, EventKind, EventStream, Lagged};
pub use health::Silence;
pub use image::{
    Credentials, Error as ImageError, ErrorKind as ImageErrorKind, Image, ImageConfig, LayerProgress,
    OUTCOMES as IMAGE_OUTCOMES, ProgressCallback, Registries, Stage, Store, TransferLimits, Usage,
};
pub use metrics::{EXIT_REASONS, MONITOR_CONTRACT, Metrics, MonitorIdentity, ObjectCounts};
pub use monitor::{MONITOR_REQUESTS, MonitorMetrics};
pub use monitor_api::{MOUNTS_MAX, UserMappings};
pub use netns::PoolMetrics;
pub use network::{Config as NetworkConfig, Counters, Metrics as NetworkMetrics, PortMapping, Protocol};
pub use oci;
pub use pipe_holders::{Holder as PipeHolder, Rescue};
pub use sandbox::stop::PodUsers;
pub use sandbox::{Dns, Name, PidMode, SandboxConfig, SandboxState, SandboxStatus, SharedMode};
pub use session::{Session, SessionControl, SessionExit};
pub use stats::{
    ContainerStats, ExpensiveStats, Generation, HugePages, SandboxSample, SandboxStats, StatsList, Validity,
};
pub use summary::{ContainerSummary, SandboxSummary};
pub use syscall::signal::Signal;
pub use timeline::Stage as TimelineStage;
pub use upgrade::{FORMATS, Format, MonitorUpgrade, ReloadableConfig, check_format};
pub use why::{ContainerExit, Denial, Explanation, OomKill, OomLimit};
