//! Limits how many queries of a pod are served in a time.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

/// Length of a period.
const PERIOD: Duration = Duration::from_millis(50);
/// Number of queries in a period.
const QUERIES: u32 = 100;

/// The queries of a pod in the current period.
#[derive(Debug)]
pub(crate) struct Pace(Mutex<(Instant, u32)>);

impl Pace {
    pub(crate) fn new() -> Self {
        Self(Mutex::new((Instant::now(), 0)))
    }

    /// Waits until another query may be served.
    pub(crate) async fn wait(&self) {
        loop {
            let Some(next) = self.take() else { return };
            sleep_until(next).await;
        }
    }

    /// Counts a query; returns the end of the period if it has no more.
    fn take(&self) -> Option<Instant> {
        let mut period = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if now >= period.0 + PERIOD {
            *period = (now, 0);
        }
        period.1 += 1;
        (period.1 > QUERIES).then(|| period.0 + PERIOD)
    }
}
