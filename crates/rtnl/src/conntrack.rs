//! Connection tracking: forgets UDP flows to ports whose mapping changed. Without this a client that keeps sending from
//! the same port reaches the previous destination, because its packets keep the flow alive.
//!
//! Source: `linux/netfilter/nfnetlink_conntrack.h`.

use rustix::io::Errno;

use crate::{
    netlink::{Batch, Refusal, Socket, attributes, find},
    nft::Family,
    query::retry_interrupted,
};

const IPCTNL_MSG_CT_GET: u16 = 0x101;
const IPCTNL_MSG_CT_DELETE: u16 = 0x102;
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_PROTO: u16 = 2;
const CTA_TUPLE_ZONE: u16 = 3;
const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_DST_PORT: u16 = 3;
const CTA_ID: u16 = 12;
const UDP: u8 = 17;

/// Deletes the tracked UDP flows of a family whose original destination is one of the ports; returns their number. The
/// socket is one of [`Socket::netfilter`].
pub fn forget_udp(socket: &mut Socket, family: Family, ports: &[u16]) -> Result<usize, Refusal> {
    if ports.is_empty() {
        return Ok(0);
    }
    let header = [family.number(), 0, 0, 0];
    let flows = retry_interrupted(|| {
        let mut batch = Batch::new();
        batch.message(IPCTNL_MSG_CT_GET, 0, &header, |_| {});
        let mut flows = Vec::new();
        socket.dump(batch, |_, body| {
            let all = body.get(4..).unwrap_or_default();
            let Some(tuple) = find(all, CTA_TUPLE_ORIG) else { return };
            if udp_port(tuple).is_some_and(|port| ports.contains(&port)) {
                flows.push((tuple.to_vec(), find(all, CTA_ID).map(<[u8]>::to_vec)));
            }
        })?;
        Ok(flows)
    })?;
    if flows.is_empty() {
        return Ok(0);
    }
    let mut batch = Batch::new();
    for (tuple, id) in &flows {
        batch.message(IPCTNL_MSG_CT_DELETE, 0, &header, |m| {
            m.nest(CTA_TUPLE_ORIG, |m| {
                for (kind, value) in attributes(tuple) {
                    match kind {
                        CTA_TUPLE_ZONE => m.bytes(kind, value),
                        _ => m.nest(kind, |m| m.raw(value)),
                    }
                }
            });
            if let Some(id) = id {
                m.bytes(CTA_ID, id);
            }
        });
    }
    // A flow may have ended since it was listed.
    let failed = socket.request_each(batch)?.into_iter().find(|refusal| refusal.errno != Errno::NOENT);
    failed.map_or(Ok(flows.len()), Err)
}

fn udp_port(tuple: &[u8]) -> Option<u16> {
    let transport = find(tuple, CTA_TUPLE_PROTO)?;
    if find(transport, CTA_PROTO_NUM)? != [UDP] {
        return None;
    }
    Some(u16::from_be_bytes(find(transport, CTA_PROTO_DST_PORT)?.try_into().ok()?))
}
