//! What can be changed under a running engine: the monitor's program, and a part of the configuration.

use std::path::{Path, PathBuf};

use image::{DiskFormat, Registries};

use crate::{Engine, Error, state::RECORD_VERSION};

/// A format in which one daemon leaves what the next one must read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Its name, the same in all versions.
    pub name: &'static str,
    /// The version that this program writes.
    pub version: u64,
    /// The oldest version that it reads; it reads all up to its own.
    pub oldest: u64,
}

/// Every format that a daemon takes over from the one before: state directory, data directory, the monitor's contract.
pub const FORMATS: &[Format] = &[
    Format::only("monitor-contract", monitor_api::MAJOR as u64),
    Format::only("records", RECORD_VERSION),
    Format { name: "image-index", version: DiskFormat::CURRENT.index as u64, oldest: 1 },
    Format::only("redb", DiskFormat::CURRENT.redb as u64),
];

impl Format {
    const fn only(name: &'static str, version: u64) -> Self {
        Self { name, version, oldest: version }
    }
}

/// Whether this program reads what a daemon left in this version of a format.
///
/// # Errors
/// Why not, as a sentence for people.
pub fn understands(name: &str, version: u64) -> Result<(), String> {
    let Some(format) = FORMATS.iter().find(|format| format.name == name) else {
        return Err(format!("format {name}: this program does not know it"));
    };
    match (format.oldest..=format.version).contains(&version) {
        true => Ok(()),
        false => Err(format!("format {name}: this program reads version {}, not {version}", format.version)),
    }
}

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
        self.0.cdi.set_directories(to.cdi_dirs);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_of_another_version_or_name_is_refused() {
        for Format { name, version, oldest } in FORMATS {
            understands(name, *version).expect("its own");
            understands(name, *oldest).expect("the oldest");
            let why = understands(name, version + 1).expect_err("another version");
            assert!(why.contains(&format!("reads version {version}, not {}", version + 1)), "{why}");
        }
        for format in [DiskFormat::CURRENT, DiskFormat { index: 1, ..DiskFormat::CURRENT }] {
            assert!(format.is_supported(), "as the store says itself: {format:?}");
        }
        assert!(understands("of-the-future", 1).expect_err("unknown").contains("does not know it"));
    }
}
