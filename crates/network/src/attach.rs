//! Attaches a pod to the network.
//!
//! ```text
//! ports reserved → addresses leased → record written → link, addresses, routes → ports mapped
//! ```
//! The chain's elements run in order. Consecutive built-in elements run together on one blocking thread. Each plugin
//! program runs as a process of its own, so a slow plugin does not delay other pods. On failure everything is undone
//! from the record, in the same way as [`detach`](crate::detach) does it.

use std::{
    io,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::Value;
use tracing::Instrument;

use crate::{
    Attachment, Error, Network, PodRef, PortMapping,
    attachment::INTERFACE,
    bridge::{BridgeOptions, Bridges, Pod},
    cni::{self, Call, Chain, Element},
    detach,
    ledger::{Record, valid_sandbox},
    listener,
    network::{Inner, lock},
    nft::Mapping,
};

/// Reason of the error that is returned when no element of the chain produced a result.
const NO_RESULT: &str = "no element before it has a result";
/// Longest time that reading the configuration may take.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

impl Network {
    /// Attaches a pod's namespace to the network; on failure everything is undone. `ns_path` is the path under
    /// `/run/netns` that plugins get as `CNI_NETNS`. The operation runs to completion even if the caller stops waiting.
    ///
    /// # Errors
    /// [`Error::PortTaken`], [`Error::Exhausted`], [`Error::Attached`], [`Error::Plugin`], or the kernel's error.
    pub async fn attach(
        &self,
        pod: &PodRef,
        ns: &netns::Namespace,
        ns_path: &Path,
        ports: &[PortMapping],
    ) -> Result<Attachment, Error> {
        valid_sandbox(&pod.sandbox)?;
        let inner = Arc::clone(&self.inner);
        let (mut chain, mut attached, mut leaving) = read_state(&inner, &pod.sandbox).await?;
        if leaving {
            inner.settle().await;
            (chain, attached, leaving) = read_state(&inner, &pod.sandbox).await?;
        }
        if attached || leaving || !lock(&inner.session).insert(pod.sandbox.clone()) {
            return Err(Error::Attached(pod.sandbox.clone()));
        }
        let mapped = if chain.maps_ports() { ports.to_vec() } else { Vec::new() };
        // Annotations may be large: what no plugin of the network asks for is not kept.
        let is_used = |name: &str| chain.plugins().any(|plugin| plugin.has_capability(name));
        let mut pod = pod.clone();
        pod.capability_args.retain(|name, _| is_used(name));
        let record = Record {
            pod: pod.clone(),
            ns_path: ns_path.to_owned(),
            interface: INTERFACE.to_owned(),
            list: chain.list.clone(),
            addresses: Vec::new(),
            ports: mapped,
            all_ports: ports.to_vec(),
            in_process: true,
            result: None,
        };
        let pending = ns.try_clone().map_err(Error::from).map(|ns| PendingAttach {
            inner: Arc::clone(&inner),
            chain,
            ns: Arc::new(ns),
            record,
        });
        let pending = pending.inspect_err(|_| forget(&inner, &pod.sandbox))?;
        let began = Instant::now();
        let finished = tokio::spawn(pending.run().in_current_span()).await;
        let metrics = &self.inner.metrics;
        metrics.attach_duration.observe(began.elapsed());
        if !matches!(&finished, Ok(Ok(_))) {
            metrics.attach_failed.add(1);
        }
        finished.map_err(|e| Error::kernel("attach", pod.sandbox.clone(), io::Error::other(e)))?
    }
}

/// Returns the configured network, and whether a pod is attached and whether it is being detached. The configuration
/// may be on a disk that hangs: then the number of blocked threads is bounded, and the caller gets a timeout error.
async fn read_state(inner: &Arc<Inner>, sandbox: &str) -> Result<(Arc<Chain>, bool, bool), Error> {
    let failed = |cause| Error::kernel("read", "the network's configuration", cause);
    let (shared, id) = (Arc::clone(inner), sandbox.to_owned());
    let read = async move {
        let permit = Arc::clone(&shared.config_reads).acquire_owned().await.map_err(io::Error::other)?;
        let read = move || {
            let _permit = permit;
            let (attached, leaving) = (shared.ledger.is_attached(&id)?, shared.ledger.is_leaving(&id)?);
            Ok((shared.chain()?, attached, leaving))
        };
        offload::blocking(read).await.map_err(io::Error::other)
    };
    match tokio::time::timeout(READ_TIMEOUT, read).await {
        Ok(outcome) => outcome.map_err(failed)?,
        Err(_) => Err(failed(io::ErrorKind::TimedOut.into())),
    }
}

fn forget(inner: &Inner, sandbox: &str) {
    lock(&inner.session).remove(sandbox);
}

/// An attachment in progress.
struct PendingAttach {
    inner: Arc<Inner>,
    chain: Arc<Chain>,
    ns: Arc<netns::Namespace>,
    record: Record,
}

impl PendingAttach {
    async fn run(mut self) -> Result<Attachment, Error> {
        let (inner, sandbox) = (Arc::clone(&self.inner), self.record.pod.sandbox.clone());
        let _lock = inner.locks.acquire(&sandbox).await;
        if let Err(e) = offload::in_place(|| inner.firewall.reserve(&sandbox, &self.record.ports)) {
            forget(&inner, &sandbox);
            return Err(e);
        }
        let progress = Arc::clone(&inner.programs.progress);
        progress.begin_attach(&sandbox);
        let result = self.run_chain().await;
        let outcome = match result {
            Ok(_) if progress.end_attach(&sandbox) => Err(Error::Cancelled(sandbox.clone())),
            Ok(result) => cni::attachment(result, INTERFACE).map_err(|e| Error::plugin(self.last_plugin(), "ADD", e)),
            Err(e) => Err(e),
        };
        if outcome.is_err() {
            progress.end_attach(&sandbox);
            // The first error is the one to return. What cannot be undone now stays on record for the reconciler.
            if let Err(undo) = detach::undo_locked(&inner, &sandbox, Some(&self.record)).await {
                tracing::warn!(sandbox, error = %undo, "undo of a failed attachment is incomplete; retrying");
            }
        }
        outcome
    }

    fn last_plugin(&self) -> &str {
        self.chain.plugins().next_back().map_or("bridge", |plugin| &plugin.kind)
    }

    async fn run_chain(&mut self) -> Result<Value, Error> {
        let chain = Arc::clone(&self.chain);
        let mut previous: Option<Value> = None;
        let mut rest = &chain.elements[..];
        let programs = chain.plugins().next().is_some();
        if programs {
            self.inner.ledger.write(&self.record)?;
        }
        while let Some(element) = rest.first() {
            let built_in = rest.iter().take_while(|element| Inner::is_built_in(element)).count();
            if let Element::Exec(plugin) = element {
                let call = Call {
                    pod: &self.record.pod,
                    ns_path: Some(&self.record.ns_path),
                    interface: INTERFACE,
                    ports: &self.record.all_ports,
                    in_process: true,
                };
                let result = self.inner.programs.call("ADD", &chain, plugin, call, previous.as_ref()).await?;
                let addresses = cni::addresses(&result, INTERFACE);
                self.record.addresses = addresses.map_err(|e| Error::plugin(&plugin.kind, "ADD", e))?;
                previous = Some(result);
                rest = &rest[1..];
            } else {
                let from = chain.elements.len() - rest.len();
                previous = self.run_built_in(from..from + built_in, previous).await?;
                rest = &rest[built_in..];
            }
        }
        let result = previous.ok_or_else(|| Error::plugin(&chain.name, "ADD", NO_RESULT))?;
        if programs {
            self.record.result = Some(result.clone());
            self.inner.ledger.write(&self.record)?;
        }
        Ok(result)
    }

    async fn run_built_in(
        &mut self,
        elements: std::ops::Range<usize>,
        previous: Option<Value>,
    ) -> Result<Option<Value>, Error> {
        let step = Step { inner: Arc::clone(&self.inner), chain: Arc::clone(&self.chain), ns: Arc::clone(&self.ns) };
        let mut record = self.record.clone();
        let work = move || {
            let outcome = step.run(elements, previous, &mut record);
            (record, outcome)
        };
        let finished = offload::blocking(work).await;
        let (record, outcome) =
            finished.map_err(|e| Error::kernel("attach", &self.record.pod.sandbox, io::Error::other(e)))?;
        self.record = record;
        outcome
    }
}

/// Rejects host ports that a process of the node listens on if the pod requires free ports; otherwise logs that new
/// connections now go to the pod.
fn look_for_listeners(pod: &PodRef, mappings: &[Mapping]) -> Result<(), Error> {
    for mapping in mappings {
        let (port, protocol) = (mapping.host_port, mapping.protocol);
        let is_taken = match listener::has_port(mapping) {
            // An unknown state is an error only if free ports were requested.
            Err(error) if !pod.require_free_ports => {
                tracing::debug!(port, %protocol, "cannot check a host port for a listener: {error}");
                false
            }
            outcome => outcome?,
        };
        if !is_taken {
            continue;
        }
        if pod.require_free_ports {
            let address = mapping.host_ip.map(|ip| ip.to_string());
            return Err(Error::PortInUse { port, protocol, address });
        }
        let (sandbox, name, namespace) = (&pod.sandbox, &pod.name, &pod.namespace);
        tracing::warn!(
            sandbox, name, namespace, port, %protocol,
            "a process of the node listens on a host port that is now mapped to a pod: it gets no new connections"
        );
    }
    Ok(())
}

/// Built-in elements of a chain, to be run on a blocking thread.
struct Step {
    inner: Arc<Inner>,
    chain: Arc<Chain>,
    ns: Arc<netns::Namespace>,
}

impl Step {
    fn run(
        &self,
        elements: std::ops::Range<usize>,
        mut previous: Option<Value>,
        record: &mut Record,
    ) -> Result<Option<Value>, Error> {
        for element in &self.chain.elements[elements] {
            match element {
                Element::Bridge(options) => previous = Some(self.bridge(options, record)?),
                Element::Loopback => self.loopback()?,
                Element::Portmap => {
                    let mappings = record.mappings();
                    if !mappings.is_empty() {
                        look_for_listeners(&record.pod, &mappings)?;
                        self.inner.firewall.add_ports(&record.pod.sandbox, mappings)?;
                    }
                }
                Element::Exec(plugin) => return Err(Error::plugin(&plugin.kind, "ADD", "not a built-in element")),
            }
        }
        Ok(previous)
    }

    fn bridge(&self, options: &BridgeOptions, record: &mut Record) -> Result<Value, Error> {
        let sandbox = record.pod.sandbox.clone();
        let leases = self
            .inner
            .leases(&self.chain)?
            .ok_or_else(|| Error::config(&options.bridge, "no address ranges are configured"))?;
        if options.ipam.data_dir.is_some() {
            // Other programs use this directory too, so the reconciler does not walk it: this lease is found only
            // through the record.
            self.inner.ledger.write(record)?;
        }
        let lease = || Bridges::lease(options, &leases, &sandbox, INTERFACE);
        let addresses = match lease() {
            // The links of pods that are being detached may free their addresses within milliseconds.
            Err(Error::Exhausted { .. }) if self.inner.removal.is_busy() => {
                self.inner.removal.settle()();
                lease()?
            }
            leased => leased?,
        };
        record.addresses = addresses.iter().map(|(subnet, _)| subnet.address).collect();
        self.inner.ledger.write(record)?;
        let pod = Pod { sandbox: &sandbox, interface: INTERFACE, namespace: &self.ns, addresses: &addresses };
        let endpoint = self.inner.bridges.connect(options, &self.inner.firewall, &pod)?;
        Ok(cni::from_endpoint(&endpoint, &self.chain.version, INTERFACE, &record.ns_path))
    }

    fn loopback(&self) -> Result<(), Error> {
        self.ns.enter(|| {
            let mut socket =
                rtnl::netlink::Socket::route().map_err(|e| Error::kernel("open", "rtnetlink socket in the pod", e))?;
            let mut batch = rtnl::netlink::Batch::new();
            rtnl::set_up(&mut batch, "lo");
            socket.request(batch).map_err(|e| Error::kernel("set up", "lo in the pod", e))
        })?
    }
}
