//! What a saved state has in addition to memory and devices: its ports, which the QEMU that loads it must have with the same
//! numbers, and what ends a save before its time.

use std::{collections::BTreeMap, os::fd::OwnedFd, time::Instant};

use serde::Deserialize;
use serde_json::json;

use super::{PAUSE, Qemu, ports::Backend};
use crate::error::{Error, ErrorKind};

/// What a port of a saved state is connected to after the load.
#[derive(Debug)]
pub enum SavedPort {
    /// A FIFO that gets what the guest writes, see [`Vmm::add_output`](crate::vmm::Vmm::add_output).
    Output(OwnedFd),
    /// A FIFO that the guest reads, see [`Vmm::add_input`](crate::vmm::Vmm::add_input).
    Input(OwnedFd),
    /// Nothing.
    Null,
}

impl Qemu {
    /// Returns the numbers of the ports by their names.
    pub fn numbered_ports(&self) -> BTreeMap<String, u32> {
        self.port_numbers()
    }

    /// Adds a port of a saved state before that is loaded.
    ///
    /// # Errors
    /// `Invalid` if there is a port of this name or number, or the number is out of range, and those of QEMU.
    pub async fn add_saved_port(&self, number: u32, name: &str, port: SavedPort) -> Result<(), Error> {
        let backend = match port {
            SavedPort::Output(fifo) => Backend::Output(fifo),
            SavedPort::Input(fifo) => Backend::Input(fifo),
            SavedPort::Null => Backend::Null,
        };
        self.add_port_at(Some(number), name, backend).await
    }

    /// Ends a save that is in progress, and waits until it has ended. Does nothing if there is none: a virtual machine must not
    /// continue while it is saved, because the end of the save would pause it again.
    ///
    /// # Errors
    /// Those of QEMU.
    pub async fn cancel_save(&self) -> Result<(), Error> {
        #[derive(Deserialize)]
        struct Migration {
            /// Absent if there never was one.
            status: Option<String>,
        }
        let begin = Instant::now();
        loop {
            let Migration { status } = self.query("query-migrate", json!({})).await?;
            if matches!(status.as_deref(), None | Some("none" | "completed" | "failed" | "cancelled")) {
                return Ok(());
            }
            if begin.elapsed() > self.qmp.timeout() {
                return Err(Error::new(ErrorKind::Timeout, "cancel the save of a virtual machine", "it does not end"));
            }
            self.command("migrate_cancel", json!({})).await?;
            tokio::time::sleep(PAUSE).await;
        }
    }
}
