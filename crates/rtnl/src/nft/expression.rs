//! Expressions of nftables rules. Registers are 32 bits wide and numbered from 8; register 1 is an alias for the first
//! four of them.

use crate::netlink::Batch;

const NFTA_LIST_ELEM: u16 = 1;
const NFTA_EXPR_NAME: u16 = 1;
const NFTA_EXPR_DATA: u16 = 2;
const NFTA_DATA_VALUE: u16 = 1;

/// The first register. Values are loaded into it and the registers after it.
pub const FIRST: u32 = 8;

// Keys of `meta`.
/// Protocol of a frame (`ETH_P_*`), in network byte order.
pub const META_PROTOCOL: u32 = 1;
/// Name of the link that a packet arrived at.
pub const META_IIFNAME: u32 = 6;
/// Name of the link that a packet leaves through.
pub const META_OIFNAME: u32 = 7;
/// Number of the address family (`NFPROTO_*`).
pub const META_NFPROTO: u32 = 15;
/// Number of the transport protocol.
pub const META_L4PROTO: u32 = 16;
/// Length of an interface's name in a register.
pub const NAME: usize = 16;

fn expression(m: &mut Batch, name: &str, data: impl FnOnce(&mut Batch)) {
    m.nest(NFTA_LIST_ELEM, |m| {
        m.text(NFTA_EXPR_NAME, name);
        m.nest(NFTA_EXPR_DATA, data);
    });
}

/// Loads `meta <key>` into a register.
pub fn meta(m: &mut Batch, key: u32, register: u32) {
    expression(m, "meta", |m| {
        m.big_endian(1, register);
        m.big_endian(2, key);
    });
}

/// Sets `meta <key>` to the value of the first register.
pub fn set_meta(m: &mut Batch, key: u32) {
    expression(m, "meta", |m| {
        m.big_endian(2, key);
        m.big_endian(3, FIRST);
    });
}

/// Base of [`payload`] for the link header.
pub const LINK: u32 = 0;
/// Base of [`payload`] for the IP header.
pub const NETWORK: u32 = 1;
/// Base of [`payload`] for the header of TCP, UDP or SCTP.
pub const TRANSPORT: u32 = 2;

/// Verdict: the packet is dropped.
pub const DROP: i32 = 0;
/// Verdict: the packet passes this base chain.
pub const ACCEPT: i32 = 1;
/// Verdict: continue in a chain, and return from it.
pub const JUMP: i32 = -3;
/// Verdict: continue in a chain.
pub const GOTO: i32 = -4;
/// Verdict: return from a chain.
pub const RETURN: i32 = -5;

/// Loads bytes of a header into a register.
pub fn payload(m: &mut Batch, base: u32, offset: u32, length: u32, register: u32) {
    expression(m, "payload", |m| {
        m.big_endian(1, register);
        m.big_endian(2, base);
        m.big_endian(3, offset);
        m.big_endian(4, length);
    });
}

/// Loads a constant into a register.
pub fn load(m: &mut Batch, register: u32, value: &[u8]) {
    expression(m, "immediate", |m| {
        m.big_endian(1, register);
        m.nest(2, |m| m.bytes(NFTA_DATA_VALUE, value));
    });
}

/// Ends the rule unless the first register equals `value`.
pub fn equals(m: &mut Batch, value: &[u8]) {
    compare(m, 0, value);
}

/// Ends the rule if the first register equals `value`.
pub fn differs(m: &mut Batch, value: &[u8]) {
    compare(m, 1, value);
}

fn compare(m: &mut Batch, operation: u32, value: &[u8]) {
    expression(m, "cmp", |m| {
        m.big_endian(1, FIRST);
        m.big_endian(2, operation);
        m.nest(3, |m| m.bytes(NFTA_DATA_VALUE, value));
    });
}

