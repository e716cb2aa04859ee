//! Sends the packet, and puts together what is found.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use netns::Namespace;
use serde::Serialize;

use crate::{
    Answer, Error, Found, Probe, Step,
    marks::Match,
    place::Snapshot,
    probe::Prepared,
    walk::Walk,
    watched::{Identity, Watched},
};

/// How often a packet is sent that rules of the node send to a pod whose rules are not watched yet: a service has several.
const ATTEMPTS: usize = 4;

/// A pod of the node.
pub struct Place {
    /// Name for people.
    pub name: String,
    /// Its network namespace.
    pub namespace: Namespace,
}

/// What is traced.
pub struct Request<'a> {
    /// The pod that sends the packet.
    pub pod: &'a Place,
    /// The network namespace of the node.
    pub node: &'a Namespace,
    /// The other pods of the node.
    pub others: &'a [Place],
    /// Destination.
    pub destination: IpAddr,
    /// The packet.
    pub probe: Probe,
    /// How long the answer is waited for.
    pub patience: Duration,
}

/// The way of a packet.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trace {
    /// Protocol: `icmp`, `tcp` or `udp`.
    pub protocol: &'static str,
    /// Source of the packet; the port of ICMP echo is its identifier.
    pub source: SocketAddr,
    /// Destination.
    pub destination: SocketAddr,
    /// What the packet meets, in order.
    pub steps: Vec<Step>,
    /// What the answer meets.
    pub back: Vec<Step>,
    /// What came back.
    #[serde(flatten)]
    pub answer: Answer,
    /// Whether the kernel could not keep all reports, so that rules may be missing.
    pub incomplete: bool,
}

impl Trace {
    /// Returns the step at which the packet was lost, or its answer if that is known.
    pub fn lost(&self) -> Option<&Step> {
        let mut all = self.steps.iter().chain(&self.back);
        all.find(|step| step.found.ends()).filter(|_| !matches!(self.answer, Answer::Answered { .. }))
    }

    /// Reports whether the packet arrived at its destination.
    pub fn is_delivered(&self) -> bool {
        self.steps.iter().any(|step| step.found == Found::Delivered)
    }
}

/// Sends a packet and returns its way. Sends another one, at most three times, if rules translate the destination to a pod
/// whose rules were not watched.
///
/// # Errors
/// If the network namespace of the pod or of the node is gone, the pod has no address of this family, or the kernel shows
/// or marks nothing. Other pods that cannot be read are left out.
pub fn trace(request: &Request<'_>) -> Result<Trace, Error> {
    let mut expected = vec![request.destination];
    let mut last = attempt(request, &expected)?;
    for _ in 1..ATTEMPTS {
        if expected.contains(&last.1) {
            break;
        }
        expected.push(last.1);
        last = attempt(request, &expected)?;
    }
    Ok(last.0)
}

/// Traces a packet that is expected at the pods with these addresses. Returns the destination that it has in the end.
fn attempt(request: &Request<'_>, expected: &[IpAddr]) -> Result<(Trace, IpAddr), Error> {
    let Request { pod, destination, probe, .. } = *request;
    let prepared = Prepared::new(&pod.namespace, probe, destination)?;
    let packets = Match { probe, is_ipv4: destination.is_ipv4(), mark: prepared.mark };
    let mut from = Watched::start(Some(&pod.name), &pod.namespace, Some(packets))?;
    let node = Watched::start(None, request.node, Some(packets))?;
    let source = SocketAddr::from((source(&mut from.place, destination)?, prepared.mark));
    let mut others = Vec::new();
    for other in request.others {
        let Ok(mut watched) = Watched::start(Some(&other.name), &other.namespace, None) else { continue };
        let is_expected = |address: &IpAddr| watched.place.has_address(*address) && !from.place.has_address(*address);
        if expected.iter().any(is_expected) {
            watched.mark(&other.namespace, packets)?;
        }
        others.push(watched);
    }
    let answer = prepared.send(request.patience);
    let packet = Identity { protocol: probe.protocol(destination.is_ipv4()), source };
    let mut walk = Walk { packet, destination, from, node, others, steps: Vec::new(), sources: vec![source] };
    let incomplete = stop(&mut walk)?;
    walk.there();
    let trace = Trace {
        protocol: probe.name(),
        source,
        destination: (destination, probe.port()).into(),
        steps: std::mem::take(&mut walk.steps),
        back: walk.back(),
        answer,
        incomplete,
    };
    let arrived = walk.others.iter().any(|pod| pod.place.has_address(walk.destination));
    Ok((trace, if arrived { walk.destination } else { destination }))
}

/// Reads what was reported everywhere; returns whether reports were lost.
fn stop(walk: &mut Walk<'_>) -> Result<bool, Error> {
    let mut incomplete = walk.from.stop()? | walk.node.stop()?;
    walk.others.retain_mut(|other| match other.stop() {
        Ok(lost) => {
            incomplete |= lost;
            true
        }
        // It is being removed.
        Err(_) => false,
    });
    Ok(incomplete)
}

/// Returns the address that the pod sends from.
fn source(pod: &mut Snapshot<'_>, destination: IpAddr) -> Result<IpAddr, Error> {
    if let Ok(Some(route)) = pod.route_to(destination, None)
        && let Some(source) = route.source
    {
        return Ok(source);
    }
    let usable = |own: &&rtnl::Address| own.address.address.is_ipv4() == destination.is_ipv4() && own.scope < 254;
    let own = pod.addresses.iter().find(usable).map(|own| own.address.address);
    own.ok_or_else(|| Error::Family { pod: pod.name(), destination })
}
