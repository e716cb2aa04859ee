//! Saves a virtual machine into a file, and loads it into another QEMU. Both have the same devices, memory and processors, but
//! those that are added after the load; `docs/decisions/0018` has what was found about it.

use std::{
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use serde::Deserialize;
use serde_json::json;

use super::{PAUSE, Qemu};
use crate::error::{Error, ErrorKind};

/// Name of the descriptor of the file in QEMU.
const STATE: &str = "state";
/// The capability that leaves out memory that is mapped from a file.
const IGNORE_SHARED: &str = "x-ignore-shared";
/// No limit of the rate, in bytes per second. QEMU's default is 128 MiB.
const BANDWIDTH: u64 = 1 << 40;

/// Where the memory of a saved virtual machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavedMemory {
    /// In the saved state. The load touches all of it.
    Inside,
    /// In the file that it is mapped from ([`Configuration::memory_file`]). Memory that was plugged is lost with QEMU 7.2.
    ///
    /// [`Configuration::memory_file`]: super::Configuration::memory_file
    Apart,
}

impl Qemu {
    /// Saves a paused virtual machine. It stays paused, and can continue.
    ///
    /// # Errors
    /// `Refused` if one of its devices cannot be saved, `Timeout`, after which nothing more is written, and those of QEMU.
    pub async fn save(&self, state: OwnedFd, memory: SavedMemory, timeout: Duration) -> Result<(), Error> {
        self.migrate("migrate", state, memory, timeout).await.map_err(|error| error.during("save the virtual machine"))
    }

    /// Loads a virtual machine into a QEMU that was started for it ([`Configuration::incoming`]) and has its devices. It stays
    /// paused.
    ///
    /// # Errors
    /// `Gone` if it is not loadable: QEMU exits, and its log has the reason. `Timeout`, and those of QEMU.
    ///
    /// [`Configuration::incoming`]: super::Configuration::incoming
    pub async fn load(&self, state: OwnedFd, memory: SavedMemory, timeout: Duration) -> Result<(), Error> {
        let loaded = self.migrate("migrate-incoming", state, memory, timeout).await;
        loaded.map_err(|error| error.during("load the virtual machine"))
    }

    async fn migrate(
        &self,
        command: &str,
        state: OwnedFd,
        memory: SavedMemory,
        timeout: Duration,
    ) -> Result<(), Error> {
        let capability = json!({ "capability": IGNORE_SHARED, "state": memory == SavedMemory::Apart });
        self.command("migrate-set-capabilities", json!({ "capabilities": [capability] })).await?;
        self.command("migrate-set-parameters", json!({ "max-bandwidth": BANDWIDTH })).await?;
        self.qmp.execute("getfd", json!({ "fdname": STATE }), &[state.as_fd()]).await?;
        if let Err(error) = self.command(command, json!({ "uri": format!("fd:{STATE}") })).await {
            let _ = self.command("closefd", json!({ "fdname": STATE })).await;
            return Err(error);
        }
        let outcome = self.migrated(timeout).await;
        if outcome.as_ref().is_err_and(|error| error.kind == ErrorKind::Timeout) {
            // One that is incoming cannot be cancelled: its QEMU is ended.
            let _ = self.command("migrate_cancel", json!({})).await;
        }
        outcome
    }

    /// Waits for the end of a migration.
    async fn migrated(&self, timeout: Duration) -> Result<(), Error> {
        #[derive(Deserialize)]
        struct Migration {
            status: Option<String>,
            #[serde(rename = "error-desc")]
            error: Option<String>,
        }
        let begin = Instant::now();
        loop {
            let Migration { status, error } = self.query("query-migrate", json!({})).await?;
            match status.as_deref() {
                Some("completed") => return Ok(()),
                Some(status @ ("failed" | "cancelled" | "cancelling")) => {
                    let cause = error.unwrap_or_else(|| format!("its status is {status}"));
                    let kind = ErrorKind::Refused { class: "GenericError".to_owned() };
                    return Err(Error::new(kind, "wait for the end of the transfer", cause));
                }
                _ if begin.elapsed() > timeout => {
                    let cause = format!("not completed after {} s", timeout.as_secs());
                    return Err(Error::new(ErrorKind::Timeout, "wait for the end of the transfer", cause));
                }
                _ => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Returns the version of QEMU: major and minor.
    ///
    /// # Errors
    /// Those of QEMU.
    pub async fn version(&self) -> Result<(u32, u32), Error> {
        #[derive(Deserialize)]
        struct Version {
            qemu: Numbers,
        }
        #[derive(Deserialize)]
        struct Numbers {
            major: u32,
            minor: u32,
        }
        let Version { qemu } = self.query("query-version", json!({})).await?;
        Ok((qemu.major, qemu.minor))
    }

    /// Returns the type of the machine with its version, such as `pc-i440fx-7.2`. Other versions of QEMU have it, too.
    ///
    /// # Errors
    /// Those of QEMU.
    pub async fn machine_type(&self) -> Result<String, Error> {
        let name: String = self.query("qom-get", json!({ "path": "/machine", "property": "type" })).await?;
        Ok(name.strip_suffix("-machine").unwrap_or(&name).to_owned())
    }
}
