//! Attaching a pod.
//!
//! ```text
//! ports reserved → addresses leased → record written → link, addresses, routes → ports mapped
//! ```
//! The chain's elements run in order. Those done here run together on one blocking thread; a program runs on its own,
//! so a slow plugin holds up no other pod. On failure everything is undone, from the record, as
//! [`detach`](crate::detach) does.

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
    bridge::{BridgeOptions, Bridges, Pod},
    cni::{self, Call, Chain, Element},
    detach,
    ledger::Record,
    listener,
    network::{INTERFACE, Inner, lock},
    nft::Mapping,
    rtnl,
};

/// Why an element cannot go on: its result is not there though the chain says so.
const NO_RESULT: &str = "no element before it has a result";
/// How long the configuration may take to be read.
const LOOK: Duration = Duration::from_secs(30);

impl Network {
    /// Attaches a pod's namespace to the network; on failure everything is undone. `ns_path` is the conventional path
    /// that plugins get. It goes on to its end when the caller stops waiting.
    ///
    /// # Errors
    /// [`Error::PortTaken`], [`Error::Exhausted`], [`Error::Attached`], [`Error::Plugin`], or what the kernel said.
    pub async fn attach(
        &self,
        pod: &PodRef,
        ns: &netns::Namespace,
        ns_path: &Path,
        ports: &[PortMapping],
    ) -> Result<Attachment, Error> {
        valid_sandbox(&pod.sandbox)?;
        let inner = Arc::clone(&self.inner);
        let (mut chain, mut here, mut leaving) = look(&inner, &pod.sandbox).await?;
        if leaving {
            inner.settle().await;
            (chain, here, leaving) = look(&inner, &pod.sandbox).await?;
        }
        if here || leaving || !lock(&inner.session).insert(pod.sandbox.clone()) {
            return Err(Error::Attached(pod.sandbox.clone()));
        }
        let mapped = if chain.maps_ports() { ports.to_vec() } else { Vec::new() };
        let record = Record {
            pod: pod.clone(),
            ns_path: ns_path.to_owned(),
            interface: INTERFACE.to_owned(),
            list: chain.list.clone(),
            addresses: Vec::new(),
            ports: mapped,
            all_ports: ports.to_vec(),
            result: None,
        };
        let run = ns.try_clone().map_err(Error::from).map(|ns| Run {
            inner: Arc::clone(&inner),
            chain,
            ns: Arc::new(ns),
            record,
        });
        let run = run.inspect_err(|_| forget(&inner, &pod.sandbox))?;
        let began = Instant::now();
        let finished = tokio::spawn(run.finish().in_current_span()).await;
        let figures = &self.inner.figures;
        figures.attach_took.observe(began.elapsed());
        if !matches!(&finished, Ok(Ok(_))) {
            figures.attach_failed.add(1);
        }
        finished.map_err(|e| Error::kernel("attach", pod.sandbox.clone(), io::Error::other(e)))?
    }
}

/// The network that is configured, and whether a pod is attached or leaving. The configuration may be on a disk that
/// hangs: that costs few threads, and its caller an error in the end.
async fn look(inner: &Arc<Inner>, sandbox: &str) -> Result<(Arc<Chain>, bool, bool), Error> {
    let failed = |cause| Error::kernel("read", "the network's configuration", cause);
    let (of, id) = (Arc::clone(inner), sandbox.to_owned());
    let read = async move {
        let place = Arc::clone(&of.looks).acquire_owned().await.map_err(io::Error::other)?;
        let look = move || {
            let _place = place;
            let (here, leaving) = (of.ledger.is_here(&id)?, of.ledger.is_leaving(&id)?);
            Ok((of.chain()?, here, leaving))
        };
        offload::blocking(look).await.map_err(io::Error::other)
    };
    match tokio::time::timeout(LOOK, read).await {
        Ok(looked) => looked.map_err(failed)?,
        Err(_) => Err(failed(io::ErrorKind::TimedOut.into())),
    }
}

fn forget(inner: &Inner, sandbox: &str) {
    lock(&inner.session).remove(sandbox);
}

/// An id becomes part of file names.
pub(crate) fn valid_sandbox(id: &str) -> Result<(), Error> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    let valid = (1..=128).contains(&id.len()) && !id.starts_with('.') && id.bytes().all(plain);
    if valid { Ok(()) } else { Err(Error::Sandbox(id.to_owned())) }
}

/// An attachment under way.
struct Run {
    inner: Arc<Inner>,
    chain: Arc<Chain>,
    ns: Arc<netns::Namespace>,
    record: Record,
}

