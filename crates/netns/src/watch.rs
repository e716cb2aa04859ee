//! Watching a directory of pins.
//!
//! The kernel's events are hints: each names a pin that is then looked at, and compared by identity with what it was
//! before. So events that were merged or lost never show a wrong namespace, and a full queue costs one scan.
//!
//! ```text
//!               file without a namespace        namespace
//!   absent ───────────── Created ──────▶ unready ── Ready ──▶ ready(id) ── Gone, Ready ──▶ ready(other id)
//!     │                                                         ▲  │
//!     └─────────────────────────── Ready ───────────────────────┘  └── Gone ──▶ absent or unready
//! ```

mod hints;
mod look;

use std::{
    collections::{BTreeSet, HashMap, VecDeque, hash_map::Entry},
    path::Path,
    time::{Duration, Instant},
};

use rustix::{
    fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    io::Errno,
};

use crate::{Error, NsId, PinDir};
use hints::{Hint, Hints};
use look::look;

/// How often files that are not yet namespaces are looked at on kernels that do not report mounts, and whatever could not be
/// looked at because of an error.
const RECHECK: Duration = Duration::from_millis(20);

/// A change of a pin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// A file of this name appeared, without a namespace: a program like ip(8) is about to mount one. Pins of this crate
    /// are never seen in this state.
    Created {
        /// Name of the pin.
        name: String,
    },
    /// The namespace can be entered.
    Ready {
        /// Name of the pin.
        name: String,
        /// Which namespace it is.
        id: NsId,
    },
    /// The pin is gone. Its namespace exists as long as something else keeps it alive.
    Gone {
        /// Name of the pin.
        name: String,
        /// Which namespace it was; `None` if it never was ready.
        id: Option<NsId>,
    },
    /// The kernel dropped events, and the directory was read again. What was missed follows, except for pins that
    /// appeared and disappeared in the meantime.
    Rescanned,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pin {
    Unready { announced: bool },
    Ready { id: NsId, mount: Option<u64> },
}

/// A watch on a directory of pins, such as `/run/netns`. It first returns those that exist.
///
/// With `FAN_REPORT_MNT` (Linux 6.15) the kernel reports mounts; before, it only reports the names of files, and pins that
/// other programs make (by a mount on a file that exists) are looked at every 20 ms until they are ready.
#[derive(Debug)]
pub struct Watch {
    hints: Hints,
    pins: HashMap<String, Pin>,
    /// Several names may be links to one mount.
    names_by_mount: HashMap<u64, BTreeSet<String>>,
    /// Hints that were read and not followed yet.
    unfollowed: VecDeque<Hint>,
    pending: VecDeque<WatchEvent>,
    rechecked: Instant,
    is_directory_gone: bool,
}

impl PinDir {
    /// Watches the public directory. The watch belongs to the mount namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel's error; `EMFILE` at the limit of `/proc/sys/user/max_inotify_instances`.
    pub fn watch(&self) -> Result<Watch, Error> {
        Watch::open(Hints::open(self.public(), Some(self.store()))?)
    }
}

impl Watch {
    /// Watches a directory that other programs pin namespaces in: `/run/netns`.
    ///
    /// # Errors
    /// See [`PinDir::watch`].
    pub fn directory(path: &Path) -> Result<Self, Error> {
        Self::open(Hints::open(path, None)?)
    }

    fn open(hints: Hints) -> Result<Self, Error> {
        let mut watch = Self {
            hints,
            pins: HashMap::new(),
            names_by_mount: HashMap::new(),
            unfollowed: VecDeque::new(),
            pending: VecDeque::new(),
            rechecked: Instant::now(),
            is_directory_gone: false,
        };
        watch.scan()?;
        Ok(watch)
    }

