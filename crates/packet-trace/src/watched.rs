//! What the kernel reported on the packet in one network namespace.

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
};

use netns::Namespace;
use rtnl::nft::trace::{self as kernel, Packet, Report, Verdict};

use crate::{
    Error, Found, Step,
    marks::{ARRIVES, DELIVERED, LEAVES, Marks, Match},
    place::Snapshot,
    step::DROP,
    texts::Texts,
};

/// Most reports on one packet that are described.
const REPORTS_MAX: usize = 1024;
/// Family of tables for IPv4 and IPv6 (`NFPROTO_INET`).
const INET: u8 = 1;

/// One network namespace with what the kernel reported there.
pub(crate) struct Watched<'a> {
    pub(crate) place: Snapshot<'a>,
    /// `None` where the packet is not expected.
    marks: Option<Marks>,
    texts: Texts<'a>,
    reports: Vec<Report>,
}

/// A packet by what does not change on its way through one network namespace, except at its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) protocol: u8,
    pub(crate) source: SocketAddr,
}

/// Which packet is looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Direction<'a> {
    /// The packet itself.
    There(Identity),
    /// Its answer, with this protocol, to one of these addresses and ports.
    Back(u8, &'a [SocketAddr]),
}

impl Direction<'_> {
    fn is(&self, packet: &Packet) -> bool {
        match self {
            Self::There(identity) => (packet.protocol, packet.source) == (identity.protocol, identity.source),
            Self::Back(protocol, to) => packet.protocol == *protocol && to.contains(&packet.destination),
        }
    }
}

/// What became of the packet in one network namespace.
#[derive(Default)]
pub(crate) struct Passed {
    pub(crate) source: Option<SocketAddr>,
    pub(crate) destination: Option<SocketAddr>,
    pub(crate) is_dropped: bool,
    pub(crate) is_delivered: bool,
    /// The link through which it left.
    pub(crate) leaves: Option<u32>,
}

impl<'a> Watched<'a> {
    /// Reads what is there. With `packets`, has the kernel report these until [`Watched::stop`].
    pub(crate) fn start(name: Option<&str>, namespace: &'a Namespace, packets: Option<Match>) -> Result<Self, Error> {
        let place = Snapshot::before(name, namespace)?;
        let marks = packets.map(|packets| Marks::set(namespace, &place.name(), packets)).transpose()?;
        Ok(Self { place, marks, texts: Texts::new(namespace), reports: Vec::new() })
    }

    /// Has the kernel report these packets, too.
    pub(crate) fn mark(&mut self, namespace: &Namespace, packets: Match) -> Result<(), Error> {
        self.marks = Some(Marks::set(namespace, &self.place.name(), packets)?);
        Ok(())
    }

    pub(crate) fn is_marked(&self) -> bool {
        self.marks.is_some()
    }

    /// Reads what was reported; returns whether reports were lost.
    pub(crate) fn stop(&mut self) -> Result<bool, Error> {
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
    /// addresses and ports. But what it reports under one number is about one packet.
    fn of(&self, direction: Direction<'_>) -> Vec<Report> {
        let (mut numbers, mut seen) = (HashMap::new(), HashSet::new());
        let mut reports = Vec::new();
        for report in &self.reports {
            let is_own = self.is_own(report);
            if let Some(packet) = &report.packet {
                let is_entry = is_own && report.chain == ARRIVES;
                // A number is used again for a later packet.
                if is_entry || direction.is(packet) {
                    numbers.insert(report.id, direction.is(packet));
                }
            }
            if numbers.get(&report.id) != Some(&true) {
                continue;
            }
            // The next packet appears where the first one was.
            let is_next = is_own && report.packet.is_some() && !seen.insert((report.family, report.chain.clone()));
            if is_next || reports.len() == REPORTS_MAX {
                break;
            }
            reports.push(report.clone());
        }
        reports
    }

    fn is_own(&self, report: &Report) -> bool {
        self.marks.as_ref().is_some_and(|marks| marks.is_own(report))
    }

    /// Describes the rules that the packet passed, and how it changed.
    pub(crate) fn describe(&mut self, direction: Direction<'_>, steps: &mut Vec<Step>) -> Passed {
        let mut passed = Passed::default();
        for report in self.of(direction) {
            if let Some(packet) = &report.packet {
                self.note_changes(packet, &mut passed, steps);
            }
            if self.is_own(&report) {
                passed.is_delivered |= report.chain == DELIVERED && report.family == INET;
                if report.chain == LEAVES && report.family == INET && report.leaves != 0 {
                    passed.leaves = Some(report.leaves);
                }
                continue;
            }
            let found = self.found(report);
            passed.is_dropped |= found.as_ref().is_some_and(Found::ends);
            steps.extend(found.map(|found| self.place.step(found)));
        }
        passed
    }

    fn found(&mut self, report: Report) -> Option<Found> {
        let table = format!("{} {}", family(report.family), report.table);
        let verdict = verdict(&report.verdict);
        match report.step {
            // The end of a chain.
            kernel::Step::Rule if report.rule == 0 => None,
            kernel::Step::Rule => {
                let text = self.texts.of(&table, report.rule);
                Some(Found::Rule { table, chain: report.chain, handle: report.rule, text, verdict })
            }
            kernel::Step::Policy => Some(Found::Policy { table, chain: report.chain, verdict }),
            kernel::Step::Return => None,
        }
    }

    fn note_changes(&self, packet: &Packet, passed: &mut Passed, steps: &mut Vec<Step>) {
        if let Some(from) = passed.destination.replace(packet.destination)
            && from != packet.destination
        {
            steps.push(self.place.step(Found::Destination { from, to: packet.destination }));
        }
        if let Some(from) = passed.source.replace(packet.source)
            && from != packet.source
        {
            steps.push(self.place.step(Found::Source { from, to: packet.source }));
        }
    }

    /// Returns the link of this place whose other end is a link of another one. Two network namespaces may have links with
    /// one index, so both ends are compared.
    pub(crate) fn end_of(&self, other: &rtnl::Link) -> Option<&rtnl::Link> {
        let is_end =
            |link: &&rtnl::Link| link.kind == "veth" && link.parent == other.index && other.parent == link.index;
        self.place.links.iter().find(is_end)
    }
}

fn family(number: u8) -> &'static str {
    match number {
        INET => "inet",
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
