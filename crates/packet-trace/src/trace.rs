//! Puts together what the kernel reports on the packet, and what is known of links and routes.

use std::{
    collections::{HashMap, HashSet},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use netns::Namespace;
use rtnl::nft::trace::{self as kernel, Report, Verdict};
use serde::Serialize;

use crate::{
    Answer, Error, Found, Probe, Step,
    marks::{DELIVERED, Marks, Match},
    place::Snapshot,
    probe::Prepared,
    route::{self, End, Next},
    step::DROP,
    texts::Texts,
};

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

/// One network namespace with what the kernel reported there.
struct Watched<'a> {
    place: Snapshot,
    /// `None` where the packet is not expected.
    marks: Option<Marks>,
    texts: Texts<'a>,
    reports: Vec<Report>,
}

impl<'a> Watched<'a> {
    fn start(name: &str, namespace: &'a Namespace, packets: Match) -> Result<Self, Error> {
        let place = Snapshot::before(name, namespace)?;
        let marks = Some(Marks::set(namespace, name, packets)?);
        Ok(Self { place, marks, texts: Texts::new(namespace), reports: Vec::new() })
    }

    /// Reads what was reported; returns whether reports were lost.
    fn stop(&mut self) -> Result<bool, Error> {
        let mut lost = false;
        if let Some(marks) = &mut self.marks {
            (self.reports, lost) = marks.read();
        }
        self.place.complete()?;
        Ok(lost)
    }

    /// Returns the reports on the first packet in a direction.
    ///
    /// The kernel derives a packet's number from its device, among others, so one packet has several; and rules change its
    /// addresses and ports. But it reports what has one number without a gap.
    fn of(&self, direction: Direction, mark: u16) -> Vec<Report> {
        let (mut directions, mut seen) = (HashMap::new(), HashSet::new());
        let mut reports = Vec::new();
        for report in &self.reports {
            if let Some(found) = report.packet.as_ref().and_then(|packet| Direction::of(packet, mark)) {
                directions.insert(report.id, found);
            }
            if directions.get(&report.id) != Some(&direction) {
                continue;
            }
            let is_own = self.marks.as_ref().is_some_and(|marks| marks.is_own(report));
            // The next packet appears where the first one was.
            if is_own && report.packet.is_some() && !seen.insert((report.family, report.chain.clone())) {
                break;
            }
            reports.push(report.clone());
        }
        reports
    }
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    There,
    Back,
}

impl Direction {
    fn of(packet: &kernel::Packet, mark: u16) -> Option<Self> {
        match (packet.source.port() == mark, packet.destination.port() == mark) {
            (true, _) => Some(Self::There),
            (_, true) => Some(Self::Back),
            _ => None,
        }
    }
}

/// Sends a packet and returns its way. Sends a second one if rules of the node translate the destination to another pod,
/// whose rules are known only then.
///
/// # Errors
/// If a network namespace is gone, the pod has no address of this family, or the kernel shows or marks nothing.
pub fn trace(request: &Request<'_>) -> Result<Trace, Error> {
    let (trace, arrived) = attempt(request, request.destination)?;
    if arrived == request.destination {
        return Ok(trace);
    }
    Ok(attempt(request, arrived)?.0)
}

/// Traces a packet that is expected at the pod with the address `expected`. Returns the destination that it has in the end.
fn attempt(request: &Request<'_>, expected: IpAddr) -> Result<(Trace, IpAddr), Error> {
    let Request { pod, destination, probe, .. } = *request;
    let prepared = Prepared::new(&pod.namespace, probe, destination)?;
    let packets = Match { probe, is_ipv4: destination.is_ipv4(), mark: prepared.mark };
    let mut from = Watched::start(&pod.name, &pod.namespace, packets)?;
    let mut node = Watched::start("node", request.node, packets)?;
    let mut others = Vec::new();
    for other in request.others {
        let place = Snapshot::before(&other.name, &other.namespace)?;
        let marks = match place.has_address(expected) {
            true => Some(Marks::set(&other.namespace, &other.name, packets)?),
            false => None,
        };
        others.push(Watched { place, marks, texts: Texts::new(&other.namespace), reports: Vec::new() });
    }
    let source = source(&mut from.place, destination)?;
    let answer = prepared.send(request.patience);
    let mut incomplete = from.stop()? | node.stop()?;
    for other in &mut others {
        incomplete |= other.stop()?;
    }
    let mut trace = Trace {
        protocol: probe.name(),
        source: (source, prepared.mark).into(),
        destination: (destination, probe.port()).into(),
        steps: Vec::new(),
        back: Vec::new(),
        answer,
        incomplete,
    };
    let mut walk = Walk { packets, source, destination, from, node, others, steps: Vec::new() };
    walk.there();
    trace.steps = std::mem::take(&mut walk.steps);
    walk.back();
    trace.back = walk.steps;
    Ok((trace, walk.destination))
}

