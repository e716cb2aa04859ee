//! Attaches a pod to one network.
//!
//! ```text
//! ports reserved → addresses leased → record written → link, addresses, routes → ports mapped
//! ```
//! The chain's elements run in order. Consecutive built-in elements run together on one blocking thread. Each plugin
//! program runs as a process of its own, so a slow plugin does not delay other pods. On failure everything is undone
//! from the record, in the same way as [`detach`](crate::detach) does it.
//! [`attach_pod`](crate::attach_pod) does this for all networks of a pod.

use std::{io, net::IpAddr, sync::Arc};

use serde_json::Value;

use crate::{
    Attachment, Error, PodRef,
    bridge::{BridgeOptions, Bridges, Pod},
    cni::{self, Call, Chain, Element, Plugin},
    default_route,
    deferred::CONFLICT,
    ledger::Record,
    listener,
    named::parse_mac,
    network::Inner,
    nft::Mapping,
};

/// Reason of the error that is returned when no element of the chain produced a result.
const NO_RESULT: &str = "no element before it has a result";

/// An attachment in progress.
pub(crate) struct PendingAttach {
    pub(crate) inner: Arc<Inner>,
    pub(crate) chain: Arc<Chain>,
    pub(crate) ns: Arc<netns::Namespace>,
    pub(crate) record: Record,
    /// Whether there may be something to undo.
    pub(crate) is_begun: bool,
}

impl PendingAttach {
    /// Makes the attachment. The caller holds the sandbox's lock, and undoes a failed attachment that has begun.
    pub(crate) async fn run(&mut self) -> Result<Attachment, Error> {
        let inner = Arc::clone(&self.inner);
        let key = self.record.key();
        let is_removing = inner.is_removing();
        let reserve = || inner.firewall.reserve(key.as_str(), self.chain.reserved(&self.record.all_ports));
        match offload::in_place(reserve) {
            // A pod that is being detached in the background may have it.
            Err(Error::PortTaken { .. }) if is_removing => {
                inner.settle(CONFLICT).await;
                offload::in_place(reserve)?;
            }
            reserved => reserved?,
        }
        self.is_begun = true;
        let _no_collection = inner.activity.enter(&self.chain).await;
        let result = self.run_chain().await?;
        let attachment =
            cni::attachment(result, &self.record.interface).map_err(|e| Error::plugin(self.last_plugin(), "ADD", e))?;
        let name = self.chain.title();
        let Some(selection) = &self.record.selection else {
            return Ok(Attachment { network: name.to_owned(), ..attachment });
        };
        selection.check(&attachment.raw).map_err(|e| Error::selection(format!("network {name}"), e))?;
        if !selection.default_route.is_empty() {
            let work = || default_route::replace(&self.ns, &self.record.interface, &selection.default_route);
            offload::in_place(work)?;
        }
        let network = if self.record.position > 0 { selection.qualified_name() } else { name.to_owned() };
        Ok(Attachment { network, ..attachment })
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
                let result = self.run_plugin(plugin, previous.as_ref()).await?;
                let addresses = cni::addresses(&result, &self.record.interface);
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

    /// Runs `ADD` of a plugin. If something is taken that it needs, while detached pods' networks are being removed in the
    /// background, that may be the reason, and it runs again afterwards.
    async fn run_plugin(&self, plugin: &Plugin, previous: Option<&Value>) -> Result<Value, Error> {
        let call = Call {
            pod: &self.record.pod,
            ns_path: Some(&self.record.ns_path),
            interface: &self.record.interface,
            ports: &self.record.all_ports,
            selection: self.record.selection.as_ref(),
            in_process: true,
            namespace: None,
        };
        let (programs, is_removing) = (&self.inner.programs, self.inner.is_removing());
        let error = match programs.call("ADD", &self.chain, plugin, call, previous).await {
            Err(error) if is_removing && error.may_be_conflict() && cni::is_built_in(&plugin.kind, &plugin.config) => {
                error
            }
            outcome => return outcome,
        };
        tokio::select! {
            () = self.inner.settle(CONFLICT) => {}
            () = programs.progress.cancelled(&self.record.pod.sandbox) => return Err(error),
        }
        // What the first one has made would be in the way of the second. portmap makes all or nothing, and its DEL is for all
        // interfaces of the pod.
        let is_undone =
            plugin.kind == "portmap" || programs.call("DEL", &self.chain, plugin, call, previous).await.is_ok();
        if !is_undone {
            return Err(error);
        }
        programs.call("ADD", &self.chain, plugin, call, previous).await
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
                        self.inner.firewall.add_ports(record.key().as_str(), mappings)?;
                    }
                }
                Element::Exec(plugin) => return Err(Error::plugin(&plugin.kind, "ADD", "not a built-in element")),
            }
        }
        Ok(previous)
    }

    fn bridge(&self, options: &BridgeOptions, record: &mut Record) -> Result<Value, Error> {
        let (sandbox, interface, key) = (record.pod.sandbox.clone(), record.interface.clone(), record.key());
        let leases = self
            .inner
            .leases(&self.chain)?
            .ok_or_else(|| Error::config(&options.bridge, "no address ranges are configured"))?;
        if options.ipam.data_dir.is_some() {
            // Other programs use this directory too, so the reconciler does not walk it: this lease is found only
            // through the record.
            self.inner.ledger.write(record)?;
        }
        let selection = record.selection.as_ref().filter(|_| options.named.is_some());
        let requested: Vec<IpAddr> =
            selection.iter().flat_map(|selection| &selection.ips).filter_map(|ip| ip.parse().ok()).collect();
        let mac = selection.and_then(|selection| parse_mac(selection.mac.as_deref()?));
        let is_removing = self.inner.is_removing();
        let lease = || Bridges::lease(options, &leases, (&sandbox, &interface), &requested);
        let addresses = match lease() {
            // The links of pods that are being detached may free their addresses within milliseconds.
            Err(Error::Exhausted { .. } | Error::AddressTaken(_)) if is_removing => {
                self.inner.settle_blocking(CONFLICT);
                lease()?
            }
            leased => leased?,
        };
        record.addresses = addresses.iter().map(|(subnet, _)| subnet.address).collect();
        self.inner.ledger.write(record)?;
        let pod = Pod {
            sandbox: key.as_str(),
            interface: &interface,
            is_primary: key.is_primary(),
            namespace: &self.ns,
            addresses: &addresses,
            mac,
        };
        let endpoint = self.inner.bridges.connect(options, &self.inner.firewall, &pod)?;
        Ok(cni::from_endpoint(&endpoint, &self.chain.version, &interface, &record.ns_path))
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
