//! Namespaces that are owned by a user namespace. The monitor creates them, because a threaded process cannot.

use monitor_api::{Attachments, MakeNamespaces, Reply, Request, Role};
use oci::NamespaceType;
use rustix::fd::OwnedFd;

use super::{
    link::unexpected,
    request::{REPEATS, duplicate},
    supervisor::Monitor,
};
use crate::{Error, ErrorKind};

/// First minor version of the contract with the request `MakeNamespaces`.
const SINCE: u32 = 2;

/// Namespaces of a pod with a user namespace, which owns the others.
#[derive(Debug, Default)]
pub(crate) struct OwnedNamespaces {
    pub(crate) user: Option<OwnedFd>,
    pub(crate) network: Option<OwnedFd>,
    pub(crate) ipc: Option<OwnedFd>,
    pub(crate) uts: Option<OwnedFd>,
}

impl Monitor {
    /// Creates namespaces that are owned by the user namespace `user`, or by a new one. They exist only as long as a
    /// returned descriptor is open.
    pub(crate) async fn make_namespaces(
        &self,
        namespaces: MakeNamespaces,
        user: Option<OwnedFd>,
    ) -> Result<OwnedNamespaces, Error> {
        let monitor = self.welcome()?;
        if monitor.minor < SINCE {
            return Err(Error::state(format!(
                "the running monitor ({}) does not support user namespaces; upgrade it",
                monitor.version
            )));
        }
        let mut tries = 0;
        let mut files = loop {
            tries += 1;
            let mut attachments = Attachments::new();
            if let Some(user) = &user {
                attachments.push(Role::Namespace(NamespaceType::User), duplicate(user)?);
            }
            match self.link().await?.request(Request::MakeNamespaces(namespaces.clone()), attachments).await {
                Err(error) if error.kind == ErrorKind::Unavailable && tries < REPEATS => {}
                answer => match answer? {
                    (Reply::NamespacesMade, files) => break files,
                    (reply, _) => return Err(unexpected("MakeNamespaces", &reply)),
                },
            }
        };
        let mut take = |kind| files.take(Role::Namespace(kind));
        Ok(OwnedNamespaces {
            user: take(NamespaceType::User),
            network: take(NamespaceType::Network),
            ipc: take(NamespaceType::Ipc),
            uts: take(NamespaceType::Uts),
        })
    }
}
