//! Follows the packet from place to place, by links, routes and reports.

use std::net::{IpAddr, SocketAddr};

use crate::{
    Found, Step,
    route::{self, End, Next},
    watched::{Direction, Identity, Passed, Watched},
};

/// The way of one packet.
pub(crate) struct Walk<'a> {
    /// The packet as it is now: rules change its addresses and ports.
    pub(crate) packet: Identity,
    /// Its destination now.
    pub(crate) destination: IpAddr,
    pub(crate) from: Watched<'a>,
    pub(crate) node: Watched<'a>,
    pub(crate) others: Vec<Watched<'a>>,
    pub(crate) steps: Vec<Step>,
    /// Every source that the packet had: where answers go.
    pub(crate) sources: Vec<SocketAddr>,
}

impl Walk<'_> {
    /// Follows the packet to its destination, or to where it is lost.
    pub(crate) fn there(&mut self) {
        let passed = self.from.describe(Direction::There(self.packet), &mut self.steps);
        self.note(&passed);
        if passed.is_dropped {
            return;
        }
        let next = route::decide(&mut self.from.place, self.destination, None, &mut self.steps);
        let (link, mac) = match next {
            Next::Nowhere => return,
            Next::Here => return self.steps.push(self.from.place.step(Found::Delivered)),
            Next::Link { link, mac } => (link, mac),
        };
        let Some(link) = self.from.place.link(link).cloned() else { return };
        self.steps.push(self.from.place.link_step(&link, true));
        let Some(peer) = self.node.place.link(link.parent).cloned() else { return };
        match link.kind.as_str() {
            "veth" if peer.parent == link.index => self.on_node(&peer, mac),
            // Frames pass the parent, and no rule of the node.
            "macvlan" | "ipvlan" => {
                self.steps.push(self.node.place.link_step(&peer, true));
                let to = self.others.iter().position(|pod| pod.place.has_address(self.destination));
                self.arrive(to, None);
            }
            _ => {}
        }
    }

    fn note(&mut self, passed: &Passed) {
        if let Some(destination) = passed.destination {
            self.destination = destination.ip();
        }
        if let Some(source) = passed.source {
            self.packet.source = source;
            self.sources.push(source);
        }
    }

    /// The packet arrives at the node's end of a veth pair.
    fn on_node(&mut self, peer: &rtnl::Link, mac: Option<[u8; 6]>) {
        self.steps.push(self.node.place.link_step(peer, false));
        let source = self.packet.source.ip();
        let bridge = self.node.place.link(peer.master).filter(|link| link.kind == "bridge").cloned();
        let passed = self.node.describe(Direction::There(self.packet), &mut self.steps);
        self.note(&passed);
        if passed.is_dropped {
            return;
        }
        let end = match &bridge {
            Some(bridge) if mac.is_some() => route::follow(&self.node.place, bridge, mac, &mut self.steps),
            _ => End::Node,
        };
        let out = match end {
            End::Port(port) => port,
            End::Node => {
                let arrived = bridge.as_ref().map_or(peer.index, |bridge| bridge.index);
                match self.through_node((source, arrived), &passed) {
                    Some(port) => port,
                    None => return,
                }
            }
        };
        self.leave(out);
    }

    /// The node routes the packet. Returns the link through which it leaves the node.
    fn through_node(&mut self, arrived: (IpAddr, u32), passed: &Passed) -> Option<u32> {
        let next = route::decide(&mut self.node.place, self.destination, Some(arrived), &mut self.steps);
        let (link, mac) = match next {
            Next::Nowhere => return None,
            Next::Here => {
                let found = if passed.is_delivered { Found::Delivered } else { Found::Vanished };
                self.steps.push(self.node.place.step(found));
                return None;
            }
            // Policy routing by marks may have chosen another link.
            Next::Link { link, mac } => match passed.leaves {
                Some(leaves) if leaves != link => (leaves, None),
                _ => (link, mac),
            },
        };
        if passed.leaves.is_none() {
            self.steps.push(self.node.place.step(Found::Vanished));
            return None;
        }
        let link = self.node.place.link(link).cloned()?;
        if link.kind == "wireguard" {
            self.steps.push(self.node.place.link_step(&link, true));
            self.steps.push(route::encrypted(&self.node.place, &link, self.destination));
            return Some(link.index);
        }
        match route::follow(&self.node.place, &link, mac, &mut self.steps) {
            End::Port(port) => Some(port),
            End::Node => None,
        }
    }

    /// The packet leaves the node through a link; maybe to a pod.
    fn leave(&mut self, out: u32) {
        let Some(out) = self.node.place.link(out).cloned() else { return };
        // Through its own host port, for example.
        if let Some(own) = self.from.end_of(&out).cloned() {
            self.steps.push(self.from.place.link_step(&own, false));
            let passed = self.from.describe(Direction::There(self.packet), &mut self.steps);
            let found = if passed.is_delivered { Found::Delivered } else { Found::Vanished };
            self.steps.push(self.from.place.step(found));
            return;
        }
        let to = self.others.iter().position(|pod| pod.end_of(&out).is_some());
        self.arrive(to, Some(&out));
    }

    /// The packet arrives at a pod of the node.
    fn arrive(&mut self, pod: Option<usize>, out: Option<&rtnl::Link>) {
        let Some(pod) = pod.and_then(|pod| self.others.get_mut(pod)) else { return };
        if let Some(link) = out.and_then(|out| pod.end_of(out)).cloned() {
            self.steps.push(pod.place.link_step(&link, false));
        }
        let passed = pod.describe(Direction::There(self.packet), &mut self.steps);
        if passed.is_dropped || !pod.is_marked() {
            return;
        }
        let found = if passed.is_delivered { Found::Delivered } else { Found::Vanished };
        self.steps.push(pod.place.step(found));
    }

    /// Follows the answer.
    pub(crate) fn back(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        self.sources.push(self.packet.source);
        let direction = Direction::Back(self.packet.protocol, &self.sources);
        let mut all: Vec<&mut Watched<'_>> = self.others.iter_mut().filter(|pod| pod.is_marked()).collect();
        all.extend([&mut self.node, &mut self.from]);
        for watched in all {
            watched.describe(direction, &mut steps);
        }
        steps
    }
}