/// Returns the address that the pod sends from.
fn source(pod: &mut Snapshot, destination: IpAddr) -> Result<IpAddr, Error> {
    if let Ok(Some(route)) = pod.route_to(destination, None)
        && let Some(source) = route.source
    {
        return Ok(source);
    }
    let usable = |own: &&rtnl::Address| own.address.address.is_ipv4() == destination.is_ipv4() && own.scope < 254;
    let own = pod.addresses.iter().find(usable).map(|own| own.address.address);
    own.ok_or_else(|| Error::Family { pod: pod.name.clone(), destination })
}

/// Follows the packet from place to place.
struct Walk<'a> {
    packets: Match,
    source: IpAddr,
    /// The destination, as rules of the pod and of the node have changed it until now.
    destination: IpAddr,
    from: Watched<'a>,
    node: Watched<'a>,
    others: Vec<Watched<'a>>,
    steps: Vec<Step>,
}

impl Walk<'_> {
    fn there(&mut self) {
        let mark = self.packets.mark;
        let reports = self.from.of(Direction::There, mark);
        let mut walked = Passed::default();
        describe(&mut self.from, &reports, &mut walked, &mut self.steps);
        let destination = walked.destination.map_or(self.destination, |address| address.ip());
        self.destination = destination;
        let next = route::decide(&mut self.from.place, destination, None, &mut self.steps);
        let (link, mac) = match next {
            _ if walked.is_dropped => return,
            Next::Nowhere => return,
            Next::Here => return self.steps.push(self.from.place.step(Found::Delivered)),
            Next::Link { link, mac } => (link, mac),
        };
        let Some(link) = self.from.place.link(link).cloned() else { return };
        self.steps.push(self.from.place.link_step(&link, true));
        let Some(peer) = self.node.place.link(link.parent).cloned() else { return };
        if link.kind == "veth" {
            self.on_node(&peer, mac);
        } else {
            // A macvlan or ipvlan: frames pass the parent, and no rule of the node.
            self.steps.push(self.node.place.link_step(&peer, true));
            self.arrive(destination, None);
        }
    }

    /// The packet arrives at the node's end of a veth pair.
    fn on_node(&mut self, peer: &rtnl::Link, mac: Option<[u8; 6]>) {
        self.steps.push(self.node.place.link_step(peer, false));
        let mark = self.packets.mark;
        let reports = self.node.of(Direction::There, mark);
        let bridge = self.node.place.link(peer.master).filter(|link| link.kind == "bridge").cloned();
        let mut walked = Passed::default();
        describe(&mut self.node, &reports, &mut walked, &mut self.steps);
        if walked.is_dropped {
            return;
        }
        let end = match &bridge {
            Some(bridge) if mac.is_some() => route::follow(&self.node.place, bridge, mac, &mut self.steps),
            _ => End::Node,
        };
        let to = walked.destination.map_or(self.destination, |address| address.ip());
        self.destination = to;
        let out = match end {
            End::Port(port) => port,
            End::Node => {
                let arrived = bridge.as_ref().map_or(peer.index, |bridge| bridge.index);
                let next = route::decide(&mut self.node.place, to, Some((self.source, arrived)), &mut self.steps);
                match next {
                    Next::Nowhere => return,
                    Next::Here => return self.steps.push(self.node.place.step(Found::Delivered)),
                    Next::Link { link, mac } => {
                        let Some(link) = self.node.place.link(link).cloned() else { return };
                        match route::follow(&self.node.place, &link, mac, &mut self.steps) {
                            End::Port(port) => port,
                            End::Node => return,
                        }
                    }
                }
            }
        };
        self.arrive(to, Some(out));
    }

    /// The packet arrives at a pod of the node, if the link of the node belongs to one or, without a link, one has the
    /// address.
    fn arrive(&mut self, destination: IpAddr, out: Option<u32>) {
        let mark = self.packets.mark;
        let is_it = |pod: &&mut Watched<'_>| match out {
            Some(out) => pod.place.links.iter().any(|link| link.kind == "veth" && link.parent == out),
            None => pod.place.has_address(destination),
        };
        let Some(pod) = self.others.iter_mut().find(is_it) else { return };
        let is_end = |link: &&rtnl::Link| out.is_none_or(|out| link.parent == out) && !link.loopback;
        if let Some(link) = pod.place.links.iter().find(is_end) {
            self.steps.push(pod.place.link_step(link, false));
        }
        let reports = pod.of(Direction::There, mark);
        let mut walked = Passed::default();
        describe(pod, &reports, &mut walked, &mut self.steps);
        let to = walked.destination.map_or(destination, |address| address.ip());
        if !walked.is_dropped && (walked.is_delivered || (reports.is_empty() && pod.place.has_address(to))) {
            self.steps.push(pod.place.step(Found::Delivered));
        }
    }

    /// Follows the answer.
    fn back(&mut self) {
        let mark = self.packets.mark;
        let mut all: Vec<&mut Watched<'_>> = self.others.iter_mut().collect();
        all.extend([&mut self.node, &mut self.from]);
        for watched in all {
            let reports = watched.of(Direction::Back, mark);
            describe(watched, &reports, &mut Passed::default(), &mut self.steps);
        }
    }
}

