//! What can be changed under a running engine: the monitor's program, and a part of the configuration.

use std::path::{Path, PathBuf};

use image::Registries;

use crate::{Engine, Error};

/// What an upgrade of the monitor came to.
#[derive(Clone, Debug)]
pub struct MonitorUpgrade {
    /// Whether another program runs now; not, where it was that one already.
    pub upgraded: bool,
    /// Version of the program that runs.
    pub version: String,
    /// Its pid, which an upgrade does not change.
    pub pid: u32,
}

/// The part of [`crate::Config`] that can be changed while the engine runs.
#[derive(Clone, Debug)]
pub struct Changeable {
    /// As in [`crate::Config`].
    pub registries: Registries,
    /// As in [`crate::Config`].
    pub netns_pool: usize,
    /// As in [`crate::Config`].
    pub cdi_dirs: Vec<PathBuf>,
}

impl Engine {
    /// Puts this program in the place of the monitor that runs, under its containers: it stays the same process. Does
    /// nothing where it is that program already.
    ///
    /// # Errors
    /// `FailedPrecondition`: the program cannot take over, and the monitor goes on as it was.
    pub async fn upgrade_monitor(&self, program: &Path) -> Result<MonitorUpgrade, Error> {
        let monitor = &self.0.monitor;
        let upgraded = !monitor.runs(program).await?;
        let welcome = if upgraded { monitor.upgrade(program).await? } else { monitor.welcome()? };
        Ok(MonitorUpgrade { upgraded, version: welcome.version, pid: welcome.pid })
    }

    /// Works with this from now on; what runs (a pull) ends as it began.
    ///
    /// # Errors
    /// `InvalidArgument`: something in it cannot be; nothing was changed.
    pub fn reconfigure(&self, to: Changeable) -> Result<(), Error> {
        self.0.images.reconfigure(to.registries)?;
        self.0.pool.resize(to.netns_pool);
        self.0.cdi.set_folders(to.cdi_dirs);
        Ok(())
    }
}
