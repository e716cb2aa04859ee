//! `linux.namespaces`: new and joined namespaces of a container.

use std::{collections::BTreeMap, sync::OnceLock};

use oci::NamespaceType;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
    thread::{ThreadNameSpaceType, UnshareFlags, move_into_thread_name_spaces},
};

use crate::{Error, error::During, id_mappings::IdMappings, user_namespace::UserNamespace};

/// The PID namespace that the child is cloned into.
#[derive(Debug)]
pub(crate) enum PidNamespace {
    /// The caller's.
    Same,
    /// A new one.
    New,
    /// An existing one.
    Join(OwnedFd),
}

/// The mount namespace that the container's mounts are made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MountNamespace {
    /// A new one.
    New,
    /// An existing one, whose root becomes the container's.
    Joined,
    /// The caller's: the container's mounts are visible there, below the root's path.
    Same,
}

/// Which namespaces are new and which are joined.
#[derive(Debug)]
pub(crate) struct Namespaces {
    pub(crate) pid: PidNamespace,
    pub(crate) user: UserNamespace,
    pub(crate) mount: MountNamespace,
    /// Whether there is a new time namespace, which only children of the process that makes it enter.
    new_time: bool,
    /// Whether there is a new cgroup namespace, made separately once the child is in its groups.
    pub(crate) new_cgroup: bool,
    new: UnshareFlags,
    join: Vec<(NamespaceType, OwnedFd)>,
    /// The mount namespace to copy; `None`: the caller's.
    staging: Option<OwnedFd>,
}

impl Namespaces {
    /// Opens the namespaces to join and checks their kinds.
    pub(crate) fn parse(linux: &oci::Linux, mut given: BTreeMap<NamespaceType, OwnedFd>) -> Result<Self, Error> {
        let mut result = Self {
            pid: PidNamespace::Same,
            user: UserNamespace::Same,
            mount: MountNamespace::Same,
            new_time: false,
            new_cgroup: false,
            new: UnshareFlags::empty(),
            join: Vec::new(),
            staging: None,
        };
        let mut seen = Vec::new();
        for entry in &linux.namespaces {
            if seen.contains(&entry.kind) {
                return Err(Error::invalid(format!("linux.namespaces: {} is listed twice", entry.kind.name())));
            }
            seen.push(entry.kind);
            let fd = match (given.remove(&entry.kind), entry.path.as_deref()) {
                (Some(fd), _) => Some(fd),
                (None, None | Some("")) => None,
                (None, Some(path)) => Some(open(entry.kind, path)?),
            };
            result.add(entry.kind, fd, linux)?;
        }
        for (kind, fd) in given {
            result.add(kind, Some(fd), linux)?;
        }
        if result.user.is_other() && result.mount == MountNamespace::Same {
            let reason = "from a user namespace mounting in the caller's is not permitted";
            return Err(Error::invalid(format!(
                "linux.namespaces: a user namespace needs a mount namespace: {reason}"
            )));
        }
        // Joining a mount namespace changes what paths refer to, so it comes last.
        result.join.sort_by_key(|(kind, _)| *kind == NamespaceType::Mount);
        let mapped = !linux.uid_mappings.is_empty() || !linux.gid_mappings.is_empty();
        if mapped && !result.user.is_other() {
            return Err(Error::invalid("linux.uidMappings: linux.namespaces has no user namespace"));
        }
        Ok(result)
    }

    fn add(&mut self, kind: NamespaceType, fd: Option<OwnedFd>, linux: &oci::Linux) -> Result<(), Error> {
        if let Some(fd) = &fd {
            check_kind(kind, fd.as_fd())?;
        }
        match (kind, fd) {
            (NamespaceType::User, None) => {
                let mappings = IdMappings::parse("linux", &linux.uid_mappings, &linux.gid_mappings)?;
                self.user = UserNamespace::New(mappings.with_root()?);
            }
            // The kernel refuses to enter the current user namespace again.
            (NamespaceType::User, Some(fd)) if is_callers(kind, &fd)? => {}
            (NamespaceType::User, Some(fd)) => {
                // Engines repeat the maps of a joined namespace; without them its ids are not known here.
                let has_maps = !(linux.uid_mappings.is_empty() || linux.gid_mappings.is_empty());
                let parse = || IdMappings::parse("linux", &linux.uid_mappings, &linux.gid_mappings)?.with_root();
                self.user = UserNamespace::Join(fd, has_maps.then(parse).transpose()?);
            }
            (NamespaceType::Time, None) => self.new_time = true,
            (NamespaceType::Mount, Some(fd)) if is_callers(kind, &fd)? => {}
            (NamespaceType::Mount, Some(fd)) => {
                self.mount = MountNamespace::Joined;
                self.join.push((kind, fd));
            }
            (NamespaceType::Mount, None) => {
                self.mount = MountNamespace::New;
                self.new |= UnshareFlags::NEWNS;
            }
            (NamespaceType::Pid, None) => self.pid = PidNamespace::New,
            (NamespaceType::Pid, Some(fd)) => self.pid = PidNamespace::Join(fd),
            (NamespaceType::Cgroup, None) => self.new_cgroup = true,
            (kind, None) => self.new |= UnshareFlags::from_bits_retain(flag(kind).bits()),
            (kind, Some(fd)) => self.join.push((kind, fd)),
        }
        Ok(())
    }

