//! Namespaces that the containers of a pod share. They are kept by descriptors, without a process in them.

use std::{collections::BTreeMap, fs::File};

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::Uid,
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use syscall::namespace::{ThreadNamespace, unshare_thread};

use crate::{
    Error, Namespace, sysctl,
    worker::{self, HelperJob},
};

/// Namespaces of a pod. `None` means that the pod shares the node's.
#[derive(Debug, Default)]
pub struct PodNamespaces {
    /// Network namespace, mostly from a [`Pool`](crate::Pool).
    pub net: Option<Namespace>,
    /// IPC namespace: System V IPC and POSIX message queues.
    pub ipc: Option<OwnedFd>,
    /// UTS namespace: host and domain name.
    pub uts: Option<OwnedFd>,
    /// If a user namespace owns the namespaces: its root user, in the caller's user namespace. Other users cannot set
    /// sysctls of the IPC namespace.
    pub root: Option<Uid>,
}

impl PodNamespaces {
    /// Creates an IPC namespace if `ipc` is true, and a UTS namespace if there is a host name. Uses the given network
    /// namespace.
    ///
    /// # Errors
    /// The kernel's error; `EINVAL` for a host name of more than 64 bytes.
    pub fn create(net: Option<Namespace>, ipc: bool, hostname: Option<&str>) -> Result<Self, Error> {
        let (ipc, uts) = IpcAndUts::begin(ipc, hostname)?.finish()?;
        Ok(Self { net, ipc, uts, root: None })
    }

    /// Runs a closure in these namespaces on a helper thread, and waits for it.
    ///
    /// # Errors
    /// When a namespace cannot be entered, or the closure panicked.
    pub fn enter<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
        self.enter_some(&[Kind::Net, Kind::Ipc, Kind::Uts], f)
    }

    fn enter_some<T: Send + 'static>(
        &self,
        kinds: &[Kind],
        f: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        let mut targets = Vec::with_capacity(3);
        let duplicate = |fd: &OwnedFd| fd.try_clone().map_err(|e| Error::kernel("duplicate", "namespace", e));
        if let Some(net) = self.net.as_ref().filter(|_| kinds.contains(&Kind::Net)) {
            targets.push((LinkNameSpaceType::Network, OwnedFd::from(net.try_clone()?)));
        }
        if let Some(ipc) = self.ipc.as_ref().filter(|_| kinds.contains(&Kind::Ipc)) {
            targets.push((LinkNameSpaceType::InterProcessCommunication, duplicate(ipc)?));
        }
        if let Some(uts) = self.uts.as_ref().filter(|_| kinds.contains(&Kind::Uts)) {
            targets.push((LinkNameSpaceType::HostNameAndNISDomainName, duplicate(uts)?));
        }
        worker::run(move || {
            for (kind, fd) in targets {
                move_into_link_name_space(fd.as_fd(), Some(kind))
                    .map_err(|e| Error::kernel("enter", format!("{kind:?} namespace"), e))?;
            }
            Ok(f())
        })?
    }

    /// Sets sysctls in the namespaces. All keys are checked before the first is written: each must belong to a
    /// namespace that the pod has of its own (`net.*`; `kernel.shm*`, `kernel.msg*`, `kernel.sem`, `fs.mqueue.*`;
    /// `kernel.domainname`).
    ///
    /// # Errors
    /// [`Error::Sysctl`] with the key and the reason.
    pub fn write_sysctls(&self, sysctls: &BTreeMap<String, String>) -> Result<(), Error> {
        let (mut writes, mut kinds) = (Vec::with_capacity(sysctls.len()), Vec::new());
        for (key, value) in sysctls {
            let path = sysctl::path(key, self.net.is_some(), self.ipc.is_some(), self.uts.is_some())?;
            kinds.push(Kind::of_sysctl(&path));
            writes.push((key.clone(), path, value.clone()));
        }
        let root = self.root;
        if writes.is_empty() { Ok(()) } else { self.enter_some(&kinds, move || sysctl::write_all(&writes, root))? }
    }
}

/// Kinds of namespaces of a pod.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Net,
    Ipc,
    Uts,
}

impl Kind {
    /// Returns the namespace that a path of [`sysctl::path`] belongs to.
    fn of_sysctl(path: &str) -> Self {
        match path {
            "kernel/domainname" => Self::Uts,
            path if path.starts_with("net/") => Self::Net,
            _ => Self::Ipc,
        }
    }
}

/// Creates an IPC namespace on a helper thread. Takes about 30 µs.
///
/// # Errors
/// The kernel's error.
pub fn create_ipc() -> Result<OwnedFd, Error> {
    worker::run(make_ipc)?
}

/// Creates a UTS namespace with a host name (at most 64 bytes) and a domain name. Takes about 10 µs.
///
/// # Errors
/// The kernel's error; `EINVAL` for a name that is too long.
pub fn create_uts(hostname: &str, domainname: Option<&str>) -> Result<OwnedFd, Error> {
    let (hostname, domainname) = (hostname.to_owned(), domainname.map(str::to_owned));
    worker::run(move || make_uts(&hostname, domainname.as_deref()))?
}

/// IPC and UTS namespaces that are being created in the background.
#[derive(Debug)]
pub struct IpcAndUts(Option<HelperJob<Result<Pair, Error>>>);

/// The IPC and the UTS namespace.
type Pair = (Option<OwnedFd>, Option<OwnedFd>);

impl IpcAndUts {
    /// Starts to create an IPC namespace if `ipc` is true, and a UTS namespace if there is a host name, on a helper
    /// thread.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn begin(ipc: bool, hostname: Option<&str>) -> Result<Self, Error> {
        if !ipc && hostname.is_none() {
            return Ok(Self(None));
        }
        let hostname = hostname.map(str::to_owned);
        let make = move || {
            let uts = hostname.map(|name| make_uts(&name, None)).transpose()?;
            Ok((ipc.then(make_ipc).transpose()?, uts))
        };
        worker::start(make).map(|job| Self(Some(job)))
    }

    /// Waits until they are created.
    ///
    /// # Errors
    /// The kernel's error; `EINVAL` for a host name of more than 64 bytes.
    pub fn finish(self) -> Result<Pair, Error> {
        self.0.map_or(Ok(Ok((None, None))), HelperJob::finish)?
    }
}

fn make_ipc() -> Result<OwnedFd, Error> {
    make(ThreadNamespace::Ipc, "/proc/thread-self/ns/ipc", || Ok(()))
}

fn make_uts(hostname: &str, domainname: Option<&str>) -> Result<OwnedFd, Error> {
    make(ThreadNamespace::Uts, "/proc/thread-self/ns/uts", move || {
        rustix::system::sethostname(hostname.as_bytes()).map_err(|e| Error::kernel("set host name", hostname, e))?;
        if let Some(domain) = domainname {
            rustix::system::setdomainname(domain.as_bytes())
                .map_err(|e| Error::kernel("set domain name", domain, e))?;
        }
        Ok(())
    })
}

/// Creates a namespace and returns a descriptor. The calling thread is in the new namespace afterwards.
fn make(
    kind: ThreadNamespace,
    path: &'static str,
    prepare: impl FnOnce() -> Result<(), Error>,
) -> Result<OwnedFd, Error> {
    unshare_thread(kind).map_err(|e| Error::kernel("create", format!("{kind:?} namespace"), e))?;
    prepare()?;
    File::open(path).map(OwnedFd::from).map_err(|e| Error::kernel("open", path, e))
}
