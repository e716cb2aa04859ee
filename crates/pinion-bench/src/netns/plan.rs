//! The ways to serve many namespaces, and where the parts find each other.

use std::{fmt, path::Path};

use netns::PinGroup;

use crate::engine::Failure;

/// Port of the echo service.
pub(super) const PORT: u16 = 7;
/// Length of a request in bytes.
pub(super) const REQUEST: usize = 64;
/// Directory of the pins.
pub(super) const PINS: &str = "/run/netns";
/// Directory of the mounts behind the pins.
const STORE: &str = "/run/netns/.store";
/// More namespaces than this are not served by a thread or a process each.
pub(super) const THREADS_MAX: usize = 1024;

/// A way to serve many namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Strategy {
    /// One namespace with as many connections.
    One,
    /// One event loop; setns(2) before each event.
    Setns,
    /// One event loop; setns(2) if the event is of another namespace than the one before.
    Cached,
    /// One event loop; no switch.
    NoSwitch,
    /// An event loop without switches for each processor of the server, with a part of the namespaces.
    Sharded,
    /// A thread for each namespace.
    Threads,
    /// A process for each namespace.
    Processes,
    /// One namespace with a VRF device for each tenant; one event loop.
    Vrf,
}

impl Strategy {
    pub(super) const ALL: [Self; 8] = [
        Self::One,
        Self::Setns,
        Self::Cached,
        Self::NoSwitch,
        Self::Sharded,
        Self::Threads,
        Self::Processes,
        Self::Vrf,
    ];

    /// Reports whether this way is measured with so many namespaces.
    pub(super) fn is_possible(self, namespaces: usize) -> bool {
        !matches!(self, Self::Threads | Self::Processes) || namespaces <= THREADS_MAX
    }

    fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Setns => "setns",
            Self::Cached => "cached",
            Self::NoSwitch => "no-switch",
            Self::Sharded => "sharded",
            Self::Threads => "threads",
            Self::Processes => "processes",
            Self::Vrf => "vrf",
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Opens the group of pins of a measurement.
pub(super) fn pins() -> Result<PinGroup, Failure> {
    Ok(PinGroup::open(Path::new(STORE), Path::new(PINS))?)
}

/// Returns the name of a namespace's pin.
pub(super) fn name(number: usize) -> String {
    format!("tenant-{number}")
}

/// Restricts the calling thread, and what it starts, to the first half of the processors or to the others. On a machine
/// with one processor both halves are that one.
pub(super) fn use_processors(first_half: bool) -> Result<usize, Failure> {
    let fail = |e: rustix::io::Errno| Failure(format!("choose processors: {e}"));
    let allowed = rustix::thread::sched_getaffinity(None).map_err(fail)?;
    let all: Vec<usize> = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    let (first, second) = all.split_at(all.len() / 2);
    let chosen = match (first_half, first.is_empty()) {
        (true, false) => first,
        _ => second,
    };
    let mut set = rustix::thread::CpuSet::new();
    chosen.iter().for_each(|cpu| set.set(*cpu));
    rustix::thread::sched_setaffinity(None, &set).map_err(fail)?;
    Ok(chosen.len())
}