    /// Whether the container has a new or joined namespace of this kind, and not the caller's.
    pub(crate) fn has(&self, kind: NamespaceType) -> bool {
        match kind {
            NamespaceType::Pid => !matches!(self.pid, PidNamespace::Same),
            NamespaceType::Cgroup => self.new_cgroup || self.joins(kind),
            NamespaceType::User => self.user.is_other(),
            NamespaceType::Time => self.new_time || self.joins(kind),
            kind => self.new.bits() & flag(kind).bits() != 0 || self.joins(kind),
        }
    }

    /// Whether the container's init must be cloned by an intermediate process: only children of a process that entered
    /// a user namespace can be in a PID namespace that it owns, and only children of a process that made a time
    /// namespace are in it.
    pub(crate) fn needs_intermediate(&self) -> bool {
        self.user.is_other() || self.new_time
    }

    /// Whether there is a new time namespace.
    pub(crate) fn new_time(&self) -> bool {
        self.new_time
    }

    /// Whether the container joins a cgroup namespace.
    pub(crate) fn joins_cgroup(&self) -> bool {
        self.joins(NamespaceType::Cgroup)
    }

    fn joins(&self, kind: NamespaceType) -> bool {
        self.join.iter().any(|(joined, _)| *joined == kind)
    }

    /// Returns the descriptors that the child needs.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.join.iter().map(|(_, fd)| fd).chain(&self.staging).map(AsFd::as_fd)
    }

    /// Returns the descriptors that the intermediate process needs in addition.
    pub(crate) fn intermediate_descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let user = if let UserNamespace::Join(fd, _) = &self.user { Some(fd) } else { None };
        let pid = if let PidNamespace::Join(fd) = &self.pid { Some(fd) } else { None };
        user.into_iter().chain(pid).map(AsFd::as_fd)
    }

    /// Makes the new mount namespace a copy of `staging`.
    pub(crate) fn set_staging(&mut self, staging: OwnedFd) -> Result<(), Error> {
        check_kind(NamespaceType::Mount, staging.as_fd())?;
        self.staging = Some(staging);
        Ok(())
    }

    /// Joins namespaces, then makes the new ones, all but PID, cgroup, user and time. Runs in the child.
    pub(crate) fn enter(&self) -> Result<(), Error> {
        // A child of an intermediate process is in these already.
        if !self.needs_intermediate() {
            self.join.iter().try_for_each(|(kind, fd)| join(*kind, fd))?;
            self.enter_staging()?;
        }
        syscall::clone::unshare_process(self.new)
            .map_err(|error| creation_error(format!("make new namespaces ({:?})", self.new), error))?;
        if self.new.contains(UnshareFlags::NEWNET) {
            // As every runtime does; engines do not set lo up in a namespace that the runtime made.
            let up = syscall::loopback::up();
            up.map_err(|error| Error::system("set lo up in the new network namespace", error))?;
        }
        Ok(())
    }
}

impl Namespaces {
    /// Enters the mount namespace to copy, if there is one.
    pub(crate) fn enter_staging(&self) -> Result<(), Error> {
        match &self.staging {
            Some(staging) => move_into_thread_name_spaces(staging.as_fd(), ThreadNameSpaceType::MOUNT)
                .during(|| "enter the staging mount namespace"),
            None => Ok(()),
        }
    }

    /// Joins the namespaces that the caller's privileges reach: those owned by a user namespace that it has privileges
    /// in. Returns the remaining kinds, which the container's user namespace should own. Runs in the intermediate
    /// process.
    pub(crate) fn join_with_callers_privileges(&self) -> Result<Vec<NamespaceType>, Error> {
        let mut remaining = Vec::new();
        for (kind, fd) in self.joined() {
            match move_into_thread_name_spaces(fd, flag(kind)) {
                Err(Errno::PERM) => remaining.push(kind),
                result => result.during(|| format!("join the {} namespace", kind.name()))?,
            }
        }
        Ok(remaining)
    }

    /// Joins the `remaining` namespaces with the privileges of the container's user namespace. Runs in the intermediate
    /// process.
    pub(crate) fn join_remaining(&self, remaining: &[NamespaceType]) -> Result<(), Error> {
        self.joined().filter(|(kind, _)| remaining.contains(kind)).try_for_each(|(kind, fd)| {
            move_into_thread_name_spaces(fd, flag(kind)).during(|| {
                format!(
                    "join the {} namespace, which neither the caller nor the container's user namespace owns",
                    kind.name()
                )
            })
        })
    }

