//! `linux.namespaces`.

use std::{collections::BTreeMap, sync::OnceLock};

use oci::NamespaceType;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
    thread::{ThreadNameSpaceType, UnshareFlags, move_into_thread_name_spaces},
};

use crate::{Error, error::During, id_mappings::IdMappings, user_namespace::UserNamespace};

/// The PID namespace that the child is born in.
#[derive(Debug)]
pub(crate) enum PidNamespace {
    /// The caller's.
    Same,
    /// A new one.
    New,
    /// This one.
    Join(OwnedFd),
}

/// The mount namespace that the container's mounts are made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MountNamespace {
    /// A new one.
    New,
    /// Somebody else's, whose root becomes the container's.
    Joined,
    /// The caller's: it sees the container's mounts, on the root's path.
    Same,
}

/// Which namespaces are new and which are joined.
#[derive(Debug)]
pub(crate) struct Namespaces {
    pub(crate) pid: PidNamespace,
    pub(crate) user: UserNamespace,
    pub(crate) mount: MountNamespace,
    /// Whether there is a new time namespace: made for the children of who makes it.
    new_time: bool,
    /// Whether there is a new cgroup namespace: made by itself, when the child is in its groups.
    pub(crate) new_cgroup: bool,
    new: UnshareFlags,
    join: Vec<(NamespaceType, OwnedFd)>,
    /// The mount namespace to copy; none: the caller's.
    staging: Option<OwnedFd>,
}

impl Namespaces {
    /// Opens what is to be joined and checks that it is what it should be.
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
                return Err(Error::invalid(format!("linux.namespaces: {} is there twice", name(entry.kind))));
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
            let why = "nobody may mount in the caller's from there";
            return Err(Error::invalid(format!("linux.namespaces: a user namespace needs a mount namespace: {why}")));
        }
        // Whoever joins a mount namespace sees its paths from then on.
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
            // The kernel refuses to enter the own one again.
            (NamespaceType::User, Some(fd)) if is_own(kind, &fd)? => {}
            (NamespaceType::User, Some(fd)) => {
                // Engines repeat the maps of a namespace that is joined; without them its ids are not known here.
                let told = !(linux.uid_mappings.is_empty() || linux.gid_mappings.is_empty());
                let parse = || IdMappings::parse("linux", &linux.uid_mappings, &linux.gid_mappings)?.with_root();
                self.user = UserNamespace::Join(fd, told.then(parse).transpose()?);
            }
            (NamespaceType::Time, None) => self.new_time = true,
            (NamespaceType::Mount, Some(fd)) if is_own(kind, &fd)? => {}
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

    /// Whether the container has its own (new or joined) namespace of this kind.
    pub(crate) fn has(&self, kind: NamespaceType) -> bool {
        match kind {
            NamespaceType::Pid => !matches!(self.pid, PidNamespace::Same),
            NamespaceType::Cgroup => self.new_cgroup || self.joins(kind),
            NamespaceType::User => self.user.is_other(),
            NamespaceType::Time => self.new_time || self.joins(kind),
            kind => self.new.bits() & flag(kind).bits() != 0 || self.joins(kind),
        }
    }

    /// Whether somebody must run ahead of the container's init: only the children of who enters a user namespace can be
    /// in a PID namespace that it owns, and only the children of who makes a time namespace are in it.
    pub(crate) fn need_forerunner(&self) -> bool {
        self.user.is_other() || self.new_time
    }

    /// Whether there is a new time namespace.
    pub(crate) fn new_time(&self) -> bool {
        self.new_time
    }

    /// Whether it joins a cgroup namespace.
    pub(crate) fn joins_cgroup(&self) -> bool {
        self.joins(NamespaceType::Cgroup)
    }

    fn joins(&self, kind: NamespaceType) -> bool {
        self.join.iter().any(|(joined, _)| *joined == kind)
    }

    /// Descriptors the child needs.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.join.iter().map(|(_, fd)| fd).chain(&self.staging).map(AsFd::as_fd)
    }

    /// What the forerunner needs beside.
    pub(crate) fn forerunners_descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let user = if let UserNamespace::Join(fd, _) = &self.user { Some(fd) } else { None };
        let pid = if let PidNamespace::Join(fd) = &self.pid { Some(fd) } else { None };
        user.into_iter().chain(pid).map(AsFd::as_fd)
    }

    /// The new mount namespace is to be a copy of this one.
    pub(crate) fn stage(&mut self, staging: OwnedFd) -> Result<(), Error> {
        check_kind(NamespaceType::Mount, staging.as_fd())?;
        self.staging = Some(staging);
        Ok(())
    }

    /// In the child: joins, then makes the new ones, all but PID, cgroup, user and time.
    pub(crate) fn enter(&self) -> Result<(), Error> {
        // Whoever has one is its child and in these already.
        if !self.need_forerunner() {
            self.join.iter().try_for_each(|(kind, fd)| join(*kind, fd))?;
            self.enter_staging()?;
        }
        syscall::clone::unshare_process(self.new)
            .map_err(|error| refused(format!("make new namespaces ({:?})", self.new), error))?;
        if self.new.contains(UnshareFlags::NEWNET) {
            // Every runtime does, and no engine does it for a namespace that the runtime made.
            let up = syscall::loopback::up();
            up.map_err(|error| Error::system("set lo up in the new network namespace", error))?;
        }
        Ok(())
    }
}