    /// Returns the next change; `None` if there is none yet. Never waits.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM` and other momentary errors: nothing is lost, and a later call continues. `ENOENT` when the directory
    /// was removed or moved, after the events that its pins are gone; it stays so.
    pub fn try_next(&mut self) -> Result<Option<WatchEvent>, Error> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Ok(Some(event));
            }
            if self.is_directory_gone {
                return Err(Error::path("watch", self.hints.path(), Errno::NOENT));
            }
            self.recheck()?;
            if self.unfollowed.is_empty() {
                self.hints.read(&mut self.unfollowed)?;
            }
            if self.unfollowed.is_empty() {
                return Ok(self.pending.pop_front());
            }
            while let Some(hint) = self.unfollowed.pop_front() {
                if let Err((hint, error)) = self.follow(hint) {
                    self.unfollowed.push_front(hint);
                    self.rechecked = Instant::now();
                    return Err(error);
                }
            }
        }
    }

    /// Waits for the next change; returns `None` when the time is over.
    ///
    /// # Errors
    /// See [`Watch::try_next`].
    pub fn next_within(&mut self, timeout: Duration) -> Result<Option<WatchEvent>, Error> {
        // `None`: later than the clock can show.
        let end = Instant::now().checked_add(timeout);
        loop {
            let event = self.try_next()?;
            let remaining = end.map_or(timeout, |end| end.saturating_duration_since(Instant::now()));
            if event.is_some() || remaining.is_zero() {
                return Ok(event);
            }
            self.hints.wait(self.recheck_within().map_or(remaining, |recheck| recheck.min(remaining)))?;
        }
    }

    /// Returns after which time [`Watch::try_next`] must be called even if the descriptor is not readable; `None` if it
    /// need not be.
    #[must_use]
    pub fn recheck_within(&self) -> Option<Duration> {
        let needed = self.has_unreported_mounts() || !self.unfollowed.is_empty();
        needed.then(|| RECHECK.saturating_sub(self.rechecked.elapsed()))
    }

    /// Reports whether pins may become ready without a hint.
    fn has_unreported_mounts(&self) -> bool {
        !self.hints.reports_mounts() && self.pins.values().any(|pin| matches!(pin, Pin::Unready { .. }))
    }

    fn recheck(&mut self) -> Result<(), Error> {
        if !self.has_unreported_mounts() || self.recheck_within().is_none_or(|remaining| !remaining.is_zero()) {
            return Ok(());
        }
        self.rechecked = Instant::now();
        let unready = self.pins.iter().filter(|(_, pin)| matches!(pin, Pin::Unready { .. }));
        for name in unready.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.look_at(&name)?;
        }
        Ok(())
    }

    /// Looks at what a hint is about. Returns the hint with the error if it must be followed again.
    fn follow(&mut self, hint: Hint) -> Result<(), (Hint, Error)> {
        match hint {
            Hint::Name(name) => self.look_at(&name).map_err(|error| (Hint::Name(name), error)),
            Hint::Detached(mount) => {
                let names = self.names_by_mount.get(&mount).cloned().unwrap_or_default();
                let looked = names.iter().try_for_each(|name| self.look_at(name));
                looked.map_err(|error| (Hint::Detached(mount), error))
            }
            Hint::Lost => {
                self.pending.push_back(WatchEvent::Rescanned);
                self.follow(Hint::Unknown)
            }
            Hint::Unknown => self.scan().map_err(|error| (Hint::Unknown, error)),
            Hint::DirectoryGone => {
                self.forget_all();
                Ok(())
            }
        }
    }

    /// Looks at every name that is in the directory or was.
    fn scan(&mut self) -> Result<(), Error> {
        let mut names = self.hints.names()?;
        names.extend(self.pins.keys().cloned());
        names.sort();
        names.dedup();
        names.iter().try_for_each(|name| self.look_at(name))
    }

    /// Reports all pins as gone: what is at their paths now is not in the directory that is watched.
    fn forget_all(&mut self) {
        self.is_directory_gone = true;
        self.unfollowed.clear();
        self.names_by_mount.clear();
        let mut pins: Vec<(String, Pin)> = self.pins.drain().collect();
        pins.sort_by(|(one, _), (other, _)| one.cmp(other));
        self.pending.extend(pins.iter().flat_map(|(name, pin)| changes(name, Some(*pin), None)));
    }

    fn look_at(&mut self, name: &str) -> Result<(), Error> {
        let now = look(&self.hints.path().join(name))?;
        let before = match self.pins.entry(name.to_owned()) {
            Entry::Occupied(entry) => Some(entry.remove()),
            Entry::Vacant(_) => None,
        };
        let announced = match (before, now) {
            (Some(Pin::Unready { announced }), Some(Pin::Unready { .. })) => announced,
            (_, Some(Pin::Unready { .. })) => before.is_none(),
            _ => false,
        };
        self.pending.extend(changes(name, before, now));
        if let Some(Pin::Ready { mount: Some(mount), .. }) = before {
            self.forget_mount(mount, name);
        }
        match now {
            Some(pin @ Pin::Ready { mount, .. }) => {
                if let Some(mount) = mount {
                    self.names_by_mount.entry(mount).or_default().insert(name.to_owned());
                }
                self.pins.insert(name.to_owned(), pin);
            }
            Some(Pin::Unready { .. }) => drop(self.pins.insert(name.to_owned(), Pin::Unready { announced })),
            None => {}
        }
        Ok(())
    }

    fn forget_mount(&mut self, mount: u64, name: &str) {
        if let Some(names) = self.names_by_mount.get_mut(&mount) {
            names.remove(name);
            if names.is_empty() {
                self.names_by_mount.remove(&mount);
            }
        }
    }
}

