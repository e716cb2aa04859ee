//! The engine: sandboxes, containers, state, recovery. Knows no protobuf.
//!
//! ```text
//! Engine ── sandbox/{run,stop,remove}       phases as types: Reserved → Networked → Ready
//!   │       container/{create,start,stop,remove,exec,attach,…}
//!   ├── image      rootfs as a detached mount        ├── state    records on tmpfs: the ledger
//!   ├── network    address, ports                    ├── recover  after a restart: records × monitor × kernel
//!   └── monitor    the client of pinmon, custody of descriptors, its supervisor
//! ```
//!
//! # Rules that hold here
//! * **An operation is a task of its own.** A caller that hangs up does not leave it half done; a second caller for the
//!   same name joins it.
//! * **The record comes first.** `metadata.json` is written before the first kernel object of a sandbox or container is
//!   made, and its directory goes last, so a directory without an owner names everything that must be undone.
//! * **The kernel is asked, records are not trusted**: a process is a pid with its start time, or a pidfd.
//! * **Lists wait for nobody**: a status is a snapshot that is replaced whole; the lock of an object is held by its
//!   slow operations only.
//! * **Nothing is held twice but what must not be lost**: the pidfd, terminal, read ends and log of every container are
//!   in `pinmon` and here ([`monitor`]), so that either process can die.
//! * Nothing is synced to disk on the way of a request: a machine that rebooted has no containers.

#![forbid(unsafe_code)]

pub mod annotation;
mod attempts;
mod clock;
mod config;
mod container;
mod engine;
mod error;
mod events;
mod failpoint;
mod failures;
mod figures;
mod filter;
mod glance;
mod health;
mod host_files;
mod identifier;
mod joined;
mod lanes;
mod making;
mod monitor;
mod mount_source;
mod names;
mod orphans;
mod pipe_holders;
mod process;
mod pulls;
mod reconcile;
mod recover;
mod remains;
mod reset;
mod sandbox;
mod session;
mod state;
mod stats;
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
pub use figures::{ENDS, Figures, MONITOR_CONTRACT, MonitorIdentity, Population};
pub use glance::{ContainerGlance, SandboxGlance};
pub use health::Silence;
pub use image::{
    Credentials, Error as ImageError, ErrorKind as ImageErrorKind, Image, ImageConfig, LayerProgress,
    OUTCOMES as IMAGE_OUTCOMES, Progress, Registries, Stage, Store, Transfers, Usage,
};
pub use monitor::{MONITOR_REQUESTS, MonitorFigures};
pub use monitor_api::{MOUNTS_MAX, UserMappings};
pub use netns::PoolFigures;
pub use network::{Config as NetworkConfig, Counters, Figures as NetworkFigures, PortMapping, Protocol};
pub use oci;
pub use pipe_holders::{Holder as PipeHolder, Rescue};
pub use sandbox::stop::Users;
pub use sandbox::{Dns, Name, PidMode, SandboxConfig, SandboxState, SandboxStatus, SharedMode};
pub use session::{Ended, Session, SessionControl};
pub use stats::{ContainerStats, Hold, HugePages, Mark, Occasional, Sampled, SandboxSample, SandboxStats};
pub use timeline::Stage as TimelineStage;
pub use upgrade::{Changeable, FORMATS, Format, MonitorUpgrade, understands};
pub use why::{Denied, End, Oom, OomLimit, Why};
