//! `linux.namespaces`.

use std::{collections::BTreeMap, sync::OnceLock};

use oci::NamespaceType;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
    thread::{ThreadNameSpaceType, UnshareFlags, move_into_thread_name_spaces},
};

use crate::{Error, error::During};

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

/// Which namespaces are new and which are joined.
#[derive(Debug)]
pub(crate) struct Namespaces {
    pub(crate) pid: PidNamespace,
    /// Whether there is a new cgroup namespace: made by itself, when the child is in its groups.
    pub(crate) new_cgroup: bool,
    new: UnshareFlags,
    join: Vec<(NamespaceType, OwnedFd)>,
    /// The mount namespace to copy; none: the caller's.
    staging: Option<OwnedFd>,
}

impl Namespaces {
    /// Opens what is to be joined and checks that it is what it should be.
    pub(crate) fn parse(
        entries: &[oci::Namespace],
        mut given: BTreeMap<NamespaceType, OwnedFd>,
    ) -> Result<Self, Error> {
        let mut result = Self {
            pid: PidNamespace::Same,
            new_cgroup: false,
            new: UnshareFlags::empty(),
            join: Vec::new(),
            staging: None,
        };
        let mut seen = Vec::new();
        for entry in entries {
            if seen.contains(&entry.kind) {
                return Err(Error::invalid(format!("linux.namespaces: {} is there twice", name(entry.kind))));
            }
            seen.push(entry.kind);
            let fd = match (given.remove(&entry.kind), entry.path.as_deref()) {
                (Some(fd), _) => Some(fd),
                (None, None | Some("")) => None,
                (None, Some(path)) => Some(open(entry.kind, path)?),
            };
            result.add(entry.kind, fd)?;
        }
        for (kind, fd) in given {
            result.add(kind, Some(fd))?;
        }
        if !result.new.contains(UnshareFlags::NEWNS) {
            return Err(Error::invalid("linux.namespaces: a new mount namespace is needed, the root is made in it"));
        }
        Ok(result)
    }

    fn add(&mut self, kind: NamespaceType, fd: Option<OwnedFd>) -> Result<(), Error> {
        let later = |what| Err(Error::invalid(format!("linux.namespaces: {what} is not supported yet")));
        if let Some(fd) = &fd {
            check_kind(kind, fd.as_fd())?;
        }
        match (kind, fd) {
            (NamespaceType::User, _) => return later("a user namespace"),
            (NamespaceType::Time, _) => return later("a time namespace"),
            (NamespaceType::Mount, Some(_)) => return later("joining a mount namespace"),
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
            kind => self.new.bits() & flag(kind).bits() != 0 || self.joins(kind),
        }
    }

    fn joins(&self, kind: NamespaceType) -> bool {
        self.join.iter().any(|(joined, _)| *joined == kind)
    }

    /// Descriptors the child needs.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.join.iter().map(|(_, fd)| fd).chain(&self.staging).map(AsFd::as_fd)
    }

    /// The new mount namespace is to be a copy of this one.
    pub(crate) fn stage(&mut self, staging: OwnedFd) -> Result<(), Error> {
        check_kind(NamespaceType::Mount, staging.as_fd())?;
        self.staging = Some(staging);
        Ok(())
    }

    /// In the child: joins, then makes the new ones, all but PID and cgroup.
    pub(crate) fn enter(&self) -> Result<(), Error> {
        for (kind, fd) in &self.join {
            move_into_thread_name_spaces(fd.as_fd(), flag(*kind))
                .during(|| format!("join the {} namespace", name(*kind)))?;
        }
        if let Some(staging) = &self.staging {
            move_into_thread_name_spaces(staging.as_fd(), ThreadNameSpaceType::MOUNT)
                .during(|| "enter the staging mount namespace")?;
        }
        syscall::clone::unshare_process(self.new).during(|| format!("make new namespaces ({:?})", self.new))?;
        if self.new.contains(UnshareFlags::NEWNET) {
            // Every runtime does, and no engine does it for a namespace that the runtime made.
            let up = syscall::loopback::up();
            up.map_err(|error| Error::system("set lo up in the new network namespace", error))?;
        }
        Ok(())
    }
}

/// In the child, when it is in all its groups: a cgroup namespace that has them as its roots.
pub(crate) fn new_cgroup_namespace() -> Result<(), Error> {
    syscall::clone::unshare_process(UnshareFlags::NEWCGROUP).during(|| "make a new cgroup namespace")
}

/// Runs `clone` with the PID namespace of its children switched to `target` (a namespace or a pidfd), and switches back.
pub(crate) fn with_children_in<T>(
    target: BorrowedFd<'_>,
    clone: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    let own = own_pid_namespace()?;
    move_into_thread_name_spaces(target, ThreadNameSpaceType::PROCESS_ID).map_err(|errno| match errno {
        Errno::SRCH => Error::system("join the PID namespace: the container is not running", errno),
        errno => Error::system("join the PID namespace", errno),
    })?;
    let result = clone();
    move_into_thread_name_spaces(own, ThreadNameSpaceType::PROCESS_ID)
        .during(|| "return to the own PID namespace; children would be born in a container's")?;
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