impl AsFd for Watch {
    /// Returns a descriptor that is readable when there are changes.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.hints.as_fd()
    }
}

impl AsRawFd for Watch {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

fn changes(name: &str, before: Option<Pin>, now: Option<Pin>) -> Vec<WatchEvent> {
    let (old, new) = match (before, now) {
        (Some(Pin::Ready { id, .. }), _) => (Some(id), now),
        _ => (None, now),
    };
    if let (Some(old), Some(Pin::Ready { id, .. })) = (old, new)
        && old == id
    {
        return Vec::new();
    }
    let name = || name.to_owned();
    let mut events = Vec::new();
    if old.is_some() || matches!((before, now), (Some(Pin::Unready { announced: true }), None)) {
        events.push(WatchEvent::Gone { name: name(), id: old });
    }
    match now {
        Some(Pin::Ready { id, .. }) => events.push(WatchEvent::Ready { name: name(), id }),
        Some(Pin::Unready { .. }) if before.is_none() => events.push(WatchEvent::Created { name: name() }),
        _ => {}
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_reported_once() {
        let ready = |id| Some(Pin::Ready { id: NsId(id), mount: None });
        let unready = |announced| Some(Pin::Unready { announced });
        let name = || "a".to_owned();
        let (created, gone) = (WatchEvent::Created { name: name() }, |id| WatchEvent::Gone { name: name(), id });
        let is_ready = |id| WatchEvent::Ready { name: name(), id: NsId(id) };
        assert_eq!(changes("a", None, None), []);
        assert_eq!(changes("a", None, ready(1)), [is_ready(1)]);
        assert_eq!(changes("a", None, unready(false)), [created]);
        assert_eq!(changes("a", unready(true), ready(1)), [is_ready(1)]);
        assert_eq!(changes("a", ready(1), ready(1)), []);
        assert_eq!(changes("a", ready(1), ready(2)), [gone(Some(NsId(1))), is_ready(2)]);
        assert_eq!(changes("a", ready(1), unready(false)), [gone(Some(NsId(1)))]);
        assert_eq!(changes("a", ready(1), None), [gone(Some(NsId(1)))]);
        assert_eq!(changes("a", unready(true), None), [gone(None)]);
        assert_eq!(changes("a", unready(false), None), []);
        assert_eq!(changes("a", unready(true), unready(false)), []);
    }
}
