//! Namespaces of a pod in a user namespace: that one, and those it owns, with no process in any of them.
//!
//! A namespace belongs to the user namespace of who makes it, so a short-lived child makes them, hands the descriptors
//! over, and ends. The caller's event loop watches [`Making::line`] meanwhile:
//!
//! ```text
//! caller ──clone(CLONE_NEWUSER), or clone and setns──▶ child
//!    │ writes the maps ─────────── G ────────────────▶ │ becomes root there
//!    │                                                 │ unshare(network, IPC, UTS), lo up, host name
//!    ◀──────────────── M [descriptors] ────────────────┘ ends
//! ```

use rustix::{
    fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    fs::{CWD, Mode, OFlags, openat},
    process::{DumpableBehavior, set_dumpable_behavior},
    thread::{ThreadNameSpaceType, UnshareFlags, move_into_thread_name_spaces},
};
use syscall::clone::Clone3;

use crate::{
    Error,
    error::During,
    forerunner::become_its_root,
    id_mappings::IdMappings,
    namespaces,
    sync::{self, ChildEnd, Said},
    user_namespace::write_maps,
};

/// What is to be made.
#[derive(Debug, Default)]
pub struct OwnedNamespaces {
    /// Maps of a new user namespace; ignored where one is given.
    pub uids: Vec<oci::IdMapping>,
    /// The same for groups.
    pub gids: Vec<oci::IdMapping>,
    /// One that is there already, and shall own the others.
    pub user: Option<OwnedFd>,
    /// A network namespace with `lo` up.
    pub network: bool,
    /// An IPC namespace.
    pub ipc: bool,
    /// A UTS namespace with this host name.
    pub hostname: Option<String>,
}

/// Descriptors of what was made.
#[derive(Debug)]
pub struct MadeNamespaces {
    /// The owner of the others, new or given.
    pub user: OwnedFd,
    /// As asked for.
    pub network: Option<OwnedFd>,
    /// As asked for.
    pub ipc: Option<OwnedFd>,
    /// As asked for.
    pub uts: Option<OwnedFd>,
}

/// A child at work. It is to be reaped by the caller, as any.
#[derive(Debug)]
pub struct Making {
    /// Its pid.
    pub pid: i32,
    line: OwnedFd,
    wanted: OwnedNamespaces,
}

impl OwnedNamespaces {
    /// Clones the child that makes them. The caller must have one thread. Blocks for no longer than the clone takes.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for maps that the kernel would refuse; what clone(2) says, or
    /// the file of a map.
    pub fn make(self) -> Result<Making, Error> {
        let maps = match self.user {
            Some(_) => None,
            None => Some(IdMappings::parse("linux", &self.uids, &self.gids)?.with_root()?),
        };
        let (line, childs) = sync::pair()?;
        let end = ChildEnd::new(childs, None);
        let namespaces = maps.is_some().then_some(UnshareFlags::NEWUSER);
        let child = Clone3 { namespaces, ..Clone3::default() }.fork(|| match self.work(&end) {
            Ok(()) => 0,
            Err(error) => {
                end.failed(&error);
                1
            }
        });
        let child = child.map_err(|error| {
            let limit = "/proc/sys/user/max_user_namespaces may forbid it";
            Error::system(format!("clone into a new user namespace ({limit})"), error)
        })?;
        // Without its maps it waits, until this end is closed.
        if let Some(maps) = maps {
            write_maps(&maps, child.pid)?;
        }
        // One that is gone already says why to who listens next.
        let _ = sync::go(line.as_fd());
        Ok(Making { pid: child.pid, line, wanted: self })
    }

    fn kinds(&self) -> UnshareFlags {
        let all = [
            (self.network, UnshareFlags::NEWNET),
            (self.ipc, UnshareFlags::NEWIPC),
            (self.hostname.is_some(), UnshareFlags::NEWUTS),
        ];
        all.into_iter().filter(|(wanted, _)| *wanted).map(|(_, flag)| flag).collect()
    }

    /// In the child.
    fn work(&self, end: &ChildEnd) -> Result<(), Error> {
        // Whoever is in the user namespace already shall not look into it, nor shall it keep what is the caller's open.
        set_dumpable_behavior(DumpableBehavior::NotDumpable).during(|| "become non-dumpable")?;
        let mut kept = vec![0, 1, 2, end.as_fd().as_raw_fd()];
        kept.extend(self.user.as_ref().map(AsRawFd::as_raw_fd));
        syscall::descriptors::close_all_but(&mut kept).during(|| "close the caller's descriptors")?;
        end.wait_for_go()?;
        if let Some(user) = &self.user {
            move_into_thread_name_spaces(user.as_fd(), ThreadNameSpaceType::USER)
                .during(|| "join the user namespace of the pod")?;
        }
        become_its_root(false)?;
        syscall::clone::unshare_process(self.kinds())
            .map_err(|error| namespaces::refused(format!("make new namespaces ({:?})", self.kinds()), error))?;
        if self.network {
            syscall::loopback::up().map_err(|error| Error::system("set lo up in the new network namespace", error))?;
        }
        if let Some(name) = &self.hostname {
            rustix::system::sethostname(name.as_bytes()).during(|| format!("set hostname {name:?}"))?;
        }
        let open = |file: &&str| {
            let path = format!("/proc/self/ns/{file}");
            openat(CWD, path.as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                .during(|| format!("open {path}"))
        };
        let files = self.files().iter().map(open).collect::<Result<Vec<_>, _>>()?;
        end.made(&files.iter().map(AsFd::as_fd).collect::<Vec<_>>())
    }

    /// Below `/proc/self/ns`, in the order they are handed over.
    fn files(&self) -> Vec<&'static str> {
        let all = [(true, "user"), (self.network, "net"), (self.ipc, "ipc"), (self.hostname.is_some(), "uts")];
        all.into_iter().filter(|(wanted, _)| *wanted).map(|(_, file)| file).collect()
    }
}

impl Making {
    /// Readable when [`Making::advance`] has something to say.
    pub fn line(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }

    /// What was made; `None`: not yet. Never blocks.
    ///
    /// # Errors
    /// The step that failed; the child ends.
    pub fn advance(&mut self) -> Result<Option<MadeNamespaces>, Error> {
        match sync::listen(self.line.as_fd())? {
            Said::Nothing => Ok(None),
            Said::Made(files) if files.len() == self.wanted.files().len() => {
                let mut files = files.into_iter();
                let mut next = |wanted: bool| if wanted { files.next() } else { None };
                let Some(user) = next(true) else { return Err(ended()) };
                let network = next(self.wanted.network);
                let ipc = next(self.wanted.ipc);
                Ok(Some(MadeNamespaces { user, network, ipc, uts: next(self.wanted.hostname.is_some()) }))
            }
            Said::Failed(error) => Err(error),
            _ => Err(ended()),
        }
    }
}

fn ended() -> Error {
    Error::system("make the namespaces of a pod: the process that made them ended", rustix::io::Errno::CHILD)
}
