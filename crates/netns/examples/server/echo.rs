//! The echo service (RFC 862).

use rustix::{
    fd::OwnedFd,
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send},
};

use super::{shard::Next, tenant::Tenant};

/// A connection that is echoed. Nothing is read while the client does not take what was sent.
#[derive(Debug, Default)]
pub(crate) struct Echo {
    /// What could not be sent yet.
    unsent: Vec<u8>,
}

impl Echo {
    /// Sends what is left, or reads once and sends it.
    pub(crate) fn turn(&mut self, socket: &OwnedFd, tenant: &Tenant, buffer: &mut [u8]) -> Next {
        if !self.unsent.is_empty() {
            return match transmit(socket, tenant, &self.unsent) {
                Ok(sent) => {
                    self.unsent.drain(..sent);
                    self.next()
                }
                Err(next) => next,
            };
        }
        match receive(socket, tenant, buffer) {
            Ok(0) => Next::Close,
            Ok(length) => match transmit(socket, tenant, &buffer[..length]) {
                Ok(sent) => {
                    self.unsent.extend_from_slice(&buffer[sent..length]);
                    self.next()
                }
                Err(next) => next,
            },
            Err(next) => next,
        }
    }

    fn next(&mut self) -> Next {
        if self.unsent.is_empty() {
            // An idle connection takes no memory for this.
            self.unsent = Vec::new();
            Next::Read
        } else {
            Next::Write
        }
    }
}

/// Reads once. Zero is the end of the client's data.
pub(crate) fn receive(socket: &OwnedFd, tenant: &Tenant, buffer: &mut [u8]) -> Result<usize, Next> {
    match recv(socket, &mut *buffer, RecvFlags::empty()) {
        Ok((_, length)) => {
            tenant.counters.received.add(length as u64);
            Ok(length)
        }
        Err(Errno::AGAIN | Errno::INTR) => Err(Next::Read),
        Err(_) => {
            tenant.counters.errors.add(1);
            Err(Next::Close)
        }
    }
}

/// Sends once; returns how much the kernel took.
pub(crate) fn transmit(socket: &OwnedFd, tenant: &Tenant, bytes: &[u8]) -> Result<usize, Next> {
    match send(socket, bytes, SendFlags::NOSIGNAL) {
        Ok(length) => {
            tenant.counters.sent.add(length as u64);
            Ok(length)
        }
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        Err(_) => {
            tenant.counters.errors.add(1);
            Err(Next::Close)
        }
    }
}