    fn joined(&self) -> impl Iterator<Item = (NamespaceType, BorrowedFd<'_>)> {
        let pid = match &self.pid {
            PidNamespace::Join(fd) => Some((NamespaceType::Pid, fd.as_fd())),
            _ => None,
        };
        pid.into_iter().chain(self.join.iter().map(|(kind, fd)| (*kind, fd.as_fd())))
    }
}

/// Returns the error of a namespace operation; for EPERM with the hint that unprivileged users need a user namespace.
pub(crate) fn creation_error(operation: impl std::fmt::Display, error: std::io::Error) -> Error {
    let hint = match error.kind() {
        std::io::ErrorKind::PermissionDenied => " (unprivileged users need a user namespace in linux.namespaces)",
        _ => "",
    };
    Error::system(format!("{operation}{hint}"), error)
}

fn join(kind: NamespaceType, fd: &OwnedFd) -> Result<(), Error> {
    move_into_thread_name_spaces(fd.as_fd(), flag(kind)).during(|| format!("join the {} namespace", kind.name()))
}

/// Whether the caller is in this namespace.
fn is_callers(kind: NamespaceType, fd: &OwnedFd) -> Result<bool, Error> {
    let file = if kind == NamespaceType::User { "user" } else { "mnt" };
    let path = format!("/proc/self/ns/{file}");
    let callers = rustix::fs::stat(path.as_str()).during(|| format!("stat {path}"))?;
    let given = rustix::fs::fstat(fd).during(|| format!("stat the {} namespace", kind.name()))?;
    Ok((callers.st_dev, callers.st_ino) == (given.st_dev, given.st_ino))
}

/// Makes a cgroup namespace with the child's groups as its roots. Runs in the child once it is in all its groups.
pub(crate) fn new_cgroup_namespace() -> Result<(), Error> {
    syscall::clone::unshare_process(UnshareFlags::NEWCGROUP).during(|| "make a new cgroup namespace")
}

/// Runs `clone` with the PID namespace of its children switched to `target` (a namespace or a pidfd), and switches
/// back.
pub(crate) fn with_children_in<T>(
    target: BorrowedFd<'_>,
    clone: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    let original = original_pid_namespace()?;
    move_into_thread_name_spaces(target, ThreadNameSpaceType::PROCESS_ID).map_err(|errno| match errno {
        Errno::SRCH => Error::not_running("join the PID namespace"),
        errno => Error::system("join the PID namespace", errno),
    })?;
    let result = clone();
    match move_into_thread_name_spaces(original, ThreadNameSpaceType::PROCESS_ID) {
        // A process that is root only in a user namespace may not enter the host's PID namespace again. Such a process
        // executes one process and exits; it clones nothing else.
        Err(Errno::PERM) => {}
        returned => {
            returned.during(|| "return to the original PID namespace; children would be cloned into a container's")?
        }
    }
    result
}

/// Returns the caller's own PID namespace, opened once.
fn original_pid_namespace() -> Result<BorrowedFd<'static>, Error> {
    static ORIGINAL: OnceLock<OwnedFd> = OnceLock::new();
    if let Some(original) = ORIGINAL.get() {
        return Ok(original.as_fd());
    }
    let fd = openat(CWD, c"/proc/self/ns/pid", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .during(|| "open /proc/self/ns/pid")?;
    Ok(ORIGINAL.get_or_init(|| fd).as_fd())
}

fn open(kind: NamespaceType, path: &str) -> Result<OwnedFd, Error> {
    if !path.starts_with('/') {
        return Err(Error::invalid(format!("linux.namespaces: {} path {path:?} is not absolute", kind.name())));
    }
    let path = crate::spec_string::c_string("linux.namespaces", path)?;
    openat(CWD, path.as_c_str(), OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty()).map_err(|errno| {
        Error::invalid(Error::system(format!("linux.namespaces: open {} namespace {path:?}", kind.name()), errno))
    })
}

fn check_kind(kind: NamespaceType, fd: BorrowedFd<'_>) -> Result<(), Error> {
    match syscall::namespace::namespace_kind(fd) {
        Ok(actual) if actual == flag(kind).bits() => Ok(()),
        _ => Err(Error::invalid(format!(
            "linux.namespaces: the descriptor or path for {} is not such a namespace",
            kind.name()
        ))),
    }
}

fn flag(kind: NamespaceType) -> ThreadNameSpaceType {
    match kind {
        NamespaceType::Pid => ThreadNameSpaceType::PROCESS_ID,
        NamespaceType::Network => ThreadNameSpaceType::NETWORK,
        NamespaceType::Ipc => ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION,
        NamespaceType::Uts => ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME,
        NamespaceType::Mount => ThreadNameSpaceType::MOUNT,
        NamespaceType::User => ThreadNameSpaceType::USER,
        NamespaceType::Cgroup => ThreadNameSpaceType::CONTROL_GROUP,
        NamespaceType::Time => ThreadNameSpaceType::TIME,
    }
}
