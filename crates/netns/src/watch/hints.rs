//! The kernel's events about a directory: names by inotify(7), mounts by fanotify(7).

use std::{
    collections::VecDeque,
    fs,
    mem::MaybeUninit,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, epoll, poll},
    fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    fs::{
        CWD, Mode, OFlags,
        inotify::{self, ReadFlags, WatchFlags},
        openat,
    },
    io::Errno,
};
use syscall::mount_watch::{MountEvent, MountWatch, mount_point};

use crate::Error;

/// Most pieces of the queues that are read for one hint; after that changes may have been missed.
const READS_MAX: usize = 64;

/// What may have changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Hint {
    /// The file of this name.
    Name(String),
    /// A mount with this unique id is gone.
    Detached(u64),
    /// Anything: events were dropped.
    Lost,
    /// Anything, after the loss was reported.
    Unknown,
    /// The directory was removed or moved.
    DirectoryGone,
}

/// Queues of the kernel's events.
#[derive(Debug)]
pub(super) struct Hints {
    path: PathBuf,
    /// Directories whose mounts are pins, without symbolic links.
    mounted_in: Vec<PathBuf>,
    names: OwnedFd,
    mounts: Option<MountWatch>,
    /// An epoll instance with both queues.
    both: OwnedFd,
}

impl Hints {
    pub(super) fn open(public: &Path, store: Option<&Path>) -> Result<Self, Error> {
        let fail = |e: Errno| Error::path("watch", public, e);
        let directory = open_directory(public).map_err(fail)?;
        let names = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).map_err(fail)?;
        let changes = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVED_FROM | WatchFlags::MOVED_TO;
        let flags = changes | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF | WatchFlags::ONLYDIR;
        // By descriptor: the path may lead to another directory by now.
        inotify::add_watch(&names, format!("/proc/self/fd/{}", directory.as_raw_fd()), flags).map_err(fail)?;
        let mut mounted_in = vec![resolved(&directory).map_err(|e| Error::path("watch", public, e))?];
        if let Some(store) = store {
            let fail = |e: std::io::Error| Error::path("watch", store, e);
            let opened = open_directory(store).map_err(|e| fail(e.into()))?;
            mounted_in.push(resolved(&opened).map_err(fail)?);
        }
        // Not before Linux 6.15; names alone are enough for pins of this crate.
        let mounts = MountWatch::of_this_thread().ok();
        let both = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(fail)?;
        let watch = |queue: BorrowedFd<'_>| {
            epoll::add(&both, queue, epoll::EventData::new_u64(0), epoll::EventFlags::IN).map_err(fail)
        };
        watch(names.as_fd())?;
        mounts.as_ref().map_or(Ok(()), |mounts| watch(mounts.as_fd()))?;
        Ok(Self { path: public.to_owned(), mounted_in, names, mounts, both })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn reports_mounts(&self) -> bool {
        self.mounts.is_some()
    }

    /// Returns the names in the directory that may be pins.
    pub(super) fn names(&self) -> Result<Vec<String>, Error> {
        let fail = |e| Error::path("read", &self.path, e);
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(fail)? {
            names.extend(entry.map_err(fail)?.file_name().into_string().ok().filter(|name| is_pin(name)));
        }
        Ok(names)
    }

    /// Adds the hints that are there to `hints`; none if there are none yet. After an error, those that were read are in it.
    pub(super) fn read(&self, hints: &mut VecDeque<Hint>) -> Result<(), Error> {
        let before = hints.len();
        // Events of other directories must not hide those after them: a waiter may be woken once for all of them.
        for _ in 0..READS_MAX {
            let is_drained = self.read_names(hints)? & self.read_mounts(hints)?;
            if is_drained || hints.len() > before {
                return Ok(());
            }
        }
        hints.push_back(Hint::Lost);
        Ok(())
    }

    /// Reads one piece of the queue of names; returns whether it was the last one.
    fn read_names(&self, hints: &mut VecDeque<Hint>) -> Result<bool, Error> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.names, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => hints.extend(named(event.events(), event.file_name())),
                Err(Errno::AGAIN) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::path("watch", &self.path, errno)),
            }
            if reader.is_buffer_empty() {
                return Ok(false);
            }
        }
    }

    /// Reads one piece of the queue of mounts; returns whether it was empty.
    fn read_mounts(&self, hints: &mut VecDeque<Hint>) -> Result<bool, Error> {
        let Some(mounts) = &self.mounts else { return Ok(true) };
        let events = mounts.read().map_err(|e| Error::path("watch mounts in", &self.path, e))?;
        let is_empty = events.is_empty();
        hints.extend(events.into_iter().filter_map(|event| self.mounted(event)));
        Ok(is_empty)
    }

    fn mounted(&self, event: MountEvent) -> Option<Hint> {
        match event {
            MountEvent::Overflow => Some(Hint::Lost),
            MountEvent::Detached(mount) => Some(Hint::Detached(mount)),
            MountEvent::Attached(mount) => {
                let point = match mount_point(mount) {
                    Ok(point) => point,
                    Err(error) if error.kind() == std::io::ErrorKind::OutOfMemory => return Some(Hint::Unknown),
                    // The mount is gone already, or its path is longer than that of a pin.
                    Err(_) => return None,
                };
                let is_pin_of_ours = self.mounted_in.iter().any(|directory| point.parent() == Some(directory));
                let name = point.file_name()?.to_str()?;
                (is_pin_of_ours && is_pin(name)).then(|| Hint::Name(name.to_owned()))
            }
        }
    }

    pub(super) fn wait(&self, timeout: Duration) -> Result<(), Error> {
        let seconds = i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX);
        let timeout = Timespec { tv_sec: seconds, tv_nsec: timeout.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&self.both, PollFlags::IN)], Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(Error::path("watch", &self.path, errno)),
        }
    }
}

impl AsFd for Hints {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.both.as_fd()
    }
}

fn named(events: inotify::ReadFlags, name: Option<&std::ffi::CStr>) -> Option<Hint> {
    if events.contains(ReadFlags::QUEUE_OVERFLOW) {
        return Some(Hint::Lost);
    }
    if events.intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT) {
        return Some(Hint::DirectoryGone);
    }
    let name = name?.to_str().ok()?;
    is_pin(name).then(|| Hint::Name(name.to_owned()))
}

/// Reports whether a name can be that of a pin; hidden files are stores and files that are renamed later.
fn is_pin(name: &str) -> bool {
    !name.starts_with('.')
}

fn open_directory(path: &Path) -> rustix::io::Result<OwnedFd> {
    openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Returns the path of a directory without symbolic links.
fn resolved(directory: &OwnedFd) -> std::io::Result<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}
