//! `linux.timeOffsets`: clocks of a new time namespace. Needs Linux 5.6.
//!
//! A process that makes a time namespace does not enter it; only its children do, and the offsets must be written
//! before the first child is cloned. So the intermediate process of the container's init ([`crate::intermediate`])
//! makes it.

use std::{collections::BTreeMap, fmt::Write};

use rustix::{fd::OwnedFd, fs::OFlags, io::Errno, thread::UnshareFlags};

use crate::{Error, error::During, namespaces::Namespaces, procfs::Procfs};

/// Clocks that can have an offset (time_namespaces(7)).
const CLOCKS: [&str; 2] = ["monotonic", "boottime"];
const NANOSECONDS: u32 = 1_000_000_000;

/// The text that is written to `timens_offsets`.
#[derive(Debug, Default)]
pub(crate) struct TimeOffsets(String);

impl TimeOffsets {
    pub(crate) fn parse(offsets: &BTreeMap<String, oci::TimeOffset>, namespaces: &Namespaces) -> Result<Self, Error> {
        let mut text = String::new();
        for (clock, offset) in offsets {
            if !CLOCKS.contains(&clock.as_str()) {
                return Err(Error::invalid(format!(
                    "linux.timeOffsets: {clock:?} cannot have an offset; only monotonic and boottime can"
                )));
            }
            if offset.nanosecs >= NANOSECONDS {
                return Err(Error::invalid(format!(
                    "linux.timeOffsets.{clock}.nanosecs: {} is a second or more",
                    offset.nanosecs
                )));
            }
            // Writing to a string does not fail.
            let _ = writeln!(text, "{clock} {} {}", offset.secs, offset.nanosecs);
        }
        if !text.is_empty() && !namespaces.new_time() {
            return Err(Error::invalid("linux.timeOffsets: needs a new time namespace; a joined one has its own"));
        }
        Ok(Self(text))
    }

    /// Opens the file with the offsets, before the process enters a user namespace: afterwards it may not open it.
    pub(crate) fn open(&self, proc: &Procfs) -> Result<Option<OwnedFd>, Error> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let file = proc.open_file("self/timens_offsets", OFlags::WRONLY);
        file.map(Some).during(|| "open /proc/self/timens_offsets")
    }

    /// Makes the time namespace, for the children of the calling process.
    pub(crate) fn make(&self, file: Option<&OwnedFd>) -> Result<(), Error> {
        syscall::clone::unshare_process(UnshareFlags::NEWTIME).during(|| "make a new time namespace")?;
        let Some(file) = file else { return Ok(()) };
        match rustix::io::write(file, self.0.as_bytes()) {
            Ok(_) => Ok(()),
            Err(Errno::RANGE) => {
                Err(Error::invalid("linux.timeOffsets: a clock would be negative, or more than half of its range"))
            }
            Err(errno) => Err(Error::system(format!("set linux.timeOffsets to {:?}", self.0), errno)),
        }
    }
}
