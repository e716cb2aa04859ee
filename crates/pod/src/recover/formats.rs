//! Formats of the data that one daemon leaves for the next.

use image::DiskFormat;

use crate::store::RECORD_VERSION;

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
