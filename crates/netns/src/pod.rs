//! The namespaces the containers of a pod share, held by descriptors, with no process in them.

use std::{collections::BTreeMap, fs::File, path::Path};

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::Uid,
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use syscall::namespace::{ThreadNamespace, unshare_thread};

use crate::{
    Error, Namespace, sysctl,
    worker::{self, Visit},
};

/// What a pod has of its own; what is `None` it shares with the node.
#[derive(Debug, Default)]
pub struct PodNamespaces {
    /// Its network, mostly from a [`Pool`](crate::Pool).
    pub net: Option<Namespace>,
    /// System V IPC and POSIX message queues.
    pub ipc: Option<OwnedFd>,
    /// Host and domain name.
    pub uts: Option<OwnedFd>,
    /// Where a user namespace owns them: its root, as the caller knows it. Who is not may not set what is of IPC.
    pub root: Option<Uid>,
}

impl PodNamespaces {
    /// Makes an IPC namespace where asked, a UTS namespace where there is a host name, and takes the network as given.
    ///
    /// # Errors
    /// The kernel's; `EINVAL` for a host name over 64 bytes.
    pub fn create(net: Option<Namespace>, ipc: bool, hostname: Option<&str>) -> Result<Self, Error> {
        let (ipc, uts) = IpcAndUts::begin(ipc, hostname)?.finish()?;
        Ok(Self { net, ipc, uts, root: None })
    }

    /// Runs a closure with these namespaces current, on a thread kept for that; the caller waits.
    ///
    /// # Errors
    /// When one cannot be entered, or the closure panicked.
    pub fn enter<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
        self.enter_some(&[Kind::Net, Kind::Ipc, Kind::Uts], f)
    }

    fn enter_some<T: Send + 'static>(
        &self,
        wanted: &[Kind],
        f: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        let mut targets = Vec::with_capacity(3);
        let duplicate = |fd: &OwnedFd| fd.try_clone().map_err(|e| Error::kernel("duplicate", "namespace", e));
        if let Some(net) = self.net.as_ref().filter(|_| wanted.contains(&Kind::Net)) {
            targets.push((LinkNameSpaceType::Network, OwnedFd::from(net.try_clone()?)));
        }
        if let Some(ipc) = self.ipc.as_ref().filter(|_| wanted.contains(&Kind::Ipc)) {
            targets.push((LinkNameSpaceType::InterProcessCommunication, duplicate(ipc)?));
        }
        if let Some(uts) = self.uts.as_ref().filter(|_| wanted.contains(&Kind::Uts)) {
            targets.push((LinkNameSpaceType::HostNameAndNISDomainName, duplicate(uts)?));
        }
        worker::visit(move || {
            for (kind, fd) in targets {
                move_into_link_name_space(fd.as_fd(), Some(kind))
                    .map_err(|e| Error::kernel("enter", format!("{kind:?} namespace"), e))?;
            }
            Ok(f())
        })?
    }

    /// Sets sysctls inside. All are checked before the first is written: a key must belong to a namespace that the pod
    /// has of its own (`net.*`; `kernel.shm*`, `kernel.msg*`, `kernel.sem`, `fs.mqueue.*`; `kernel.domainname`).
    ///
    /// # Errors
    /// [`Error::Sysctl`] names the key and why.
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

/// Namespaces of a pod.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Net,
    Ipc,
    Uts,
}

impl Kind {
    /// Which one a path that [`sysctl::path`] returned acts on.
    fn of_sysctl(path: &Path) -> Self {
        match path {
            path if path.starts_with("/proc/sys/net") => Self::Net,
            path if path == Path::new("/proc/sys/kernel/domainname") => Self::Uts,
            _ => Self::Ipc,
        }
    }
}

/// A new IPC namespace, made on a helper thread. About 30 µs.
///
/// # Errors
/// The kernel's.
pub fn create_ipc() -> Result<OwnedFd, Error> {
    worker::visit(make_ipc)?
}

/// A new UTS namespace with its host name (at most 64 bytes) and domain name. About 10 µs.
///
/// # Errors
/// The kernel's; `EINVAL` for a name that is too long.
pub fn create_uts(hostname: &str, domainname: Option<&str>) -> Result<OwnedFd, Error> {
    let (hostname, domainname) = (hostname.to_owned(), domainname.map(str::to_owned));
    worker::visit(move || make_uts(&hostname, domainname.as_deref()))?
}

/// IPC and UTS namespaces that are being made.
#[derive(Debug)]
pub struct IpcAndUts(Option<Visit<Result<Pair, Error>>>);

/// IPC and UTS namespace.
type Pair = (Option<OwnedFd>, Option<OwnedFd>);

impl IpcAndUts {
    /// Begins to make an IPC namespace where asked, and a UTS namespace where there is a host name, on a helper thread.
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
        worker::begin(make).map(|visit| Self(Some(visit)))
    }

    /// Waits for them.
    ///
    /// # Errors
    /// The kernel's; `EINVAL` for a host name over 64 bytes.
    pub fn finish(self) -> Result<Pair, Error> {
        self.0.map_or(Ok(Ok((None, None))), Visit::finish)?
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

/// The thread is in the namespace afterwards.
fn make(
    kind: ThreadNamespace,
    path: &'static str,
    prepare: impl FnOnce() -> Result<(), Error>,
) -> Result<OwnedFd, Error> {
    unshare_thread(kind).map_err(|e| Error::kernel("create", format!("{kind:?} namespace"), e))?;
    prepare()?;
    File::open(path).map(OwnedFd::from).map_err(|e| Error::kernel("open", path, e))
}
