//! nftables transactions: the kernel applies all messages of a transaction, or none.

use super::table::Table;
use crate::netlink::{Batch, CREATE, Refusal, Socket};

const NFNL_MSG_BATCH_BEGIN: u16 = 16;
const NFNL_MSG_BATCH_END: u16 = 17;
const SUBSYSTEM: u16 = 10;
const ERESTART: i32 = 85;
const ATTEMPTS: usize = 8;

/// Returns a `struct nfgenmsg` for a message on a table.
pub fn header(family: u8) -> [u8; 4] {
    [family, 0, 0, 0]
}

/// The `struct nfgenmsg` of a batch's begin and end: the subsystem in network byte order.
const ENDS: [u8; 4] = [0, 0, 0, SUBSYSTEM as u8];

/// Returns the message type of a message of nftables.
pub fn kind(message: u16) -> u16 {
    (SUBSYSTEM << 8) | message
}

/// Messages on one table that are applied as one transaction.
pub struct Transaction {
    batch: Batch,
    table: Table,
}

impl Transaction {
    /// Starts a transaction on a table.
    pub fn new(table: &Table) -> Self {
        let mut batch = Batch::new();
        batch.message(NFNL_MSG_BATCH_BEGIN, 0, &ENDS, |_| {});
        Self { batch, table: table.clone() }
    }

    /// Appends a message, which begins with the name of the table.
    pub fn add(&mut self, message: u16, flags: u16, attributes: impl FnOnce(&mut Batch)) {
        let Self { batch, table } = self;
        batch.message(kind(message), flags, &header(table.family.number()), |m| {
            m.text(1, &table.name);
            attributes(m);
        });
    }

    /// Appends a message that creates something that may exist.
    pub fn create(&mut self, message: u16, attributes: impl FnOnce(&mut Batch)) {
        self.add(message, CREATE, attributes);
    }

    /// Commits the transaction. Retries if the kernel returns `ERESTART`, which means that another transaction was
    /// committed in between and nothing was applied.
    pub fn commit(mut self, socket: &mut Socket) -> Result<(), Refusal> {
        if self.batch.len() == 1 {
            return Ok(());
        }
        let last = self.batch.len() - 1;
        self.batch.message(NFNL_MSG_BATCH_END, 0, &ENDS, |_| {});
        let mut outcome = socket.request_acknowledged(self.batch.clone(), last);
        for _ in 1..ATTEMPTS {
            match &outcome {
                Err(refusal) if refusal.errno.raw_os_error() == ERESTART => {
                    outcome = socket.request_acknowledged(self.batch.clone(), last);
                }
                _ => break,
            }
        }
        outcome
    }
}
