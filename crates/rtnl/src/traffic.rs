//! Traffic control: the token bucket filter, and redirection of what a link receives.
//!
//! Sources: tc(8), tc-tbf(8), `linux/pkt_sched.h`, `linux/pkt_cls.h`.

use crate::{
    netlink::{Batch, CREATE, EXCL, Refusal, Socket, attributes, find, text},
    query::retry_interrupted,
};

const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;
const RTM_GETQDISC: u16 = 38;
const RTM_NEWTFILTER: u16 = 44;
const RTM_GETTFILTER: u16 = 46;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TC_H_ROOT: u32 = 0xffff_ffff;
const TC_H_INGRESS: u32 = 0xffff_fff1;
const INGRESS: u32 = 0xffff_0000;
const TCA_U32_CLASSID: u16 = 1;
const TCA_U32_SEL: u16 = 5;
const TCA_U32_ACT: u16 = 7;
const TCA_ACT_KIND: u16 = 1;
/// Time units of the kernel's packet scheduler in one second (`/proc/net/psched`).
const TICKS_PER_SECOND: u64 = 15_625_000;

/// A token bucket filter: the root queueing discipline that limits what a link sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// Bytes per second.
    pub rate: u64,
    /// Bytes that may be queued.
    pub limit: u32,
    /// Time that it takes to send a full bucket, in units of the kernel's packet scheduler.
    pub buffer: u32,
}

impl TokenBucket {
    /// Returns the filter for a rate in bytes per second, a bucket in bytes, and the longest time that a packet is
    /// queued in milliseconds.
    #[must_use]
    pub fn new(rate: u64, burst: u32, latency: u32) -> Self {
        let rate = rate.max(1);
        let microseconds = u64::from(burst).saturating_mul(1_000_000) / rate;
        let ticks = microseconds.min(u64::from(u32::MAX)).saturating_mul(TICKS_PER_SECOND) / 1_000_000;
        let queued = rate.saturating_mul(u64::from(latency)) / 1000;
        Self {
            rate,
            limit: u32::try_from(queued.saturating_add(u64::from(burst))).unwrap_or(u32::MAX),
            buffer: u32::try_from(ticks).unwrap_or(u32::MAX),
        }
    }

    /// Appends the message that makes it the root queueing discipline of a link, with the handle `1:`.
    pub fn add(&self, batch: &mut Batch, link: u32) {
        let rate = u32::try_from(self.rate).unwrap_or(u32::MAX);
        let mut parameters = [0; 36]; // struct tc_tbf_qopt: rate and peak rate of 12 bytes each, limit, buffer, mtu
        parameters[8..12].copy_from_slice(&rate.to_ne_bytes());
        parameters[24..28].copy_from_slice(&self.limit.to_ne_bytes());
        parameters[28..32].copy_from_slice(&self.buffer.to_ne_bytes());
        qdisc(batch, link, 0x1_0000, TC_H_ROOT, "tbf", |m| {
            m.bytes(TCA_TBF_PARMS, &parameters);
            if self.rate > u64::from(u32::MAX) {
                m.bytes(TCA_TBF_RATE64, &self.rate.to_ne_bytes());
            }
        });
    }
}

fn qdisc(batch: &mut Batch, link: u32, handle: u32, parent: u32, kind: &str, options: impl FnOnce(&mut Batch)) {
    batch.message(RTM_NEWQDISC, CREATE | EXCL, &header(link, handle, parent, 0), |m| {
        m.text(TCA_KIND, kind);
        m.nest(TCA_OPTIONS, options);
    });
}

/// Builds a `struct tcmsg`.
fn header(link: u32, handle: u32, parent: u32, info: u32) -> [u8; 20] {
    let mut header = [0; 20];
    for (at, number) in [(4, link), (8, handle), (12, parent), (16, info)] {
        header[at..at + 4].copy_from_slice(&number.to_ne_bytes());
    }
    header
}