/// What became of the packet in one network namespace.
#[derive(Default)]
struct Passed {
    source: Option<SocketAddr>,
    destination: Option<SocketAddr>,
    is_dropped: bool,
    is_delivered: bool,
}

/// Describes the rules that a packet passed, and how it changed.
fn describe(watched: &mut Watched<'_>, reports: &[Report], passed: &mut Passed, steps: &mut Vec<Step>) {
    for report in reports {
        if let Some(packet) = &report.packet {
            note_changes(watched, packet, passed, steps);
        }
        if watched.marks.as_ref().is_some_and(|marks| marks.is_own(report)) {
            passed.is_delivered |= report.chain == DELIVERED;
            continue;
        }
        let table = format!("{} {}", family(report.family), report.table);
        let (chain, verdict) = (report.chain.clone(), verdict(&report.verdict));
        passed.is_dropped |= verdict == DROP;
        let found = match report.step {
            // The end of a chain.
            kernel::Step::Rule if report.rule == 0 => continue,
            kernel::Step::Rule => {
                let text = watched.texts.of(&table, report.rule);
                Found::Rule { table, chain, handle: report.rule, text, verdict }
            }
            kernel::Step::Policy => Found::Policy { table, chain, verdict },
            kernel::Step::Return => continue,
        };
        steps.push(watched.place.step(found));
    }
}

fn note_changes(watched: &Watched<'_>, packet: &kernel::Packet, passed: &mut Passed, steps: &mut Vec<Step>) {
    if let Some(from) = passed.destination.replace(packet.destination)
        && from != packet.destination
    {
        steps.push(watched.place.step(Found::Destination { from, to: packet.destination }));
    }
    if let Some(from) = passed.source.replace(packet.source)
        && from != packet.source
    {
        steps.push(watched.place.step(Found::Source { from, to: packet.source }));
    }
}

fn family(number: u8) -> &'static str {
    match number {
        1 => "inet",
        2 => "ip",
        3 => "arp",
        5 => "netdev",
        7 => "bridge",
        10 => "ip6",
        _ => "unknown",
    }
}

fn verdict(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Continue => "continue".to_owned(),
        Verdict::Accept => "accept".to_owned(),
        Verdict::Drop => DROP.to_owned(),
        Verdict::Queue => "queue".to_owned(),
        Verdict::Jump(chain) => format!("jump {chain}"),
        Verdict::Goto(chain) => format!("goto {chain}"),
        Verdict::Return => "return".to_owned(),
        Verdict::Other(code) => format!("verdict {code}"),
    }
}
