//! Named networks that a pod joins or leaves while it runs.
//!
//! ```text
//! connect:    attachment made, and on record of crate `network` → the pod's record → resolver, files, routes
//! disconnect: the pod's record → attachment undone → routes
//! ```
//! The pod's record decides: after a crash, [`undo_unrecorded`] removes an attachment that it does not have, and [`complete`]
//! does what follows from the others.

use std::{collections::HashSet, sync::Arc};

use network::{Attachment, NetworkChoice};

use super::run::pod_ref;
use crate::{
    Error, SharedMode,
    error::failed,
    namespaces::{SharedResource, files, hostname},
    operation::{blocking, failpoint, to_completion, with_timeout, with_undo},
    parts::Parts,
    store::{Sandbox, SandboxPhase},
};

/// Connects a running pod with a named network.
pub(crate) async fn connect(parts: &Arc<Parts>, id: &str, choice: NetworkChoice) -> Result<(), Error> {
    let (parts, sandbox) = (Arc::clone(parts), parts.registry.sandbox(id)?);
    to_completion(async move {
        let operation = format!("connect pod {} to network {}", sandbox.config().name.name, choice.network);
        connect_locked(&parts, &sandbox, &choice).await.map_err(|e| e.during(operation))
    })
    .await
}

/// Disconnects a running pod from a named network; with `force` also one that is not connected.
pub(crate) async fn disconnect(parts: &Arc<Parts>, id: &str, network: String, force: bool) -> Result<(), Error> {
    let (parts, sandbox) = (Arc::clone(parts), parts.registry.sandbox(id)?);
    to_completion(async move {
        let operation = format!("disconnect pod {} from network {network}", sandbox.config().name.name);
        disconnect_locked(&parts, &sandbox, &network, force).await.map_err(|e| e.during(operation))
    })
    .await
}

async fn connect_locked(parts: &Arc<Parts>, sandbox: &Arc<Sandbox>, choice: &NetworkChoice) -> Result<(), Error> {
    let _gate = with_timeout(sandbox.gate.write(), || sandbox.record().stage.clone()).await?;
    let namespace = check(parts, sandbox)?;
    let path = sandbox.record().netns.clone().ok_or_else(|| Error::state("the pod has no network namespace"))?;
    let network = &parts.node.network;
    let attachment = network.connect(&pod_ref(sandbox)?, &namespace, &path, choice).await?;
    failpoint::reach("connect.attached");
    let interface = attachment.interface.clone();
    let finished = finish(parts, sandbox, &namespace, attachment).await;
    let Err(error) = finished else { return Ok(()) };
    let unrecorded = parts.registry.update_sandbox(sandbox, |record| remove(&mut record.attachment, &interface));
    let undone = network.undo_unrecorded(sandbox.id().as_str(), &interface).await.map_err(Error::from);
    Err(with_undo(error, unrecorded.and(undone)))
}

/// Records an attachment that was made, and does what follows from it.
async fn finish(
    parts: &Arc<Parts>,
    sandbox: &Arc<Sandbox>,
    namespace: &netns::Namespace,
    attachment: Attachment,
) -> Result<(), Error> {
    let is_first = !sandbox.has_resolver();
    if is_first {
        // A process of the pod may have its port.
        parts.serve_names(sandbox, namespace)?;
    }
    parts.registry.update_sandbox(sandbox, |record| {
        record.has_resolver = true;
        add(&mut record.attachment, attachment);
    })?;
    failpoint::reach("connect.recorded");
    parts.node.network.ensure_default_routes(sandbox.id().as_str(), namespace)?;
    if is_first {
        write_files(parts, sandbox).await?;
        for container in parts.registry.containers_of(sandbox.id()) {
            parts.add_container_name(sandbox, &container);
        }
    }
    Ok(())
}

async fn disconnect_locked(parts: &Arc<Parts>, sandbox: &Arc<Sandbox>, query: &str, force: bool) -> Result<(), Error> {
    let _gate = with_timeout(sandbox.gate.write(), || sandbox.record().stage.clone()).await?;
    let namespace = check(parts, sandbox)?;
    let network = &parts.node.network;
    let definition = network.network(query)?;
    let endpoints = network.endpoints(&definition)?;
    let Some(endpoint) = endpoints.into_iter().find(|endpoint| endpoint.sandbox == sandbox.id().as_str()) else {
        return if force { Ok(()) } else { Err(Error::state("the pod is not connected to it")) };
    };
    parts.registry.update_sandbox(sandbox, |record| remove(&mut record.attachment, &endpoint.interface))?;
    failpoint::reach("disconnect.recorded");
    network.disconnect(sandbox.id().as_str(), &definition).await?;
    network.ensure_default_routes(sandbox.id().as_str(), &namespace)?;
    Ok(())
}