/// Redirects every frame that a link receives to the output of another link: an ingress queueing discipline, and a filter
/// that matches everything. The kernel refuses a link that has such a queueing discipline (`EEXIST`).
pub fn redirect(batch: &mut Batch, from: u32, to: u32) {
    const ETH_P_ALL: u16 = 3;
    const PRIORITY: u32 = 1;
    const TCA_ACT_OPTIONS: u16 = 2;
    const TCA_MIRRED_PARMS: u16 = 2;
    const TC_ACT_STOLEN: u32 = 4;
    const TCA_EGRESS_REDIR: u32 = 1;
    qdisc(batch, from, INGRESS, TC_H_INGRESS, "ingress", |_| {});
    let info = (PRIORITY << 16) | u32::from(ETH_P_ALL.to_be());
    batch.message(RTM_NEWTFILTER, CREATE | EXCL, &header(from, 0, INGRESS, info), |m| {
        m.text(TCA_KIND, "u32");
        m.nest(TCA_OPTIONS, |m| {
            // struct tc_u32_sel: flags (1: terminal), keys (one), and a key whose mask is zero.
            let mut selector = [0; 16 + 16];
            selector[0] = 1;
            selector[2] = 1;
            m.bytes(TCA_U32_SEL, &selector);
            m.number(TCA_U32_CLASSID, 0x1_0001);
            m.nest(TCA_U32_ACT, |m| {
                m.nest(1, |m| {
                    m.text(TCA_ACT_KIND, "mirred");
                    m.nest(TCA_ACT_OPTIONS, |m| {
                        let mut parameters = [0; 28]; // struct tc_mirred
                        for (at, number) in [(8, TC_ACT_STOLEN), (20, TCA_EGRESS_REDIR), (24, to)] {
                            parameters[at..at + 4].copy_from_slice(&number.to_ne_bytes());
                        }
                        m.bytes(TCA_MIRRED_PARMS, &parameters);
                    });
                });
            });
        });
    });
}

/// Removes the queueing discipline for what a link receives, with its filters. The kernel refuses a link without one
/// (`EINVAL` or `ENOENT`).
pub fn delete_ingress(batch: &mut Batch, link: u32) {
    batch.message(RTM_DELQDISC, 0, &header(link, INGRESS, TC_H_INGRESS, 0), |_| {});
}

/// The queueing discipline for what a link receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ingress {
    /// Kind: `ingress` or `clsact`.
    pub kind: String,
    /// Whether there is nothing but what [`redirect`] adds. The link that frames are redirected to may be gone.
    pub is_redirect: bool,
}

/// Returns the queueing discipline for what a link receives; `None` if it does not have one.
pub fn ingress(socket: &mut Socket, link: u32) -> Result<Option<Ingress>, Refusal> {
    let found = retry_interrupted(|| {
        let mut batch = Batch::new();
        batch.message(RTM_GETQDISC, 0, &header(link, 0, 0, 0), |_| {});
        let mut found = None;
        socket.dump(batch, |_, body| {
            let at = |at: usize| body.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_ne_bytes);
            if at(4) == Some(link) && at(12) == Some(TC_H_INGRESS) {
                found = find(body.get(20..).unwrap_or_default(), TCA_KIND).map(text);
            }
        })?;
        Ok(found)
    })?;
    let Some(kind) = found else { return Ok(None) };
    let is_redirect = kind == "ingress" && has_only_redirects(socket, link)?;
    Ok(Some(Ingress { kind, is_redirect }))
}

fn has_only_redirects(socket: &mut Socket, link: u32) -> Result<bool, Refusal> {
    retry_interrupted(|| {
        let mut batch = Batch::new();
        batch.message(RTM_GETTFILTER, 0, &header(link, 0, INGRESS, 0), |_| {});
        let mut only = true;
        socket.dump(batch, |_, body| only &= is_redirect(body.get(20..).unwrap_or_default()))?;
        Ok(only)
    })
}

