//! The engine: sandboxes, containers, state, recovery. Independent of protobuf.
//!
//! A module uses the modules below it, and none above:
//!
//! ```text
//! engine       the public interface: each method delegates
//! recover      opens the engine: records × monitor × kernel; reconciles them later; reset
//! sandbox      run, stop, remove, update, port-forward; cleanup after an exit
//! exec         commands in containers, attached clients, sessions
//! container    create, start, stop, remove, update, checkpoint, …
//! namespaces   what the containers of a pod share
//! plugins      NRI plugins: what they learn of pods and containers
//! parts        Parts { node, registry, monitor, observe, flights, … }: what operations work with
//! observe      health, statistics, metrics, failures, why
//! node         what one machine offers: images, networks, cgroups, filters, devices, files
//! monitor      client of pinmon: custody of descriptors, supervisor
//! stdio        FIFOs, pipes, terminals, logs
//! store        objects in memory and on record: Registry, Sandbox, Container, names, events
//! operation    how an operation runs: Completion, SingleFlight, limits, blocking work, undo
//! ```
//!
//! # Rules
//! * **An operation completes.** A caller that is cancelled does not leave it half done ([`Completion`]); a second
//!   request for the same operation waits for the first.
//! * **Phases are types.** Each is consumed by the next one, and rolls everything back if it cannot become that: a
//!   sandbox is `Reserved → Networked → ready`, a container `Recorded → Opened → Ready → Cloned → created`.
//! * **The record is written first.** `metadata.json` is written before the first kernel object of a sandbox or
//!   container is created, and the object's directory is removed last. So a directory without an owner lists all that
//!   must be undone.
//! * **Records are verified against the kernel**: a process is identified by its pid and start time, or by a pidfd.
//! * **Lists never block**: a status is a snapshot that is replaced as a whole; only slow operations hold the lock of
//!   an object.
//! * **What must not be lost is held twice**: `pinmon` and this process (`monitor`) both have the pidfd, terminal, read
//!   ends and log of every container, so that either process can die.
//! * Requests do not sync to disk: containers do not survive a reboot.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod annotation;
mod clock;
mod config;
mod container;
mod defaults;
mod engine;
mod error;
mod exec;
mod handler;
mod monitor;
mod namespaces;
mod node;
mod observe;
mod operation;
mod parts;
mod plugins;
mod process;
mod recover;
mod sandbox;
mod stdio;
mod store;

pub use cdi::Name as CdiName;
pub use cgroup::{DeviceIo, Pressure, Stalls, Stats};
pub use config::{CgroupDriver, CgroupNames, Config, ReloadableConfig};
pub use defaults::ContainerDefaults;
pub use engine::{Engine, EngineInfo, EngineStatus, MonitorInfo, MonitorUpgrade};
pub use error::{Error, ErrorKind};
pub use exec::{ExecOutput, ExecRequest, Session, SessionControl, SessionExit};
pub use handler::{OciHandler, PrivilegedDevices, RuntimeFacts, RuntimeFeatures, ShimHandler, VmHandler, WasmHandler};
pub use image::{
    Credentials, Error as ImageError, ErrorKind as ImageErrorKind, Image, ImageConfig, LayerProgress,
    OUTCOMES as IMAGE_OUTCOMES, ProgressCallback, Registries, Stage, Store, TransferLimits, Usage,
};
pub use monitor::{MONITOR_REQUESTS, MonitorMetrics};
pub use monitor_api::{CommandError, MOUNTS_MAX, UserMappings};
pub use netns::PoolMetrics;
pub use network::{
    AddressPool, Config as NetworkConfig, Counters, DEFAULT_POOLS, Driver as NetworkDriver, HostEntry,
    Metrics as NetworkMetrics, NetworkChoice, NetworkDefinition, NetworkEndpoint, NetworkRequest, OverlayConfig,
    PodNetworks, PortMapping, Protocol, SubnetRequest,
};
pub use node::{HandlerInfo, HandlerKind, PodOverhead};
pub use nri::{Config as PluginConfig, PluginInfo, Restrictions as PluginRestrictions};
pub use observe::{
    Condition, ContainerExit, ContainerStats, Denial, DeniedBy, EXIT_REASONS, ExpensiveStats, Explanation, Feature,
    Generation, HealthInfo, HugePages, MONITOR_CONTRACT, Metrics, MonitorIdentity, ObjectCounts, ObjectKind,
    ObjectState, OomKill, OomLimit, SandboxSample, SandboxStats, Silence, StatsList, StuckLog, Validity, Wait,
};
pub use oci;
pub use oci::{CAPABILITIES, Rlimit};
pub use operation::{Completion, Panicked};
pub use recover::{FORMATS, Format, check_format, check_reset};
pub use sandbox::{
    checkpoint::PodCheckpoint,
    port_forward::PodStream,
    remove_logs,
    restore::{PodRestore, RestoredPod},
    stop::PodUsers,
};
pub use shim::Options as ShimOptions;
pub use stdio::{
    AttachedClient,
    pipe_holders::{Holder as PipeHolder, Rescue},
};
pub use store::{
    Cause, ContainerConfig, ContainerId, ContainerState, ContainerStatus, ContainerSummary, DeviceMapping, Dns, Event,
    EventKind, EventStream, GroupsPolicy, ImageVolume, Lagged, Name, ObjectId, PidMode, Propagation, START_ERROR,
    SandboxConfig, SandboxId, SandboxState, SandboxStatus, SandboxSummary, SeccompChoice, Security, Selects,
    SharedMode, Stage as TimelineStage, UserChoice, VmProcess, Volume,
};
pub use syscall::signal::Signal;