/// Checks that a pod can join and leave networks; returns its namespace.
fn check(parts: &Parts, sandbox: &Sandbox) -> Result<netns::Namespace, Error> {
    let (config, record) = (sandbox.config(), sandbox.record());
    if record.phase != SandboxPhase::Ready {
        return Err(Error::state(format!("the pod is not ready: {}", record.stage)));
    }
    if config.network == SharedMode::Node {
        return Err(Error::state("the pod is in the network of the node"));
    }
    if config.named.networks.as_ref().is_some_and(Vec::is_empty) {
        return Err(Error::state("the pod was created without a network (--network none)"));
    }
    let namespace = offload::in_place(|| parts.node.pins.get(sandbox.id().as_str()));
    namespace.map_err(failed("open its network namespace"))
}

/// Adds an attachment to those on record. One of a pod without networks becomes its primary one.
fn add(all: &mut Option<Attachment>, one: Attachment) {
    match all {
        Some(primary) if !primary.network.is_empty() || !primary.ips.is_empty() => primary.secondary.push(one),
        _ => *all = Some(one),
    }
}

/// Removes the attachment of an interface. The next one becomes the primary one.
fn remove(all: &mut Option<Attachment>, interface: &str) {
    let Some(primary) = all else { return };
    primary.secondary.retain(|one| one.interface != interface);
    if primary.interface == interface {
        let mut rest = std::mem::take(&mut primary.secondary).into_iter();
        let next = rest.next().unwrap_or_default();
        *primary = Attachment { secondary: rest.collect(), ..next };
    }
}

/// Writes the files of a pod that gets a resolver.
async fn write_files(parts: &Arc<Parts>, sandbox: &Arc<Sandbox>) -> Result<(), Error> {
    let (parts, sandbox) = (Arc::clone(parts), Arc::clone(sandbox));
    blocking(move || {
        let (config, record) = (sandbox.config(), sandbox.record());
        match SharedResource::Files.file(&parts.monitor, &sandbox)? {
            Some(tmpfs) => files::write(tmpfs, config, &hostname(config), record.attachment.as_ref(), true),
            None => Ok(()),
        }
    })
    .await
}

/// Undoes attachments of ready pods to named networks that their records do not have: a daemon was killed while it
/// connected or disconnected them.
pub(crate) async fn undo_unrecorded(parts: &Arc<Parts>) {
    let network = &parts.node.network;
    let attached = match network.interfaces() {
        Ok(attached) => attached,
        Err(error) => return tracing::warn!("list the attachments of pods: {error}"),
    };
    for (id, interface) in attached {
        let Ok(sandbox) = parts.registry.sandbox(&id) else { continue };
        let record = sandbox.record();
        let Some(primary) = record.attachment.as_ref().filter(|_| record.phase == SandboxPhase::Ready) else {
            continue;
        };
        let mut recorded: HashSet<&str> = primary.secondary.iter().map(|one| one.interface.as_str()).collect();
        recorded.insert(&primary.interface);
        if recorded.contains(interface.as_str()) {
            continue;
        }
        if let Err(error) = network.undo_unrecorded(&id, &interface).await {
            tracing::warn!("undo the attachment of {interface} of pod {id}: {error}; retrying");
        }
    }
}

/// Completes connections and disconnections of ready pods in named networks that a killed daemon recorded: default routes, and
/// the files that name the resolver.
pub(crate) async fn complete(parts: &Arc<Parts>) {
    let is_resolving =
        |sandbox: &&Arc<Sandbox>| sandbox.record().phase == SandboxPhase::Ready && sandbox.has_resolver();
    for sandbox in parts.registry.sandboxes().iter().filter(is_resolving) {
        let completed = async {
            let namespace = offload::in_place(|| parts.node.pins.get(sandbox.id().as_str()));
            let namespace = namespace.map_err(failed("open its network namespace"))?;
            parts.node.network.ensure_default_routes(sandbox.id().as_str(), &namespace)?;
            write_files(parts, sandbox).await
        };
        if let Err(error) = completed.await {
            tracing::warn!("complete the networks of pod {}: {error}", sandbox.id());
        }
    }
}