impl Namespaces {
    /// Moves into the mount namespace to copy, if there is one.
    pub(crate) fn enter_staging(&self) -> Result<(), Error> {
        match &self.staging {
            Some(staging) => move_into_thread_name_spaces(staging.as_fd(), ThreadNameSpaceType::MOUNT)
                .during(|| "enter the staging mount namespace"),
            None => Ok(()),
        }
    }

    /// In the forerunner, with its caller's rights: joins what these reach, which is what is owned by a user namespace
    /// that the caller has rights in. What is left is owned by the one that it enters next.
    pub(crate) fn join_with_callers_rights(&self) -> Result<Vec<NamespaceType>, Error> {
        let mut left = Vec::new();
        for (kind, fd) in self.joined() {
            match move_into_thread_name_spaces(fd, flag(kind)) {
                Err(Errno::PERM) => left.push(kind),
                result => result.during(|| format!("join the {} namespace", name(kind)))?,
            }
        }
        Ok(left)
    }

    /// In the forerunner, in the container's user namespace.
    pub(crate) fn join_the_rest(&self, left: &[NamespaceType]) -> Result<(), Error> {
        self.joined().filter(|(kind, _)| left.contains(kind)).try_for_each(|(kind, fd)| {
            move_into_thread_name_spaces(fd, flag(kind)).during(|| {
                format!(
                    "join the {} namespace, which neither the caller nor the container's user namespace owns",
                    name(kind)
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

/// Who is told that it may not make namespaces is told what it may.
pub(crate) fn refused(operation: impl std::fmt::Display, error: std::io::Error) -> Error {
    let way = match error.kind() {
        std::io::ErrorKind::PermissionDenied => " (who is not root needs a user namespace in linux.namespaces)",
        _ => "",
    };
    Error::system(format!("{operation}{way}"), error)
}

fn join(kind: NamespaceType, fd: &OwnedFd) -> Result<(), Error> {
    move_into_thread_name_spaces(fd.as_fd(), flag(kind)).during(|| format!("join the {} namespace", name(kind)))
}

/// Whether this is the namespace that the caller is in.
fn is_own(kind: NamespaceType, fd: &OwnedFd) -> Result<bool, Error> {
    let file = if kind == NamespaceType::User { "user" } else { "mnt" };
    let path = format!("/proc/self/ns/{file}");
    let own = rustix::fs::stat(path.as_str()).during(|| format!("ask what {path} is"))?;
    let given = rustix::fs::fstat(fd).during(|| format!("ask what the {} namespace is", name(kind)))?;
    Ok((own.st_dev, own.st_ino) == (given.st_dev, given.st_ino))
}

/// In the child, when it is in all its groups: a cgroup namespace that has them as its roots.
pub(crate) fn new_cgroup_namespace() -> Result<(), Error> {
    syscall::clone::unshare_process(UnshareFlags::NEWCGROUP).during(|| "make a new cgroup namespace")
}

/// Runs `clone` with the PID namespace of its children switched to `target` (a namespace or a pidfd), and switches
/// back.
pub(crate) fn with_children_in<T>(
    target: BorrowedFd<'_>,
    clone: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    let own = own_pid_namespace()?;
    move_into_thread_name_spaces(target, ThreadNameSpaceType::PROCESS_ID).map_err(|errno| match errno {
        Errno::SRCH => Error::ended("join the PID namespace"),
        errno => Error::system("join the PID namespace", errno),
    })?;
    let result = clone();
    match move_into_thread_name_spaces(own, ThreadNameSpaceType::PROCESS_ID) {
        // Who is root only in a user namespace has no right in the machine's PID namespace, from which they came. Such
        // a process runs one command and ends; nothing else is born of it.
        Err(Errno::PERM) => {}
        returned => returned.during(|| "return to the own PID namespace; children would be born in a container's")?,
    }
    result
}

/// The caller's own PID namespace, opened once.
fn own_pid_namespace() -> Result<BorrowedFd<'static>, Error> {
    static OWN: OnceLock<OwnedFd> = OnceLock::new();
    if let Some(own) = OWN.get() {
        return Ok(own.as_fd());
    }
    let fd = openat(CWD, c"/proc/self/ns/pid", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .during(|| "open /proc/self/ns/pid")?;
    Ok(OWN.get_or_init(|| fd).as_fd())
}

fn open(kind: NamespaceType, path: &str) -> Result<OwnedFd, Error> {
    if !path.starts_with('/') {
        return Err(Error::invalid(format!("linux.namespaces: {} path {path:?} is not absolute", name(kind))));
    }
    let path = crate::text::c_string("linux.namespaces", path)?;
    openat(CWD, path.as_c_str(), OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty()).map_err(|errno| {
        Error::invalid(Error::system(format!("linux.namespaces: open {} namespace {path:?}", name(kind)), errno))
    })
}

fn check_kind(kind: NamespaceType, fd: BorrowedFd<'_>) -> Result<(), Error> {
    match syscall::namespace::namespace_kind(fd) {
        Ok(found) if found == flag(kind).bits() => Ok(()),
        _ => Err(Error::invalid(format!("linux.namespaces: what was given for {} is no such namespace", name(kind)))),
    }
}

/// The name the specification has for it.
pub(crate) fn name(kind: NamespaceType) -> &'static str {
    match kind {
        NamespaceType::Pid => "pid",
        NamespaceType::Network => "network",
        NamespaceType::Ipc => "ipc",
        NamespaceType::Uts => "uts",
        NamespaceType::Mount => "mount",
        NamespaceType::User => "user",
        NamespaceType::Cgroup => "cgroup",
        NamespaceType::Time => "time",
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
