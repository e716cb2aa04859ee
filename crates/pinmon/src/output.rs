//! Output of containers, and the log writers that move it (see `log_writer.rs`): the assignment of outputs to log
//! writers, pending orders, and starts and exits of log writers. Nothing here waits for a log writer.
//!
//! The monitor holds the descriptors of an output, so that they outlive a log writer, and never reads or writes them.

mod blocked;
mod heartbeat;
mod journals;
mod map;
mod orders;
mod orphans;
mod reports;
mod streams;
mod upkeep;
mod writer;

use std::io;

use rustix::fd::OwnedFd;

pub(crate) use blocked::AlarmOutcome;
pub(crate) use journals::Journals;
pub(crate) use map::OutputMap;
pub(crate) use streams::{Output, Place, Stream, StreamFile};
pub(crate) use upkeep::SHUTDOWN_TIMEOUT;

use crate::event::{Epoll, Token};
use writer::Writers;

/// Outputs of all containers, and their log writers.
pub(crate) struct Outputs {
    pub(crate) map: OutputMap,
    pub(crate) journals: Journals,
    writers: Writers,
}

impl Outputs {
    /// Creates the component without any output. The journals of dead log writers are kept for [`Journals::take`].
    pub(crate) fn open(state: OwnedFd) -> io::Result<Self> {
        Ok(Self { map: OutputMap::default(), journals: Journals::open(state)?, writers: Writers::default() })
    }

    /// Whether output of this place waits for a log writer that hangs or is not running.
    pub(crate) fn is_stuck(&self, place: Place) -> bool {
        self.writers.is_stuck(place)
    }

    /// Returns the place of the log writer with this number.
    pub(crate) fn place_of(&self, number: u64) -> Option<Place> {
        self.writers.place_of(number)
    }

    /// Returns the place of the log writer with this pid.
    pub(crate) fn place_of_pid(&self, pid: i32) -> Option<Place> {
        self.writers.place_of_pid(pid)
    }

    /// Watches socket and alarm of the log writer with this number.
    pub(crate) fn try_watch(&self, number: u64, epoll: &Epoll) -> io::Result<()> {
        let Some(writer) = self.writers.with_number(number) else { return Ok(()) };
        epoll.watch(&writer.alarm, Token::Alarm(number))?;
        epoll.rewatch(&writer.channel, Token::Writer(number), writer.awaits_room)
    }
}
