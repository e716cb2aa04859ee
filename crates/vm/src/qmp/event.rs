use serde_json::Value;
use tokio::sync::{broadcast, watch};

use super::Failure;

/// Events that wait for a receiver. When there are more, the oldest are lost.
pub(super) const QUEUE: usize = 64;
/// Longest event that is delivered. Those of [`EventKind`] have less than 500 bytes.
pub(super) const EVENT_MAX: usize = 4096;

/// The events that are delivered; see QEMU's "QMP Reference Manual".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The virtual machine shut down; QEMU exits.
    Shutdown,
    /// The kernel of the guest panicked.
    GuestPanicked,
    /// The virtual machine was reset.
    Reset,
    /// A device, whose id is `device`, was removed.
    DeviceDeleted,
    /// The watchdog expired.
    Watchdog,
    /// The guest changed how much of its memory is plugged.
    MemoryDeviceSizeChange,
}

/// An event of QEMU.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// Its data; null if it does not have any.
    pub data: Value,
}

impl EventKind {
    pub(super) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "SHUTDOWN" => Self::Shutdown,
            "GUEST_PANICKED" => Self::GuestPanicked,
            "RESET" => Self::Reset,
            "DEVICE_DELETED" => Self::DeviceDeleted,
            "WATCHDOG" => Self::Watchdog,
            "MEMORY_DEVICE_SIZE_CHANGE" => Self::MemoryDeviceSizeChange,
            _ => return None,
        })
    }
}

/// Receives the events since its creation.
pub struct Events {
    pub(super) receiver: broadcast::Receiver<Event>,
    pub(super) closed: watch::Receiver<Option<Failure>>,
    pub(super) lost: u64,
}

impl Events {
    /// Waits for the next event. `None`: the connection is closed, and all events are received.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            let received = tokio::select! {
                biased;
                received = self.receiver.recv() => received,
                _ = self.closed.wait_for(Option::is_some) => return None,
            };
            match received {
                Ok(event) => return Some(event),
                Err(broadcast::error::RecvError::Lagged(count)) => self.lost += count,
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    /// Number of events that were lost because this receiver was too slow.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}
