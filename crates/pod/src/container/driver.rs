//! How a container is driven, and the operations that depend on it: one function and one `match` for each.
//!
//! | | monitor | shim | virtual machine |
//! |---|---|---|---|
//! | create, start, signals | the monitor, by itself or with an OCI runtime | requests to the shim | requests to the agent in the guest |
//! | end of input, window size | the monitor's descriptors | requests to the shim | the monitor's descriptors; requests to the agent |
//! | limits, statistics | the cgroup | the cgroup; limits also by a request | requests to the agent |
//! | exit | waitid(2) of the monitor | `Wait`, which the monitor is informed of | the same |

use std::sync::Arc;

use monitor_api::{Attachments, Create, KillScope, Target};

use super::{runtime, shim, vm};
use crate::{
    Error,
    monitor::CreateOutcome,
    parts::Parts,
    stdio::StreamUser,
    store::{Container, Sandbox},
};

/// How a container is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    /// By the monitor, which is the parent of its process, whether an OCI runtime created that or not.
    Monitor,
    /// By a containerd shim.
    Shim,
    /// By the agent in a virtual machine.
    Vm,
}

impl Driver {
    /// Returns how a container is driven.
    pub(crate) fn of(container: &Container) -> Self {
        match (&container.metadata.shim, &container.metadata.vm) {
            (None, None) => Self::Monitor,
            (Some(_), _) => Self::Shim,
            (_, Some(_)) => Self::Vm,
        }
    }

    /// Returns how the process of the container gets its streams.
    pub(crate) fn stream_user(self) -> StreamUser {
        match self {
            Self::Monitor => StreamUser::Process,
            Self::Shim | Self::Vm => StreamUser::Shim,
        }
    }
}

/// Creates a container: `send` for who drives it, `keep` for the custody of this process.
pub(crate) async fn create(
    parts: &Arc<Parts>,
    sandbox: &Sandbox,
    container: &Arc<Container>,
    request: Create,
    (send, keep): (Attachments, Attachments),
) -> Result<CreateOutcome, Error> {
    match Driver::of(container) {
        Driver::Monitor => parts.monitor.create(request, send, keep).await,
        Driver::Shim => shim::create(parts, sandbox, container, request, (send, keep)).await,
        Driver::Vm => vm::create(parts, sandbox, container, request, (send, keep)).await,
    }
}

/// Starts the program of a created container.
pub(crate) async fn start(parts: &Arc<Parts>, container: &Arc<Container>) -> Result<(), Error> {
    match Driver::of(container) {
        Driver::Monitor => {
            let has_started = || {
                let container = Arc::clone(container);
                async move { runtime::has_started(&container, runtime::START_PATIENCE).await }
            };
            parts.monitor.start(container.id().as_str(), has_started).await
        }
        Driver::Shim => shim::start(parts, container).await,
        Driver::Vm => vm::start(parts, container).await,
    }
}

/// Sends a signal. Succeeds for a container that is gone.
pub(crate) async fn signal(
    parts: &Arc<Parts>,
    container: &Arc<Container>,
    signal: i32,
    scope: KillScope,
) -> Result<(), Error> {
    match Driver::of(container) {
        Driver::Monitor => {
            let target = Target::Container(container.id().to_string());
            parts.monitor.kill(&target, signal, scope).await
        }
        Driver::Shim => shim::kill(parts, container, signal, scope).await,
        Driver::Vm => vm::kill(parts, container, signal, scope).await,
    }
}

/// A change of limits that is not on record yet.
pub(crate) struct PendingUpdate(Option<vm::SizeLock>);

/// Changes the limits of a container outside of its cgroup, before those of its cgroup are changed.
pub(crate) async fn update(
    parts: &Arc<Parts>,
    container: &Arc<Container>,
    resources: &oci::Resources,
) -> Result<PendingUpdate, Error> {
    match Driver::of(container) {
        Driver::Monitor => Ok(PendingUpdate(None)),
        Driver::Shim => shim::update(container, resources).await.map(|()| PendingUpdate(None)),
        Driver::Vm => vm::update(parts, container, resources).await.map(|size| PendingUpdate(Some(size))),
    }
}

impl PendingUpdate {
    /// Completes it when it is on record.
    pub(crate) async fn settle(self, parts: &Parts, container: &Container) {
        if let Some(size) = self.0 {
            vm::settle(parts, container, size).await;
        }
    }

    /// Undoes it, as far as that is possible: the cgroup could not be changed.
    pub(crate) async fn revert(self, parts: &Parts, container: &Container, before: &oci::Resources) {
        if let Some(size) = self.0 {
            vm::revert(parts, container, before, size).await;
        }
    }
}

/// Removes what is left of a container outside of the monitor, which has removed its cgroup.
pub(crate) async fn remove(parts: &Arc<Parts>, container: &Arc<Container>) -> Result<(), Error> {
    match Driver::of(container) {
        Driver::Monitor => runtime::remove_leftover_state(parts, container).await,
        Driver::Shim => shim::remove(parts, container).await,
        Driver::Vm => vm::remove(parts, container).await,
    }
}
