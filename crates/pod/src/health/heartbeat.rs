//! The monitor's heartbeat.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use monitor_api::StuckWriter;

use super::Engine;
use crate::{Condition, ErrorKind};

/// Between an answer and the next request.
const EVERY: Duration = Duration::from_secs(2);
/// A monitor that does not answer for so long is taken for hung.
const SILENT_MAX: Duration = Duration::from_secs(10);

/// What the monitor answered last.
#[derive(Debug, Default)]
pub(crate) struct Heartbeat(Mutex<Beat>);

#[derive(Debug, Default)]
struct Beat {
    /// When the first request was sent that is not answered.
    unanswered: Option<Instant>,
    stuck: Vec<StuckWriter>,
}

impl Heartbeat {
    fn lock(&self) -> MutexGuard<'_, Beat> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long it has not answered; zero below 10 s.
    pub(super) fn silence(&self) -> Duration {
        let silence = self.lock().unanswered.map_or(Duration::ZERO, |since| since.elapsed());
        if silence < SILENT_MAX { Duration::ZERO } else { silence }
    }

    /// Log writers that wait for their file system, as of the last answer.
    pub(super) fn stuck(&self) -> Vec<StuckWriter> {
        self.lock().stuck.clone()
    }

    /// Whether it answers.
    pub(crate) fn condition(&self) -> Condition {
        let answers = match self.silence().is_zero() {
            true => Ok(()),
            false => Err(format!(
                "the monitor has not answered for more than {} s: containers keep running, but none can be started, \
                 stopped or executed in",
                SILENT_MAX.as_secs()
            )),
        };
        Condition::of(answers, "MonitorNotAnswering")
    }

    fn answered(&self, stuck: Vec<StuckWriter>) {
        let mut beat = self.lock();
        let silence = beat.unanswered.take().map_or(Duration::ZERO, |since| since.elapsed());
        let before = std::mem::replace(&mut beat.stuck, stuck.clone());
        drop(beat);
        if silence >= SILENT_MAX {
            tracing::info!(seconds = silence.as_secs(), "the monitor answers again");
        }
        for writer in stuck.iter().filter(|writer| !before.iter().any(|known| known.device == writer.device)) {
            tracing::error!(
                device = super::device(writer),
                containers = writer.containers,
                "a file system of container logs does not answer: their output waits"
            );
        }
        for writer in before.iter().filter(|known| !stuck.iter().any(|writer| writer.device == known.device)) {
            tracing::info!(device = super::device(writer), "a file system of container logs answers again");
        }
    }
}

/// Asks again and again, for as long as the engine lives.
pub(super) async fn beat(engine: Engine) {
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
                tracing::error!("the monitor does not answer: {error}");
            }
            // None is connected, which its connection reports.
            Err(_) => engine.health.monitor.lock().unanswered = None,
        }
        drop(engine);
        tokio::time::sleep(EVERY).await;
    }
}
