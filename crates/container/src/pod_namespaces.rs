//! Namespaces of a pod in a user namespace: the user namespace and those it owns, with no process in any of them.
//!
//! A namespace belongs to the user namespace of its creator, so a short-lived child makes them, hands the descriptors
//! over, and exits. In the meantime the caller's event loop watches [`PodNamespaceSetup::socket`]:
//!
//! ```text
//! caller ──clone(CLONE_NEWUSER), or clone and setns──▶ child
//!    │ writes the maps ─────────── G ────────────────▶ │ becomes root there
//!    │                                                 │ unshare(network, IPC, UTS), lo up, host name
//!    ◀──────────────── M [descriptors] ────────────────┘ exits
//! ```

use rustix::{
    fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    fs::{CWD, Mode, OFlags, openat},
    process::{DumpableBehavior, Pid, set_dumpable_behavior},
    thread::{ThreadNameSpaceType, UnshareFlags, move_into_thread_name_spaces},
};
use syscall::clone::Clone3;

use crate::{
    Error,
    error::During,
    id_mappings::IdMappings,
    namespaces,
    sync::{self, ChildEnd, ChildMessage},
    user_namespace::{become_root_in_user_namespace, write_maps},
};

/// The namespaces to make.
#[derive(Debug, Default)]
pub struct PodNamespaceRequest {
    /// The uid map of a new user namespace; ignored if `user` is given.
    pub uids: Vec<oci::IdMapping>,
    /// The gid map of a new user namespace; ignored if `user` is given.
    pub gids: Vec<oci::IdMapping>,
    /// An existing user namespace that is to own the others.
    pub user: Option<OwnedFd>,
    /// Whether to make a network namespace, with `lo` up.
    pub network: bool,
    /// Whether to make an IPC namespace.
    pub ipc: bool,
    /// Makes a UTS namespace with this host name.
    pub hostname: Option<String>,
}

/// Descriptors of a pod's namespaces.
#[derive(Debug)]
pub struct PodNamespaces {
    /// The user namespace that owns the others, new or given.
    pub user: OwnedFd,
    /// The network namespace, if it was requested.
    pub network: Option<OwnedFd>,
    /// The IPC namespace, if it was requested.
    pub ipc: Option<OwnedFd>,
    /// The UTS namespace, if it was requested.
    pub uts: Option<OwnedFd>,
}

/// A running child that makes the namespaces. The caller must reap it.
#[derive(Debug)]
pub struct PodNamespaceSetup {
    /// The child's pid.
    pub pid: Pid,
    socket: OwnedFd,
    request: PodNamespaceRequest,
}

impl PodNamespaceRequest {
    /// Clones the child that makes the namespaces. The caller must be single-threaded. Blocks only for the clone.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for maps that the kernel would refuse; otherwise those of
    /// clone(2) and of writing the maps.
    pub fn make(self) -> Result<PodNamespaceSetup, Error> {
        let maps = match self.user {
            Some(_) => None,
            None => Some(IdMappings::parse("linux", &self.uids, &self.gids)?.with_root()?),
        };
        let (socket, child_socket) = sync::pair()?;
        let end = ChildEnd::new(child_socket, None);
        let namespaces = maps.is_some().then_some(UnshareFlags::NEWUSER);
        let child = Clone3 { namespaces, ..Clone3::default() }.fork(|| match self.make_in_child(&end) {
            Ok(()) => 0,
            Err(error) => {
                end.send_failure(&error);
                1
            }
        });
        let child = child.map_err(|error| {
            let limit = "/proc/sys/user/max_user_namespaces may forbid it";
            Error::system(format!("clone into a new user namespace ({limit})"), error)
        })?;
        // The child waits for its maps, or until this end is closed.
        if let Some(maps) = maps {
            write_maps(&maps, child.pid)?;
        }
        // One that has exited already has sent its error, which `advance` returns.
        let _ = sync::send_go(socket.as_fd());
        Ok(PodNamespaceSetup { pid: child.pid, socket, request: self })
    }

    fn kinds(&self) -> UnshareFlags {
        let all = [
            (self.network, UnshareFlags::NEWNET),
            (self.ipc, UnshareFlags::NEWIPC),
            (self.hostname.is_some(), UnshareFlags::NEWUTS),
        ];
        all.into_iter().filter(|(requested, _)| *requested).map(|(_, flag)| flag).collect()
    }

    /// Makes the namespaces in the child.
    fn make_in_child(&self, end: &ChildEnd) -> Result<(), Error> {
        // Processes in the user namespace must not inspect the child, and it must not keep the caller's files open.
        set_dumpable_behavior(DumpableBehavior::NotDumpable).during(|| "become non-dumpable")?;
        let mut keep = vec![0, 1, 2, end.as_fd().as_raw_fd()];
        keep.extend(self.user.as_ref().map(AsRawFd::as_raw_fd));
        syscall::descriptors::close_all_except(&mut keep).during(|| "close the caller's descriptors")?;
        end.wait_for_go()?;
        if let Some(user) = &self.user {
            move_into_thread_name_spaces(user.as_fd(), ThreadNameSpaceType::USER)
                .during(|| "join the user namespace of the pod")?;
        }
        become_root_in_user_namespace(false)?;
        syscall::clone::unshare_process(self.kinds())
            .map_err(|error| namespaces::creation_error(format!("make new namespaces ({:?})", self.kinds()), error))?;
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
        end.send_namespaces(&files.iter().map(AsFd::as_fd).collect::<Vec<_>>())
    }

    /// Returns the names below `/proc/self/ns`, in the order in which the descriptors are handed over.
    fn files(&self) -> Vec<&'static str> {
        let all = [(true, "user"), (self.network, "net"), (self.ipc, "ipc"), (self.hostname.is_some(), "uts")];
        all.into_iter().filter(|(requested, _)| *requested).map(|(_, file)| file).collect()
    }
}

impl PodNamespaceSetup {
    /// Returns the socket that becomes readable when [`PodNamespaceSetup::advance`] has something to report.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns the namespaces; `None`: they are not made yet. Never blocks.
    ///
    /// # Errors
    /// A step failed; the child exits.
    pub fn advance(&mut self) -> Result<Option<PodNamespaces>, Error> {
        match sync::receive(self.socket.as_fd())? {
            ChildMessage::Pending => Ok(None),
            ChildMessage::Namespaces(files) if files.len() == self.request.files().len() => {
                let mut files = files.into_iter();
                let mut next = |requested: bool| if requested { files.next() } else { None };
                let Some(user) = next(true) else { return Err(child_exited()) };
                let network = next(self.request.network);
                let ipc = next(self.request.ipc);
                Ok(Some(PodNamespaces { user, network, ipc, uts: next(self.request.hostname.is_some()) }))
            }
            ChildMessage::Failed(error) => Err(error),
            _ => Err(child_exited()),
        }
    }
}

fn child_exited() -> Error {
    Error::system("make the namespaces of a pod: the process that made them ended", rustix::io::Errno::CHILD)
}
