//! Pins of the IPC, UTS and user namespaces of pods, for programs that enter them from outside: `ipcns/<pod>`, `utsns/<pod>`
//! and `userns/<pod>` below a directory, as CRI-O has them. The engine itself uses its descriptors.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use netns::PinDir;
use rustix::fd::BorrowedFd;

use crate::{Error, error::failed};

/// The link in the store to the directory with the pins.
const PUBLIC: &str = "public";

/// A kind of namespaces that is pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PinnedKind {
    Ipc,
    Uts,
    User,
}

impl PinnedKind {
    const ALL: [Self; 3] = [Self::Ipc, Self::Uts, Self::User];

    /// Returns the name of its directory.
    fn directory(self) -> &'static str {
        match self {
            Self::Ipc => "ipcns",
            Self::Uts => "utsns",
            Self::User => "userns",
        }
    }
}

/// The pins of all pods.
pub(crate) struct NamespacePins([PinDir; 3]);

impl NamespacePins {
    /// Opens the pins below `public`; `None` if namespaces are not to be pinned, or cannot be: pods do not depend on it.
    /// Removes those in another directory, which was configured earlier.
    pub(crate) fn open(store: &Path, public: Option<&Path>) -> Option<Self> {
        let opened = Self::leave_earlier(store, public).and_then(|()| match public {
            Some(public) => Self::enter(store, public).map(Some),
            None => Ok(None),
        });
        opened.unwrap_or_else(|error| {
            tracing::error!("namespaces of pods are not pinned: {error}");
            None
        })
    }

    fn leave_earlier(store: &Path, public: Option<&Path>) -> Result<(), Error> {
        let link = store.join(PUBLIC);
        let Ok(earlier) = fs::read_link(&link) else { return Ok(()) };
        if Some(earlier.as_path()) == public {
            return Ok(());
        }
        let pins = Self::at(store, &earlier)?;
        for pod in pins.pods()? {
            pins.unpin(&pod);
        }
        fs::remove_file(&link).map_err(failed(format_args!("remove {}", link.display())))
    }

    fn enter(store: &Path, public: &Path) -> Result<Self, Error> {
        let (link, pins) = (store.join(PUBLIC), Self::at(store, public)?);
        match std::os::unix::fs::symlink(public, &link) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(failed(format_args!("create {}", link.display()))(error))
            }
            _ => Ok(pins),
        }
    }

    fn at(store: &Path, public: &Path) -> Result<Self, Error> {
        let open = |kind: PinnedKind| {
            PinDir::open(&store.join(kind.directory()), &public.join(kind.directory())).map_err(failed("open the pins"))
        };
        let [ipc, uts, user] = PinnedKind::ALL;
        Ok(Self([open(ipc)?, open(uts)?, open(user)?]))
    }

    fn of(&self, kind: PinnedKind) -> &PinDir {
        &self.0[kind as usize]
    }

    /// Pins a namespace of a pod, in place of another one. A failure is logged: the pod does not depend on it.
    pub(crate) fn pin(&self, kind: PinnedKind, pod: &str, namespace: BorrowedFd<'_>) {
        if self.shows(kind, pod, namespace) {
            return;
        }
        let pins = self.of(kind);
        if let Err(error) = pins.unpin(pod).and_then(|()| pins.pin_namespace(pod, namespace)) {
            tracing::warn!(pod, "the {kind:?} namespace is not pinned: {error}");
        }
    }

    /// Reports whether this namespace is visible.
    fn shows(&self, kind: PinnedKind, pod: &str, namespace: BorrowedFd<'_>) -> bool {
        let visible = self.of(kind).path(pod).ok().and_then(|path| rustix::fs::stat(path).ok());
        let expected = rustix::fs::fstat(namespace).ok();
        visible.zip(expected).is_some_and(|(one, other)| (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
    }

    /// Removes the pins of a pod. What cannot be removed is logged, and left to the reconciler.
    pub(crate) fn unpin(&self, pod: &str) {
        for pins in &self.0 {
            if let Err(error) = pins.unpin(pod) {
                tracing::warn!(pod, "a namespace stays pinned: {error}");
            }
        }
    }

    /// Returns the pods of which a namespace is pinned.
    pub(crate) fn pods(&self) -> Result<BTreeSet<String>, Error> {
        let mut pods = BTreeSet::new();
        for pins in &self.0 {
            pods.extend(pins.list().map_err(failed("list the pins"))?);
        }
        Ok(pods)
    }

    /// Returns the directories in which the pins are visible.
    pub(crate) fn directories(public: &Path) -> [PathBuf; 3] {
        PinnedKind::ALL.map(|kind| public.join(kind.directory()))
    }
}
