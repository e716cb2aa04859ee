//! Changes of a running engine: upgrade of the monitor's program, reload of a part of the configuration.

use std::path::Path;

use super::Engine;
use crate::{Error, ReloadableConfig};

/// Result of an upgrade of the monitor.
#[derive(Clone, Debug)]
pub struct MonitorUpgrade {
    /// Whether the program was replaced; false if it was the same already.
    pub upgraded: bool,
    /// Version of the program that runs now.
    pub version: String,
    /// Pid of the monitor, which an upgrade does not change.
    pub pid: u32,
}

impl Engine {
    /// Upgrades the running monitor to this program in place: the process and its containers stay. Does nothing if the
    /// monitor is this program already.
    ///
    /// # Errors
    /// `FailedPrecondition` if the program cannot take over; the monitor continues unchanged.
    pub async fn upgrade_monitor(&self, program: &Path) -> Result<MonitorUpgrade, Error> {
        let monitor = &self.0.monitor;
        let upgraded = !monitor.runs(program).await?;
        let welcome = if upgraded { monitor.upgrade(program).await? } else { monitor.welcome()? };
        Ok(MonitorUpgrade { upgraded, version: welcome.version, pid: welcome.pid })
    }

    /// Applies a new configuration. Operations in progress (such as a pull) continue with the old one.
    ///
    /// # Errors
    /// `InvalidArgument` if the configuration is invalid; nothing is changed then.
    pub fn reconfigure(&self, config: ReloadableConfig) -> Result<(), Error> {
        self.0.node.reconfigure(config)
    }
}
