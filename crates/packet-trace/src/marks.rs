//! Tables of nftables that mark the packet and its answer, and the kernel's reports on both.

use std::time::Instant;

use netns::Namespace;
use rtnl::{
    netlink::{Batch, Socket},
    nft::{
        Family, Hook, Table, Transaction,
        expression::{FIRST, META_L4PROTO, META_NFPROTO, META_PROTOCOL, TRANSPORT, equals, meta, payload},
        trace::{Report, Traces, mark},
    },
};

use crate::{
    Error, Probe,
    error::{failed, refused},
};

/// Before connection tracking, which changes addresses: `NF_IP_PRI_CONNTRACK_DEFRAG` is -400.
const FIRST_PRIORITY: i32 = -500;
/// After every other chain.
const LAST_PRIORITY: i32 = i32::MAX - 1;
/// Hooks at which a packet appears: `NF_INET_PRE_ROUTING`, `NF_INET_LOCAL_OUT`.
const ENTRIES: [(&str, u32); 2] = [(ARRIVES, 0), ("is-sent", 3)];
/// Hooks that show what becomes of it: `NF_INET_LOCAL_IN`, `NF_INET_FORWARD`, `NF_INET_POST_ROUTING`.
const EXITS: [(&str, u32); 3] = [(DELIVERED, 1), ("is-forwarded", 2), (LEAVES, 4)];
/// The chain at which a packet arrives.
pub(crate) const ARRIVES: &str = "arrives";
/// The chain at which a packet leaves.
pub(crate) const LEAVES: &str = "leaves";
/// The chain at which a packet is delivered to a socket.
pub(crate) const DELIVERED: &str = "is-delivered";

/// Which packets are marked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Match {
    pub(crate) probe: Probe,
    pub(crate) is_ipv4: bool,
    pub(crate) mark: u16,
}

/// The marks in one network namespace. Removed when this is dropped.
pub(crate) struct Marks {
    _tables: Vec<Socket>,
    traces: Traces,
    table: String,
}

impl Marks {
    pub(crate) fn set(namespace: &Namespace, place: &str, packets: Match) -> Result<Self, Error> {
        let opened = namespace.enter(|| Ok((Socket::netfilter()?, Socket::netfilter()?, Traces::open()?)));
        let (mut inet, mut bridge, traces) =
            opened?.map_err(failed::<std::io::Error>("open netfilter sockets", place))?;
        let name: std::sync::Arc<str> = format!("pinion-trace-{}-{:04x}", std::process::id(), packets.mark).into();
        let table = |family| Table { family, name: name.clone() };
        transaction(&table(Family::Inet), packets).commit(&mut inet).map_err(refused("mark packets", place))?;
        // Kernels without nftables for bridges do not show which frames pass a bridge.
        let has_bridges = transaction(&table(Family::Bridge), packets).commit(&mut bridge).is_ok();
        let mut tables = vec![inet];
        tables.extend(has_bridges.then_some(bridge));
        Ok(Self { _tables: tables, traces, table: name.to_string() })
    }

    /// Reports whether a table is one of these.
    pub(crate) fn is_own(&self, report: &Report) -> bool {
        report.table == self.table
    }

    /// Returns the reports until now, and whether some were lost.
    pub(crate) fn read(&mut self) -> (Vec<Report>, bool) {
        self.traces.read(Instant::now())
    }
}

fn transaction(table: &Table, packets: Match) -> Transaction {
    let mut transaction = Transaction::new(table);
    transaction.create_owned_table();
    for (name, number) in ENTRIES {
        transaction.create_chain(name, Some(Hook { kind: "filter", number, priority: FIRST_PRIORITY }));
        for offset in packets.probe.offsets() {
            transaction.append_rule(name, "", |m| matching(m, table.family, packets, offset));
        }
    }
    for (name, number) in EXITS {
        transaction.create_chain(name, Some(Hook { kind: "filter", number, priority: LAST_PRIORITY }));
    }
    transaction
}

fn matching(m: &mut Batch, family: Family, packets: Match, offset: u32) {
    match (family, packets.is_ipv4) {
        (Family::Bridge, is_ipv4) => {
            meta(m, META_PROTOCOL, FIRST);
            equals(m, &(if is_ipv4 { 0x0800_u16 } else { 0x86dd }).to_be_bytes());
        }
        (_, is_ipv4) => {
            meta(m, META_NFPROTO, FIRST);
            equals(m, &[if is_ipv4 { 2 } else { 10 }]);
        }
    }
    meta(m, META_L4PROTO, FIRST);
    equals(m, &[packets.probe.protocol(packets.is_ipv4)]);
    payload(m, TRANSPORT, offset, 2, FIRST);
    equals(m, &packets.mark.to_be_bytes());
    mark(m);
}
