//! The public face: each method is one line to the module that does it.
#![allow(unused_variables)]

use std::{collections::BTreeMap, time::Duration};

use crate::{
    Config, ContainerConfig, ContainerStats, ContainerStatus, Error, ExecOutput, ExecRequest, SandboxConfig,
    SandboxStatus, Session,
};

/// Whether a part works, and why not.
#[derive(Clone, Debug)]
pub struct Condition {
    /// Whether it does.
    pub ready: bool,
    /// One word, empty when ready.
    pub reason: String,
    /// One sentence, empty when ready.
    pub message: String,
}

/// How the engine is.
#[derive(Clone, Debug)]
pub struct EngineStatus {
    /// Whether containers can be made.
    pub runtime: Condition,
    /// Whether pods get a network.
    pub network: Condition,
    /// Runtime handlers; the empty name is the default one.
    pub handlers: Vec<String>,
    /// More, for `info`.
    pub info: BTreeMap<String, serde_json::Value>,
}

/// The engine. Cheap to clone.
#[derive(Clone)]
pub struct Engine {}

impl Engine {
    /// Recovers what runs, starts or finds the monitor, reconciles the ledger, then serves.
    pub async fn open(config: Config) -> Result<Self, Error> {
        todo!()
    }
    /// How the engine is.
    pub async fn status(&self) -> EngineStatus {
        todo!()
    }
    /// The image store.
    pub fn images(&self) -> &image::Store {
        todo!()
    }

    /// Makes a sandbox and returns its id; one of the same name that is being made is joined, one that is ready is it.
    pub async fn run_sandbox(&self, config: SandboxConfig) -> Result<String, Error> {
        todo!()
    }
    /// Ends its containers and takes its network away; its record stays.
    pub async fn stop_sandbox(&self, id: &str) -> Result<(), Error> {
        todo!()
    }
    /// Stops it and removes it with its containers.
    pub async fn remove_sandbox(&self, id: &str) -> Result<(), Error> {
        todo!()
    }
    /// By id or unambiguous prefix.
    pub fn sandbox(&self, id: &str) -> Result<SandboxStatus, Error> {
        todo!()
    }
    /// All, the oldest first.
    pub fn sandboxes(&self) -> Vec<SandboxStatus> {
        todo!()
    }

    /// Makes a container that waits for its start and returns its id.
    pub async fn create_container(&self, sandbox: &str, config: ContainerConfig) -> Result<String, Error> {
        todo!()
    }
    /// Lets its program run.
    pub async fn start_container(&self, id: &str) -> Result<(), Error> {
        todo!()
    }
    /// Asks it to end, waits as long as `grace`, then kills every process of it.
    pub async fn stop_container(&self, id: &str, grace: Duration) -> Result<(), Error> {
        todo!()
    }
    /// Sends a signal (1 to 64) to the first process, or to every process.
    pub async fn kill_container(&self, id: &str, signal: i32, all: bool) -> Result<(), Error> {
        todo!()
    }
    /// Removes it; one that runs is killed first.
    pub async fn remove_container(&self, id: &str) -> Result<(), Error> {
        todo!()
    }
    /// By id or unambiguous prefix.
    pub fn container(&self, id: &str) -> Result<ContainerStatus, Error> {
        todo!()
    }
    /// All, the oldest first.
    pub fn containers(&self) -> Vec<ContainerStatus> {
        todo!()
    }
    /// Continues its log in a new file of the same name (after a rotation).
    pub async fn reopen_log(&self, id: &str) -> Result<(), Error> {
        todo!()
    }
    /// Changes its limits.
    pub async fn update_container(&self, id: &str, resources: oci::Resources) -> Result<(), Error> {
        todo!()
    }

    /// Runs a command to its end. `timeout` zero: none. Output is bounded (16 MiB each); at the deadline every process
    /// of the command is killed, then it is `DeadlineExceeded`.
    pub async fn exec_sync(&self, id: &str, command: Vec<String>, timeout: Duration) -> Result<ExecOutput, Error> {
        todo!()
    }
    /// Runs a command with streams.
    pub async fn exec(&self, id: &str, request: ExecRequest) -> Result<Session, Error> {
        todo!()
    }
    /// Streams of the container's first process.
    pub async fn attach(&self, id: &str, request: ExecRequest) -> Result<Session, Error> {
        todo!()
    }
    /// Resolves when the container ended; `None` where its exit code cannot be known.
    pub async fn wait(&self, id: &str) -> Result<Option<i32>, Error> {
        todo!()
    }

    /// What one container uses.
    pub fn container_stats(&self, id: &str) -> Result<ContainerStats, Error> {
        todo!()
    }
    /// What all use. One that cannot be measured is left out, never a failed list.
    pub fn all_container_stats(&self) -> Vec<ContainerStats> {
        todo!()
    }

    /// Everything known, for `inspect -v`.
    pub fn inspect_sandbox(&self, id: &str) -> Result<serde_json::Value, Error> {
        todo!()
    }
    /// Everything known, for `inspect -v`.
    pub fn inspect_container(&self, id: &str) -> Result<serde_json::Value, Error> {
        todo!()
    }
}