impl Run {
    async fn finish(mut self) -> Result<Attachment, Error> {
        let (inner, sandbox) = (Arc::clone(&self.inner), self.record.pod.sandbox.clone());
        let _turn = inner.turns.take(&sandbox).await;
        if let Err(e) = offload::here(|| inner.firewall.reserve(&sandbox, &self.record.ports)) {
            forget(&inner, &sandbox);
            return Err(e);
        }
        let progress = Arc::clone(&inner.programs.progress);
        progress.attaching(&sandbox);
        let forward = self.forward().await;
        let outcome = match forward {
            Ok(_) if progress.attached(&sandbox) => Err(Error::Cancelled(sandbox.clone())),
            Ok(result) => cni::attachment(result, INTERFACE).map_err(|e| Error::plugin(self.last_plugin(), "ADD", e)),
            Err(e) => Err(e),
        };
        if outcome.is_err() {
            progress.attached(&sandbox);
            // The first error is the one to tell. What cannot be undone now stays on record for the reconciler.
            if let Err(undo) = detach::undo_in_turn(&inner, &sandbox, Some(&self.record)).await {
                tracing::warn!(sandbox, error = %undo, "a failed attachment is not undone yet");
            }
        }
        outcome
    }

    fn last_plugin(&self) -> &str {
        self.chain.plugins().next_back().map_or("bridge", |plugin| &plugin.kind)
    }

    async fn forward(&mut self) -> Result<Value, Error> {
        let chain = Arc::clone(&self.chain);
        let mut previous: Option<Value> = None;
        let mut rest = &chain.elements[..];
        let programs = chain.plugins().next().is_some();
        if programs {
            self.inner.ledger.write(&self.record)?;
        }
        while let Some(element) = rest.first() {
            let here = rest.iter().take_while(|element| Inner::is_here(element)).count();
            if let Element::Exec(plugin) = element {
                let call = Call {
                    pod: &self.record.pod,
                    ns_path: Some(&self.record.ns_path),
                    interface: INTERFACE,
                    ports: &self.record.all_ports,
                };
                let result = self.inner.programs.call("ADD", &chain, plugin, call, previous.as_ref()).await?;
                let addresses = cni::addresses(&result, INTERFACE);
                self.record.addresses = addresses.map_err(|e| Error::plugin(&plugin.kind, "ADD", e))?;
                previous = Some(result);
                rest = &rest[1..];
            } else {
                let from = chain.elements.len() - rest.len();
                previous = self.run_here(from..from + here, previous).await?;
                rest = &rest[here..];
            }
        }
        let result = previous.ok_or_else(|| Error::plugin(&chain.name, "ADD", NO_RESULT))?;
        if programs {
            self.record.result = Some(result.clone());
            self.inner.ledger.write(&self.record)?;
        }
        Ok(result)
    }

    async fn run_here(
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
        let done = offload::blocking(work).await;
        let (record, outcome) =
            done.map_err(|e| Error::kernel("attach", &self.record.pod.sandbox, io::Error::other(e)))?;
        self.record = record;
        outcome
    }
}

/// Refuses host ports that processes of the node listen on, or reports that their connections go to the pod from now
/// on.
fn look_for_listeners(pod: &PodRef, mappings: &[Mapping]) -> Result<(), Error> {
    for mapping in mappings {
        let (port, protocol) = (mapping.host_port, mapping.protocol);
        let is_taken = match listener::has_port(mapping) {
            // Only a request for a free port is refused when nothing is known of it.
            Err(error) if !pod.free_ports => {
                tracing::debug!(port, %protocol, "look for a listener: {error}");
                false
            }
            looked => looked?,
        };
        if !is_taken {
            continue;
        }
        if pod.free_ports {
            let address = mapping.host_ip.map(|ip| ip.to_string());
            return Err(Error::PortInUse { port, protocol, address });
        }
        let (sandbox, name, namespace) = (&pod.sandbox, &pod.name, &pod.namespace);
        tracing::warn!(
            sandbox, name, namespace, port, %protocol,
            "a process of the node has a host port that leads to a pod now: it gets no new connections"
        );
    }
    Ok(())
}

/// Elements done here, on a blocking thread.
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
                Element::Exec(plugin) => return Err(Error::plugin(&plugin.kind, "ADD", "it is a program")),
            }
        }
        Ok(previous)
    }

    fn bridge(&self, options: &BridgeOptions, record: &mut Record) -> Result<Value, Error> {
        let sandbox = record.pod.sandbox.clone();
        let leases =
            self.inner.leases(&self.chain)?.ok_or_else(|| Error::config(&options.bridge, "it has no ranges"))?;
        if options.ipam.data_dir.is_some() {
            // The reconciler does not walk a directory that others use too: this lease is found by its record alone.
            self.inner.ledger.write(record)?;
        }
        let lease = || Bridges::lease(options, &leases, &sandbox, INTERFACE);
        let addresses = match lease() {
            // Addresses of pods that are leaving may be free in a moment.
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
        Ok(cni::of_endpoint(&endpoint, &self.chain.version, INTERFACE, &record.ns_path))
    }

    fn loopback(&self) -> Result<(), Error> {
        self.ns.enter(|| {
            let mut socket =
                crate::netlink::Socket::route().map_err(|e| Error::kernel("open", "rtnetlink socket in the pod", e))?;
            let mut batch = crate::netlink::Batch::new();
            rtnl::set_up(&mut batch, "lo");
            socket.request(batch).map_err(|e| Error::kernel("set up", "lo in the pod", e))
        })?
    }
}
