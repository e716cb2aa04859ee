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
    /// Opens the pins below `public`; `None` if namespaces are not to be pinned. Removes those in another directory, which
    /// was configured earlier.
    pub(crate) fn open(store: &Path, public: Option<&Path>) -> Result<Option<Self>, Error> {
        let link = store.join(PUBLIC);
        match fs::read_link(&link) {
            Ok(earlier) if Some(earlier.as_path()) != public => {
                Self::at(store, &earlier)?.remove_all(|_| false)?;
                fs::remove_file(&link).map_err(failed(format_args!("remove {}", link.display())))?;
            }
            _ => {}
        }
        let Some(public) = public else { return Ok(None) };
        let pins = Self::at(store, public)?;
        match std::os::unix::fs::symlink(public, &link) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(failed(format_args!("create {}", link.display()))(error))
            }
            _ => Ok(Some(pins)),
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

    /// Pins a namespace of a pod in place of the one that is pinned.
    pub(crate) fn pin(&self, kind: PinnedKind, pod: &str, namespace: BorrowedFd<'_>) -> Result<(), Error> {
        let (pins, context) = (self.of(kind), || format!("pin the {kind:?} namespace"));
        match pins.pin_namespace(pod, namespace) {
            Err(netns::Error::Exists(_)) => {
                pins.unpin(pod).map_err(failed(context()))?;
                pins.pin_namespace(pod, namespace).map(drop).map_err(failed(context()))
            }
            pinned => pinned.map(drop).map_err(failed(context())),
        }
    }

    /// Reports whether a namespace of a pod is pinned.
    pub(crate) fn is_pinned(&self, kind: PinnedKind, pod: &str) -> bool {
        self.of(kind).is_pinned(pod).unwrap_or(false)
    }

    /// Removes the pins of a pod. All are tried.
    pub(crate) fn unpin(&self, pod: &str) -> Result<(), Error> {
        let mut first = Ok(());
        for pins in &self.0 {
            first = first.and(pins.unpin(pod).map_err(failed("unpin a namespace")));
        }
        first
    }

    /// Removes the pins of all pods that `is_alive` does not accept.
    pub(crate) fn remove_all(&self, is_alive: impl Fn(&str) -> bool) -> Result<(), Error> {
        let mut pods = BTreeSet::new();
        for pins in &self.0 {
            pods.extend(pins.list().map_err(failed("list the pins"))?);
        }
        pods.iter().filter(|pod| !is_alive(pod)).try_for_each(|pod| self.unpin(pod))
    }

    /// Returns the directories in which the pins are visible.
    pub(crate) fn directories(public: &Path) -> [PathBuf; 3] {
        PinnedKind::ALL.map(|kind| public.join(kind.directory()))
    }
}
