//! QEMU as a virtual machine monitor, version 7.2 and later. Starts no process: [`command_line()`] is for the one that does,
//! and [`Qemu`] controls it over its monitor socket.
//!
//! ```text
//! command_line  configuration ─▶ arguments
//! ports         virtio-serial ports: add, remove, drain, and recover after a reconnect
//! saved         ports of a saved state, the end of a save
//! devices       network interfaces, file servers, memory, processors
//! migration     save into a file, load from it
//! ```
//!
//! Nothing is stored: the id of a port in QEMU has its number and name, from which a new connection recovers them.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    error::{Error, ErrorKind},
    qmp::{Events, Qmp},
    vmm::{Fault, Status},
};

mod command_line;
mod devices;
mod driver;
mod migration;
mod ports;
mod saved;

pub use command_line::{
    Accelerator, CPUS_MAX, Configuration, DEFAULT_PORTS, MEMORY_BLOCK, PORTS_MAX, SOCKET, command_line,
};
pub use migration::SavedMemory;
use ports::Ports;
pub use saved::SavedPort;

/// Pause until QEMU is queried again.
const PAUSE: Duration = Duration::from_millis(5);

/// A running QEMU.
#[derive(Debug)]
pub struct Qemu {
    qmp: Qmp,
    ports: Ports,
    /// Held while a set of descriptors is in use by a command that is not executed yet, and while all sets are removed.
    descriptor_sets: tokio::sync::Mutex<()>,
}

impl Qemu {
    /// Connects to a QEMU and recovers its ports. `timeout` is the time limit of this and of each command.
    ///
    /// # Errors
    /// `Gone` if no QEMU serves the socket, `Timeout`, also if it serves another client, and those of QEMU.
    pub async fn connect(socket: &Path, timeout: Duration) -> Result<Self, Error> {
        Self::recover(Qmp::connect(socket, timeout).await?).await
    }

    /// Uses a connection to QEMU, and recovers its ports.
    ///
    /// # Errors
    /// Those of QEMU.
    pub async fn recover(qmp: Qmp) -> Result<Self, Error> {
        let recover = |error: Error| error.during("recover the ports of QEMU");
        let ports = Ports::recover(&qmp).await.map_err(recover)?;
        let qemu = Self { qmp, ports, descriptor_sets: tokio::sync::Mutex::default() };
        qemu.remove_partial_ports().await.map_err(recover)?;
        Ok(qemu)
    }

    /// Connects to a QEMU that is being started: waits for its socket, for at most `timeout`.
    ///
    /// # Errors
    /// Those of [`Qemu::connect`].
    pub async fn connect_to_started(socket: &Path, timeout: Duration) -> Result<Self, Error> {
        let begin = Instant::now();
        loop {
            match Self::connect(socket, timeout).await {
                Err(error) if error.kind == ErrorKind::Gone && begin.elapsed() < timeout => {}
                outcome => return outcome,
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Returns a receiver of the events from now on.
    pub fn events(&self) -> Events {
        self.qmp.events()
    }

    /// Executes a command that has no answer.
    async fn command(&self, command: &str, arguments: Value) -> Result<(), Error> {
        self.qmp.execute(command, arguments, &[]).await.map(drop)
    }

    /// Executes a command and decodes its answer.
    async fn query<Answer: serde::de::DeserializeOwned>(
        &self,
        command: &str,
        arguments: Value,
    ) -> Result<Answer, Error> {
        query(&self.qmp, command, arguments).await
    }

    async fn vm_status(&self) -> Result<Status, Error> {
        #[derive(serde::Deserialize)]
        struct StatusInfo {
            status: String,
        }
        let StatusInfo { status } = self.query("query-status", json!({})).await?;
        Ok(parse_status(&status))
    }

    /// Has QEMU exit. It may do so before it answers.
    async fn exit(&self) -> Result<(), Error> {
        match self.command("quit", json!({})).await {
            Err(error) if error.kind == ErrorKind::Gone => return Ok(()),
            outcome => outcome?,
        }
        let timeout = self.qmp.timeout();
        tokio::time::timeout(timeout, self.qmp.closed()).await.map_err(|_| {
            let cause = format!("still connected {} s after its answer", timeout.as_secs_f32());
            Error::new(ErrorKind::Timeout, "quit QEMU", cause)
        })
    }
}

/// Converts a `RunState` of QEMU.
fn parse_status(status: &str) -> Status {
    match status {
        "prelaunch" | "inmigrate" => Status::Created,
        "running" => Status::Running,
        "shutdown" => Status::Stopped,
        "guest-panicked" => Status::Failed(Fault::Panic),
        "internal-error" => Status::Failed(Fault::Internal),
        "io-error" => Status::Failed(Fault::Io),
        "watchdog" => Status::Failed(Fault::Watchdog),
        _ => Status::Paused,
    }
}

async fn query<Answer: serde::de::DeserializeOwned>(
    qmp: &Qmp,
    command: &str,
    arguments: Value,
) -> Result<Answer, Error> {
    let answer = qmp.execute(command, arguments, &[]).await?;
    serde_json::from_value(answer)
        .map_err(|error| Error::new(ErrorKind::Protocol, format!("answer of QMP command {command}"), error))
}

/// Validates the name of a port, tap or file server: it becomes a part of an id of QEMU.
fn validate_name(operation: &str, name: &str) -> Result<(), Error> {
    let is_valid = matches!(name.len(), 1..=64)
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.chars().all(|character| character.is_ascii_alphanumeric() || matches!(character, '.' | '_' | '-'));
    match is_valid {
        true => Ok(()),
        false => {
            let cause = format!("{name:?} is not a name of 1 to 64 letters, digits, '.', '_' and '-'");
            Err(Error::new(ErrorKind::Invalid, operation, cause))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_states_of_qemu_are_statuses() {
        let faults = ["guest-panicked", "internal-error", "io-error", "watchdog"].map(parse_status);
        assert_eq!(faults, [Fault::Panic, Fault::Internal, Fault::Io, Fault::Watchdog].map(Status::Failed));
        assert_eq!(
            ["running", "paused", "unknown"].map(parse_status),
            [Status::Running, Status::Paused, Status::Paused]
        );
    }
}
