//! The socket for nftables that calls in one process share.

use std::sync::{Arc, Mutex, PoisonError};

use rtnl::netlink::Socket;
use rustix::io::Errno;

use crate::Error;

/// A socket for nftables that is opened by the first call that needs it, in the network namespace of that call's
/// thread, and outlives the calls. Clones share it.
///
/// Closing such a socket after a transaction that deleted something waits until the kernel has freed it, which takes a
/// grace period of RCU (10 to 20 ms): `nft_rcv_nl_event` in `net/netfilter/nf_tables_api.c`.
#[derive(Clone, Debug, Default)]
pub struct NftSocket(Arc<Mutex<Option<Socket>>>);

impl NftSocket {
    /// Runs work with the socket. Calls of other threads wait. After an error the next call opens a new socket, because
    /// replies to a failed request may be in the old one.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Socket) -> Result<T, Error>) -> Result<T, Error> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut socket = match slot.take() {
            Some(socket) => socket,
            None => open()?,
        };
        let outcome = work(&mut socket);
        if outcome.is_ok() {
            *slot = Some(socket);
        }
        outcome
    }
}

/// Opens a socket for nftables in the network namespace of the calling thread.
pub(crate) fn open() -> Result<Socket, Error> {
    Socket::netfilter().map_err(|cause| match Errno::from_io_error(&cause) {
        Some(Errno::PROTONOSUPPORT) => {
            Error::Unsupported { operation: "open", object: "nftables socket".into(), module: "nfnetlink" }
        }
        _ => Error::kernel("open", "nftables socket", cause),
    })
}