/// Applies a bit mask to the first register.
pub fn mask(m: &mut Batch, value: &[u8]) {
    expression(m, "bitwise", |m| {
        m.big_endian(1, FIRST);
        m.big_endian(2, FIRST);
        m.big_endian(3, u32::try_from(value.len()).expect("a register is short"));
        m.nest(4, |m| m.bytes(NFTA_DATA_VALUE, value));
        m.nest(5, |m| m.bytes(NFTA_DATA_VALUE, &vec![0; value.len()]));
    });
}

/// Ends the rule unless the set contains the value of the first register.
pub fn is_in(m: &mut Batch, set: &str) {
    lookup(m, set, |_| {});
}

/// Ends the rule if the set contains the value of the first register.
pub fn is_not_in(m: &mut Batch, set: &str) {
    lookup(m, set, |m| m.big_endian(5, 1));
}

/// Replaces the value in the first registers by its data in the map; ends the rule if the map does not contain it.
pub fn map(m: &mut Batch, map: &str) {
    lookup(m, map, |m| m.big_endian(3, FIRST));
}

fn lookup(m: &mut Batch, set: &str, more: impl FnOnce(&mut Batch)) {
    expression(m, "lookup", |m| {
        m.text(1, set);
        m.big_endian(2, FIRST);
        more(m);
    });
}

/// Loads `fib daddr type` into the first register.
pub fn destination_type(m: &mut Batch) {
    const ADDRTYPE: u32 = 3;
    const DADDR: u32 = 2;
    expression(m, "fib", |m| {
        m.big_endian(1, FIRST);
        m.big_endian(2, ADDRTYPE);
        m.big_endian(3, DADDR);
    });
}

/// Ends the rule unless the route to the packet's source leads through another link than the one that it arrived at, or
/// there is none (`fib saddr . iif oif missing`).
pub fn source_route_missing(m: &mut Batch) {
    const OIF: u32 = 1;
    const SADDR: u32 = 1;
    const IIF: u32 = 8;
    const PRESENT: u32 = 32;
    expression(m, "fib", |m| {
        m.big_endian(1, FIRST);
        m.big_endian(2, OIF);
        m.big_endian(3, SADDR | IIF | PRESENT);
    });
    equals(m, &[0]);
}

/// Ends the rule unless the connection's destination was translated (`ct status & dnat != 0`).
pub fn destination_translated(m: &mut Batch) {
    const STATUS: u32 = 2;
    const IPS_DST_NAT: u32 = 1 << 5;
    expression(m, "ct", |m| {
        m.big_endian(1, FIRST);
        m.big_endian(2, STATUS);
    });
    mask(m, &IPS_DST_NAT.to_ne_bytes());
    differs(m, &0u32.to_ne_bytes());
}

/// Ends the rule unless the packet belongs to a known connection (`ct state established,related`).
pub fn is_known_connection(m: &mut Batch) {
    const STATE: u32 = 0;
    const ESTABLISHED_RELATED: u32 = 2 | 4;
    expression(m, "ct", |m| {
        m.big_endian(1, FIRST);
        m.big_endian(2, STATE);
    });
    mask(m, &ESTABLISHED_RELATED.to_ne_bytes());
    differs(m, &0u32.to_ne_bytes());
}

/// Applies `dnat to` with the address in the first register and the port in register `port`.
pub fn destination_nat(m: &mut Batch, family: u8, port: u32) {
    const DNAT: u32 = 1;
    expression(m, "nat", |m| {
        m.big_endian(1, DNAT);
        m.big_endian(2, family.into());
        m.big_endian(3, FIRST);
        m.big_endian(5, port);
    });
}

/// Applies `masquerade`.
pub fn masquerade(m: &mut Batch) {
    expression(m, "masq", |_| {});
}

/// Sets a verdict, with the chain of a jump.
pub fn verdict(m: &mut Batch, code: i32, chain: Option<&str>) {
    const NFTA_DATA_VERDICT: u16 = 2;
    expression(m, "immediate", |m| {
        m.big_endian(1, 0);
        m.nest(2, |m| {
            m.nest(NFTA_DATA_VERDICT, |m| {
                m.big_endian(1, code.cast_unsigned());
                if let Some(chain) = chain {
                    m.text(2, chain);
                }
            });
        });
    });
}
