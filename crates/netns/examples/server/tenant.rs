//! A tenant of a shard, and its share of each turn.

use std::{cell::Cell, rc::Rc, sync::Arc};

use super::metrics::Counters;

/// Accepts, reads, writes and requests that are done for a tenant before all others have had their turn. What is left is done
/// in the next one.
const SHARE: u32 = 32;

/// A tenant.
#[derive(Debug)]
pub(crate) struct Tenant {
    pub(crate) counters: Arc<Counters>,
    turn: Cell<u64>,
    used: Cell<u32>,
}

impl Tenant {
    pub(crate) fn new(counters: Arc<Counters>) -> Rc<Self> {
        Rc::new(Self { counters, turn: Cell::new(0), used: Cell::new(0) })
    }

    /// Takes one unit of the tenant's share of a turn; returns false if nothing is left of it.
    pub(crate) fn take(&self, turn: u64) -> bool {
        if self.turn.replace(turn) != turn {
            self.used.set(0);
        }
        let used = self.used.get();
        self.used.set(used.saturating_add(1));
        used < SHARE
    }
}
