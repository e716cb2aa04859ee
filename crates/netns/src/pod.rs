//! The namespaces the containers of a pod share, held by descriptors, with no process in them.

use std::{collections::BTreeMap, fs::File};

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::Uid,
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use syscall::namespace::{ThreadNamespace, unshare_thread};

use crate::{Error, Namespace, sysctl, worker};

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
        let ipc = ipc.then(create_ipc).transpose()?;
        let uts = hostname.map(|name| create_uts(name, None)).transpose()?;
        Ok(Self { net, ipc, uts, root: None })
    }

    /// Runs a closure with these namespaces current, on a thread kept for that; the caller waits.
    ///
    /// # Errors
    /// When one cannot be entered, or the closure panicked.
    pub fn enter<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
        let mut targets = Vec::with_capacity(3);
        let duplicate = |fd: &OwnedFd| fd.try_clone().map_err(|e| Error::kernel("duplicate", "namespace", e));
        if let Some(net) = &self.net {
            targets.push((LinkNameSpaceType::Network, OwnedFd::from(net.try_clone()?)));
        }
        if let Some(ipc) = &self.ipc {
            targets.push((LinkNameSpaceType::InterProcessCommunication, duplicate(ipc)?));
        }
        if let Some(uts) = &self.uts {
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

    /// Sets sysctls inside. All are checked before the first is written: a key must belong to a namespace that the pod has
    /// of its own (`net.*`; `kernel.shm*`, `kernel.msg*`, `kernel.sem`, `fs.mqueue.*`; `kernel.domainname`).
    ///
    /// # Errors
    /// [`Error::Sysctl`] names the key and why.
    pub fn write_sysctls(&self, sysctls: &BTreeMap<String, String>) -> Result<(), Error> {
        let mut writes = Vec::with_capacity(sysctls.len());
        for (key, value) in sysctls {
            let path = sysctl::path(key, self.net.is_some(), self.ipc.is_some(), self.uts.is_some())?;
            writes.push((key.clone(), path, value.clone()));
        }
        let root = self.root;
        if writes.is_empty() { Ok(()) } else { self.enter(move || sysctl::write_all(&writes, root))? }
    }
}

/// A new IPC namespace, made on a helper thread. About 30 µs.
///
/// # Errors
/// The kernel's.
pub fn create_ipc() -> Result<OwnedFd, Error> {
    create(ThreadNamespace::Ipc, "/proc/thread-self/ns/ipc", || Ok(()))
}

/// A new UTS namespace with its host name (at most 64 bytes) and domain name. About 10 µs.
///
/// # Errors
/// The kernel's; `EINVAL` for a name that is too long.
pub fn create_uts(hostname: &str, domainname: Option<&str>) -> Result<OwnedFd, Error> {
    let (hostname, domainname) = (hostname.to_owned(), domainname.map(str::to_owned));
    create(ThreadNamespace::Uts, "/proc/thread-self/ns/uts", move || {
        rustix::system::sethostname(hostname.as_bytes()).map_err(|e| Error::kernel("set host name", hostname, e))?;
        if let Some(domain) = domainname {
            rustix::system::setdomainname(domain.as_bytes())
                .map_err(|e| Error::kernel("set domain name", domain, e))?;
        }
        Ok(())
    })
}

fn create(
    kind: ThreadNamespace,
    path: &'static str,
    prepare: impl FnOnce() -> Result<(), Error> + Send + 'static,
) -> Result<OwnedFd, Error> {
    worker::visit(move || {
        unshare_thread(kind).map_err(|e| Error::kernel("create", format!("{kind:?} namespace"), e))?;
        prepare()?;
        File::open(path).map(OwnedFd::from).map_err(|e| Error::kernel("open", path, e))
    })?
}