/// Reports whether the attributes are of a filter whose actions redirect or mirror, or of a table of such filters.
fn is_redirect(filter: &[u8]) -> bool {
    let options = find(filter, TCA_OPTIONS).unwrap_or_default();
    let is_action = |(_, action): (u16, &[u8])| find(action, TCA_ACT_KIND).map(text).as_deref() == Some("mirred");
    find(filter, TCA_KIND).map(text).as_deref() == Some("u32")
        && match find(options, TCA_U32_ACT) {
            Some(actions) => attributes(actions).all(is_action),
            None => find(options, TCA_U32_SEL).is_none(),
        }
}

/// Returns the token bucket filter at the root of a link; `None` if it has another queueing discipline.
pub fn token_bucket(socket: &mut Socket, link: u32) -> Result<Option<TokenBucket>, Refusal> {
    retry_interrupted(|| {
        let mut batch = Batch::new();
        batch.message(RTM_GETQDISC, 0, &header(link, 0, 0, 0), |_| {});
        let mut found = None;
        socket.dump(batch, |_, body| {
            let index = body.get(4..8).and_then(|b| b.try_into().ok()).map(u32::from_ne_bytes);
            let attributes = body.get(20..).unwrap_or_default();
            if index == Some(link) && find(attributes, TCA_KIND).map(text).as_deref() == Some("tbf") {
                found = find(attributes, TCA_OPTIONS).and_then(parse_token_bucket);
            }
        })?;
        Ok(found)
    })
}

fn parse_token_bucket(options: &[u8]) -> Option<TokenBucket> {
    let mut bucket = TokenBucket { rate: 0, limit: 0, buffer: 0 };
    for (kind, value) in attributes(options) {
        let at = |at: usize| Some(u32::from_ne_bytes(value.get(at..at + 4)?.try_into().ok()?));
        match kind {
            TCA_TBF_PARMS => {
                bucket.rate = bucket.rate.max(u64::from(at(8)?));
                (bucket.limit, bucket.buffer) = (at(24)?, at(28)?);
            }
            TCA_TBF_RATE64 => bucket.rate = u64::from_ne_bytes(value.try_into().ok()?),
            _ => {}
        }
    }
    Some(bucket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::messages;

    #[test]
    fn a_redirection_is_recognized() {
        let mut batch = Batch::new();
        redirect(&mut batch, 3, 4);
        let (_, filter) = messages(&batch.buffer).nth(1).expect("a filter");
        assert!(is_redirect(&filter[20..]));
        let filter = |kind: &str, options: &dyn Fn(&mut Batch)| {
            let mut batch = Batch::new();
            batch.message(RTM_NEWTFILTER, 0, &[], |m| {
                m.text(TCA_KIND, kind);
                m.nest(TCA_OPTIONS, options);
            });
            let (_, filter) = messages(&batch.buffer).next().expect("a filter");
            is_redirect(filter)
        };
        let police = |m: &mut Batch| m.nest(TCA_U32_ACT, |m| m.nest(1, |m| m.text(TCA_ACT_KIND, "police")));
        assert!(filter("u32", &|_| {}), "a table");
        assert!(!filter("bpf", &|_| {}));
        assert!(!filter("u32", &police));
        assert!(!filter("u32", &|m| m.bytes(TCA_U32_SEL, &[0; 16])), "a class without an action");
    }

    #[test]
    fn a_bucket_is_converted_to_the_units_of_the_kernel() {
        // 1 Mbit/s with a bucket of 64 kbit: 8000 bytes take 64 ms.
        let bucket = TokenBucket::new(125_000, 8000, 25);
        assert_eq!(bucket, TokenBucket { rate: 125_000, limit: 3125 + 8000, buffer: 1_000_000 });
        assert_eq!(TokenBucket::new(0, u32::MAX, 25).buffer, u32::MAX);
    }
}
