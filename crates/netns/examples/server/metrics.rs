//! What is counted for each tenant.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

/// A counter that one thread changes and others read.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.store(self.get().wrapping_add(count), Ordering::Relaxed);
    }

    pub(crate) fn subtract(&self, count: u64) {
        self.0.store(self.get().wrapping_sub(count), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of a tenant.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Name of the pin.
    pub(crate) name: String,
    pub(crate) accepted: Counter,
    pub(crate) open: Counter,
    pub(crate) received: Counter,
    pub(crate) sent: Counter,
    pub(crate) requests: Counter,
    /// Connections that were refused or closed because the tenant had too many.
    pub(crate) refused: Counter,
    /// Requests that were not valid, and connections that broke.
    pub(crate) errors: Counter,
}

/// A metric: its name, its type, what it means, and how to read it.
pub(crate) type Family = (&'static str, &'static str, &'static str, fn(&Counters) -> u64);

/// All metrics.
pub(crate) const FAMILIES: [Family; 7] = [
    ("tenant_connections_accepted_total", "counter", "Connections that were accepted.", |c| c.accepted.get()),
    ("tenant_connections_open", "gauge", "Connections that are open.", |c| c.open.get()),
    ("tenant_connections_refused_total", "counter", "Connections beyond the limit.", |c| c.refused.get()),
    ("tenant_received_bytes_total", "counter", "Bytes that were received.", |c| c.received.get()),
    ("tenant_sent_bytes_total", "counter", "Bytes that were sent.", |c| c.sent.get()),
    ("tenant_http_requests_total", "counter", "Requests over HTTP.", |c| c.requests.get()),
    ("tenant_errors_total", "counter", "Requests that were not valid, and broken connections.", |c| c.errors.get()),
];

/// The counters of all tenants.
#[derive(Debug, Default)]
pub(crate) struct Registry(Mutex<Vec<Arc<Counters>>>);

impl Registry {
    pub(crate) fn add(&self, counters: &Arc<Counters>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(counters));
    }

    pub(crate) fn remove(&self, counters: &Arc<Counters>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|it| !Arc::ptr_eq(it, counters));
    }

    pub(crate) fn all(&self) -> Vec<Arc<Counters>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
