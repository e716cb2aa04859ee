//! Changes of a running engine: upgrade of the monitor's program, reload of a part of the configuration.

use std::path::{Path, PathBuf};

use image::{DiskFormat, Registries};

use crate::{Engine, Error, state::RECORD_VERSION};

/// A format of data that one daemon leaves for the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Name of the format, the same in all versions.
    pub name: &'static str,
    /// Version that this program writes.
    pub version: u64,
    /// Oldest version that this program reads; it reads all versions up to its own.
    pub oldest: u64,
}

/// All formats of data that a daemon takes over from its predecessor: state directory, data directory, and the contract
/// with the monitor.
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

/// Checks that this program reads data in this version of a format.
///
/// # Errors
/// The reason why it does not, as a message for people.
pub fn check_format(name: &str, version: u64) -> Result<(), String> {
    let Some(format) = FORMATS.iter().find(|format| format.name == name) else {
        return Err(format!("format {name}: this program does not know it"));
    };
    match (format.oldest..=format.version).contains(&version) {
        true => Ok(()),
        false => Err(format!("format {name}: this program reads version {}, not {version}", format.version)),
    }
}

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

/// The part of [`crate::Config`] that can be changed while the engine runs.
#[derive(Clone, Debug)]
pub struct ReloadableConfig {
    /// As in [`crate::Config`].
    pub registries: Registries,
    /// As in [`crate::Config`].
    pub netns_pool: usize,
    /// As in [`crate::Config`].
    pub cdi_dirs: Vec<PathBuf>,
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
        self.0.images.reconfigure(config.registries)?;
        self.0.pool.resize(config.netns_pool);
        self.0.cdi.set_directories(config.cdi_dirs);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_of_another_version_or_name_is_refused() {
        for Format { name, version, oldest } in FORMATS {
            check_format(name, *version).expect("the current version");
            check_format(name, *oldest).expect("the oldest version");
            let why = check_format(name, version + 1).expect_err("another version");
            assert!(why.contains(&format!("reads version {version}, not {}", version + 1)), "{why}");
        }
        for format in [DiskFormat::CURRENT, DiskFormat { index: 1, ..DiskFormat::CURRENT }] {
            assert!(format.is_supported(), "the store agrees: {format:?}");
        }
        assert!(check_format("of-the-future", 1).expect_err("unknown").contains("does not know it"));
    }
}
