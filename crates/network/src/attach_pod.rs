//! Attaches a pod to all of its networks: the primary one, then those that it selects, in order. If one fails, those
//! before it are undone in reverse order.

use std::{
    io,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use tracing::Instrument;

use crate::{
    Attachment, Error, Network, NetworkChoice, NetworkDefinition, NetworkSelection, PodRef, PortMapping,
    attach::PendingAttach,
    attachment_key::{AttachmentKey, INTERFACE, valid_sandbox},
    cni::Chain,
    deferred::CONFLICT,
    detach,
    ledger::Record,
    named::{self, InUse, Surroundings},
    network::{Inner, lock},
};

/// The annotation that selects further networks.
const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
/// Longest time that reading the configuration may take.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

impl Network {
    /// Attaches a pod's namespace to its networks; on failure everything is undone. `ns_path` is the path under
    /// `/run/netns` that plugins get as `CNI_NETNS`. `ports` are mapped by the primary network. If a plugin of the
    /// primary network attaches pods to further networks itself (Multus), `pod.networks` is left to it. The operation
    /// runs to completion even if the caller stops waiting.
    ///
    /// # Errors
    /// [`Error::PortTaken`], [`Error::Exhausted`], [`Error::Attached`], [`Error::Plugin`], [`Error::Selection`], or the
    /// kernel's error.
    pub async fn attach(
        &self,
        pod: &PodRef,
        ns: &netns::Namespace,
        ns_path: &Path,
        ports: &[PortMapping],
    ) -> Result<Attachment, Error> {
        valid_sandbox(&pod.sandbox)?;
        let inner = Arc::clone(&self.inner);
        if let Some([]) = pod.named.as_deref() {
            require_no_ports("none", ports)?;
            return Ok(Attachment { interface: "lo".to_owned(), ..Attachment::default() });
        }
        inner.prepare_overlays(pod.named.as_deref().unwrap_or_default()).await?;
        let mut plan = read_plan(&inner, pod).await?;
        if plan.is_leaving {
            inner.settle(CONFLICT).await;
            plan = read_plan(&inner, pod).await?;
        }
        if let Some((chain, _)) =
            plan.networks.first().filter(|(chain, _)| pod.named.is_some() && !chain.publishes_ports())
        {
            require_no_ports(chain.title(), ports)?;
        }
        let ns = Arc::new(ns.try_clone()?);
        let records = plan.networks.iter().enumerate().map(|network| record(pod, ns_path, ports, network));
        let records: Vec<Record> = records.collect();
        let keys: Vec<AttachmentKey> = records.iter().map(Record::key).collect();
        if plan.is_attached || plan.is_leaving || !begin_session(&inner, &keys) {
            return Err(Error::Attached(pod.sandbox.clone()));
        }
        let pending = plan.networks.into_iter().zip(records).map(|((chain, _), record)| {
            let (inner, ns) = (Arc::clone(&inner), Arc::clone(&ns));
            PendingAttach { inner, chain, ns, record, is_begun: false }
        });
        let pending: Vec<_> = pending.collect();
        let (began, sandbox, in_use) = (Instant::now(), pod.sandbox.clone(), plan.in_use);
        let attach = async move {
            let _in_use = in_use;
            run(&inner, &sandbox, pending).await
        };
        let finished = tokio::spawn(attach.in_current_span()).await;
        let metrics = &self.inner.metrics;
        metrics.attach_duration.observe(began.elapsed());
        if !matches!(&finished, Ok(Ok(_))) {
            metrics.attach_failed.add(1);
        }
        finished.map_err(|e| Error::kernel("attach", pod.sandbox.clone(), io::Error::other(e)))?
    }
}

/// Refuses published ports in a network that has no way to map them.
fn require_no_ports(network: &str, ports: &[PortMapping]) -> Result<(), Error> {
    match ports.iter().any(|port| port.host_port != 0) {
        false => Ok(()),
        true => {
            let reason =
                "ports of the node cannot be mapped to it; publish none, or use a network of the driver bridge first";
            Err(Error::selection(format!("network {network}"), reason))
        }
    }
}

/// A network, and what the pod requests of it.
pub(crate) type Selected = (Arc<Chain>, Option<NetworkSelection>);

/// The networks of a pod, and what the ledger has of it already.
struct Plan {
    /// The primary network first.
    networks: Vec<Selected>,
    is_attached: bool,
    is_leaving: bool,
    /// Keeps named networks from being removed until the records exist.
    in_use: Vec<InUse>,
}

/// Reads the configuration of the pod's networks. It may be on a disk that hangs: then the number of blocked threads is
/// bounded, and the caller gets a timeout error.
async fn read_plan(inner: &Arc<Inner>, pod: &PodRef) -> Result<Plan, Error> {
    let failed = |cause| Error::kernel("read", "the network's configuration", cause);
    let (shared, id) = (Arc::clone(inner), pod.sandbox.clone());
    let (primary, annotation, namespace) = (pod.selection.clone(), pod.networks.clone(), pod.namespace.clone());
    let named = pod.named.clone();
    let read = async move {
        let permit = Arc::clone(&shared.config_reads).acquire_owned().await.map_err(io::Error::other)?;
        let read = move || {
            let _permit = permit;
            let attachments = shared.ledger.of_sandbox(&id)?;
            let is_attached = attachments.iter().any(|(_, is_leaving)| !is_leaving);
            let is_leaving = attachments.iter().any(|(_, is_leaving)| *is_leaving);
            if let Some(choices) = named {
                let choose = |(position, choice)| shared.choose(choice, position);
                let chosen = choices.iter().enumerate().map(choose).collect::<Result<Vec<_>, _>>()?;
                let (networks, in_use) = chosen.into_iter().unzip();
                return Ok(Plan { networks, is_attached, is_leaving, in_use });
            }
            let chain = shared.chain()?;
            if primary.is_some() {
                require_selectable(&shared, &chain)?;
            }
            let annotation = annotation.filter(|_| !chain.attaches_secondary());
            let selected = annotation.map(|value| select(&shared, &value, &namespace)).transpose()?;
            let primary = (chain, primary);
            Ok(Plan {
                networks: std::iter::once(primary).chain(selected.unwrap_or_default()).collect(),
                is_attached,
                is_leaving,
                in_use: Vec::new(),
            })
        };
        offload::blocking(read).await.map_err(io::Error::other)
    };
    match tokio::time::timeout(READ_TIMEOUT, read).await {
        Ok(outcome) => outcome.map_err(failed)?,
        Err(_) => Err(failed(io::ErrorKind::TimedOut.into())),
    }
}

impl Inner {
    /// Returns a named network as the one of this position of a pod, and keeps it from being removed.
    pub(crate) fn choose(&self, choice: &NetworkChoice, position: usize) -> Result<(Selected, InUse), Error> {
        let in_use = self.named.enter(&choice.network)?;
        let definition = &in_use.definition;
        let selection = named::selection(definition, choice, position)?;
        let wrong = |reason| Error::config(format!("network {}", definition.name), reason);
        let list = self.list_of(definition, position == 0).map_err(wrong)?;
        let chain = Chain::parse(list).map_err(wrong)?;
        Ok(((Arc::new(chain), Some(selection)), in_use))
    }
}

/// Returns the networks that an annotation selects; none if no network is selectable.
fn select(inner: &Inner, value: &str, namespace: &str) -> Result<Vec<Selected>, Error> {
    if inner.selectable.is_empty() {
        tracing::warn!("the annotation {NETWORKS} of a pod has no effect: network.selectable is empty");
        return Ok(Vec::new());
    }
    let selections = NetworkSelection::parse(value, namespace);
    let selections = selections.map_err(|e| Error::selection(format!("annotation {NETWORKS}"), e))?;
    let chain = |selection: NetworkSelection| {
        let chain = inner.chain_named(&selection.name)?;
        require_selectable(inner, &chain)?;
        Ok((chain, Some(selection)))
    };
    selections.into_iter().map(chain).collect()
}

fn require_selectable(inner: &Inner, chain: &Chain) -> Result<(), Error> {
    match inner.is_selectable(chain) {
        true => Ok(()),
        false => {
            let reason = "pods may not select it or request addresses of it; add it to network.selectable";
            Err(Error::selection(format!("network {}", chain.name), reason))
        }
    }
}

/// Makes the reconciler treat the attachments as living. Returns false if the pod is being attached already.
fn begin_session(inner: &Inner, keys: &[AttachmentKey]) -> bool {
    let mut session = lock(&inner.session);
    if keys.iter().any(|key| session.contains(key)) {
        return false;
    }
    session.extend(keys.iter().cloned());
    if let [first, _, ..] = keys {
        lock(&inner.multihomed).insert(first.sandbox().to_owned());
    }
    true
}

impl Inner {
    /// Returns the CNI list of a named network.
    pub(crate) fn list_of(
        &self,
        definition: &NetworkDefinition,
        is_primary: bool,
    ) -> Result<serde_json::Value, String> {
        let leases = self.leases_directory();
        let from = Surroundings { leases: &leases, overlays: self.overlay_store.as_ref() };
        named::list(definition, is_primary, &from)
    }
}

/// Returns the record of an attachment that has not begun.
pub(crate) fn record(
    pod: &PodRef,
    ns_path: &Path,
    ports: &[PortMapping],
    (position, (chain, selection)): (usize, &Selected),
) -> Record {
    let mut pod = pod.clone();
    if position > 0 {
        // The annotations of Kubernetes limit the primary network.
        pod.capability_args.remove("bandwidth");
    }
    pod.capability_args.extend(selection.iter().flat_map(NetworkSelection::capability_args));
    // Annotations may be large: what no plugin of the network asks for is not kept.
    pod.capability_args.retain(|name, _| chain.plugins().any(|plugin| plugin.has_capability(name)));
    let selected = selection.as_ref().filter(|_| position > 0);
    let ports = selected.map_or(ports, |selection| &selection.ports);
    Record {
        pod,
        ns_path: ns_path.to_owned(),
        interface: selected.map_or(INTERFACE, |selection| &selection.interface).to_owned(),
        list: chain.list.clone(),
        addresses: Vec::new(),
        ports: if chain.maps_ports() { ports.to_vec() } else { Vec::new() },
        all_ports: ports.to_vec(),
        in_process: true,
        result: None,
        position,
        selection: selection.clone(),
        deleted: Default::default(),
    }
}

/// Makes the attachments one after the other, as the specification demands for one container.
async fn run(inner: &Arc<Inner>, sandbox: &str, mut pending: Vec<PendingAttach>) -> Result<Attachment, Error> {
    let _lock = inner.locks.acquire(sandbox).await;
    let progress = Arc::clone(&inner.programs.progress);
    progress.begin_attach(sandbox);
    let (mut attachments, mut failure) = (Vec::new(), None);
    for one in &mut pending {
        match one.run().await {
            Ok(attachment) => {
                inner.names.attach(&one.record);
                attachments.push(attachment);
            }
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    if progress.end_attach(sandbox) && failure.is_none() {
        failure = Some(Error::Cancelled(sandbox.to_owned()));
    }
    let Some(failure) = failure else {
        let mut attachments = attachments.into_iter();
        let primary = attachments.next().unwrap_or_default();
        return Ok(Attachment { secondary: attachments.collect(), ..primary });
    };
    for one in pending.iter().rev() {
        let key = one.record.key();
        if !one.is_begun {
            lock(&inner.session).remove(&key);
            continue;
        }
        // The first error is the one to return. What cannot be undone now stays on record for the reconciler.
        if let Err(undo) = detach::undo_locked(inner, &key, Some(&one.record)).await {
            let interface = key.interface();
            tracing::warn!(sandbox, interface, error = %undo, "undo of a failed attachment is incomplete; retrying");
        }
    }
    Err(failure)
}
