//! Heartbeats of the monitor.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use monitor_api::StuckWriter;

use super::Engine;
use crate::{Condition, ErrorKind};

/// Interval between a response and the next request.
const INTERVAL: Duration = Duration::from_secs(2);
/// A monitor that does not respond for this long is considered hung.
const SILENT_MAX: Duration = Duration::from_secs(10);

/// State of the heartbeat.
#[derive(Debug, Default)]
pub(crate) struct Heartbeat(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// When the first unanswered request was sent.
    unanswered: Option<Instant>,
    stuck_writers: Vec<StuckWriter>,
}

impl Heartbeat {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how long the monitor has not responded; zero below 10 s.
    pub(super) fn silence(&self) -> Duration {
        let silence = self.lock().unanswered.map_or(Duration::ZERO, |since| since.elapsed());
        if silence < SILENT_MAX { Duration::ZERO } else { silence }
    }

    /// Returns the log writers that waited for their file system at the last response.
    pub(super) fn stuck_writers(&self) -> Vec<StuckWriter> {
        self.lock().stuck_writers.clone()
    }

    /// Reports whether the monitor responds.
    pub(crate) fn condition(&self) -> Condition {
        let responds = match self.silence().is_zero() {
            true => Ok(()),
            false => Err(format!(
                "the monitor has not answered for more than {} s: containers keep running, but none can be started, \
                 stopped or executed in",
                SILENT_MAX.as_secs()
            )),
        };
        Condition::from_result(responds, "MonitorNotAnswering")
    }

    fn answered(&self, stuck_writers: Vec<StuckWriter>) {
        let mut state = self.lock();
        let silence = state.unanswered.take().map_or(Duration::ZERO, |since| since.elapsed());
        let before = std::mem::replace(&mut state.stuck_writers, stuck_writers.clone());
        drop(state);
        if silence >= SILENT_MAX {
            tracing::info!(seconds = silence.as_secs(), "the monitor responds again");
        }
        for writer in stuck_writers.iter().filter(|writer| !before.iter().any(|known| known.device == writer.device)) {
            tracing::error!(
                device = super::device(writer),
                containers = writer.containers,
                "a file system of container logs does not respond: output waits"
            );
        }
        for writer in before.iter().filter(|known| !stuck_writers.iter().any(|writer| writer.device == known.device)) {
            tracing::info!(device = super::device(writer), "a file system of container logs responds again");
        }
    }
}

/// Pings the monitor periodically for as long as the engine exists.
pub(super) async fn run(engine: Engine) {
    loop {
        let Some(monitor) = engine.upgrade().map(|engine| {
            engine.health.monitor.lock().unanswered.get_or_insert_with(Instant::now);
            engine.monitor.clone()
        }) else {
            return;
        };
        let answer = monitor.ping(SILENT_MAX).await;
        drop(monitor);
        let Some(engine) = engine.upgrade() else { return };
        match answer {
            Ok(pong) => engine.health.monitor.answered(pong.stuck),
            Err(error) if error.kind == ErrorKind::DeadlineExceeded => {
                tracing::error!("the monitor does not respond: {error}");
            }
            // No monitor is connected; the supervisor of the connection reports that.
            Err(_) => engine.health.monitor.lock().unanswered = None,
        }
        drop(engine);
        tokio::time::sleep(INTERVAL).await;
    }
}
