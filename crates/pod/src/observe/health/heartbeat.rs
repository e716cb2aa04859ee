//! Heartbeats of the monitor.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use monitor_api::{Pong, StuckWriter};

use crate::{Condition, Error, ErrorKind};

/// Interval between a response and the next request.
pub(super) const INTERVAL: Duration = Duration::from_secs(2);
/// A monitor that does not respond for this long is considered hung.
pub(super) const SILENT_MAX: Duration = Duration::from_secs(10);

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

    /// Notes that a request is sent.
    pub(super) fn begin(&self) {
        self.lock().unanswered.get_or_insert_with(Instant::now);
    }

    /// Notes the outcome of a request.
    pub(super) fn end(&self, answer: Result<Pong, Error>) {
        match answer {
            Ok(pong) => self.answered(pong.stuck),
            Err(error) if error.kind == ErrorKind::DeadlineExceeded => {
                tracing::error!("the monitor does not respond: {error}");
            }
            // No monitor is connected; the supervisor of the connection reports that.
            Err(_) => self.lock().unanswered = None,
        }
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
                device = device(writer),
                containers = writer.containers,
                "a file system of container logs does not respond: output waits"
            );
        }
        for writer in before.iter().filter(|known| !stuck_writers.iter().any(|writer| writer.device == known.device)) {
            tracing::info!(device = device(writer), "a file system of container logs responds again");
        }
    }
}

/// Formats a device as `8:1`, as in `/proc/self/mountinfo`.
pub(super) fn device(writer: &StuckWriter) -> String {
    writer.device.map_or_else(|| "none".to_owned(), |device| format!("{}:{}", device.major, device.minor))
}
