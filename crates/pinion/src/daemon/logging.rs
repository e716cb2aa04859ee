//! The log of the daemon: one line per event on standard error, as text or JSON.
//!
//! ```text
//! event ─▶ filter (level per module) ─▶ suppress repeats ─▶ add fields of the request's span ─▶ queue ─▶ one write(2)
//! span  ─▶ otlp (off unless configured) ─▶ the collector
//! ```
//!
//! Every line that is written within a request has the fields of that request (`rpc`, `trace`, and its objects:
//! `sandbox`, `pod`, `namespace`, `container`, `name`, `image`), so all lines of a request can be found by its trace. A
//! failed request gets one line, with `code` and `ms`. Texts from clients, images and registries can neither break a
//! line nor control a terminal, and long ones are truncated. No request waits for the reader of standard error: see
//! [`queue`].

mod journal;
mod line;
mod lines;
mod queue;
mod repeats;

use std::{
    io::stderr,
    panic::PanicHookInfo,
    sync::Arc,
    thread,
    time::{Duration, SystemTime},
};

use otlp::Traces;
use serde_json::Value;
use telemetry::Counter;
use tracing::Level;
use tracing_subscriber::{EnvFilter, Layer, Registry, layer::SubscriberExt, reload, util::SubscriberInitExt};

use super::{
    config::{Log, Tracing},
    log_filter::{self, OURS},
};
use crate::Failure;
use line::{Line, Style};
use lines::Lines;
use queue::Queue;

/// How long the exit of the daemon waits for the collector to receive the last spans.
const SPANS_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the exit of the daemon waits for the last lines to be written.
const LINES_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a thread that panics waits for its line to be written, because the process may exit.
const PANIC_TIMEOUT: Duration = Duration::from_millis(200);

/// Levels, in the order of [`LogMetrics::lines`].
pub(super) const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

/// Counters of log lines since the daemon started.
#[derive(Debug, Default)]
pub(crate) struct LogMetrics {
    /// Lines written, by level (the index in [`LEVELS`]).
    pub(super) lines: [Counter; LEVELS.len()],
    /// Lines suppressed because there were too many similar ones.
    pub(super) left_out: Counter,
}

/// Controls the log and the traces while the daemon runs. Clones share their state.
#[derive(Clone)]
pub(crate) struct Control {
    filter: reload::Handle<EnvFilter, Registry>,
    style: Arc<Style>,
    traces: Traces,
    metrics: Arc<LogMetrics>,
    queue: Queue,
}

/// Starts logging to standard error. Spans are discarded until [`Control::trace`] is called.
pub(crate) fn start(log: &Log) -> Result<Control, Failure> {
    let (filter, handle) = reload::Layer::new(log_filter::parse(&log.level).map_err(Failure::daemon)?);
    let style = Arc::new(Style::of(log.format, &stderr()));
    let (traces, metrics) = (Traces::off(OURS), Arc::new(LogMetrics::default()));
    let failed = |error: std::io::Error| Failure::daemon(format!("start the log: {error}"));
    let notice_style = Arc::clone(&style);
    let queue = Queue::start(stderr(), Box::new(move |lines| dropped(&notice_style, lines))).map_err(failed)?;
    report_panics(Arc::clone(&style), queue.clone());
    let lines = Lines::new(Arc::clone(&style), Arc::clone(&metrics), queue.clone());
    let result = tracing_subscriber::registry().with(lines.with_filter(filter)).with(traces.layer()).try_init();
    result.map_err(|error| Failure::daemon(format!("start the log: {error}")))?;
    Ok(Control { filter: handle, style, traces, metrics, queue })
}

impl Control {
    /// Sets the level and the format of log lines. Changes nothing if the level is invalid.
    pub(crate) fn apply(&self, log: &Log) -> Result<(), Failure> {
        let failed = |cause: String| Failure::daemon(format!("set log level {:?}: {cause}", log.level));
        self.filter
            .reload(log_filter::parse(&log.level).map_err(failed)?)
            .map_err(|error| failed(error.to_string()))?;
        self.style.set(log.format);
        Ok(())
    }

    /// Sets the collector of spans, or disables tracing. Must be called within the runtime.
    pub(crate) fn trace(&self, tracing: &Tracing) -> Result<(), Failure> {
        let settings = tracing.endpoint.as_ref().map(|endpoint| otlp::Settings {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            sample_ratio: tracing.sample_ratio,
            service_name: tracing.service_name.clone(),
            resource: resource(),
        });
        self.traces.set(settings).map_err(|error| Failure::daemon(format!("tracing: {error}")))
    }

    /// Waits, for a limited time, until pending spans are exported.
    pub(crate) async fn flush(&self) {
        self.traces.flush(SPANS_TIMEOUT).await;
    }

    /// Waits, for a limited time, until all log lines are written. Must be called before the process exits or executes
    /// another program.
    pub(crate) fn finish(&self) {
        self.queue.flush(LINES_TIMEOUT);
    }

    /// Writes the failure that stops the daemon, in the format of a failed command. Returns a failure without a
    /// message, because it is reported already.
    pub(crate) fn report(&self, failure: &Failure) -> Failure {
        self.queue.push(failure.line());
        self.finish();
        Failure::quiet(failure.code)
    }

    /// Returns the number of lines that were dropped because standard error could not be written fast enough.
    pub(super) fn dropped(&self) -> u64 {
        self.queue.dropped()
    }

    /// Returns the counters of log lines.
    pub(super) fn metrics(&self) -> &LogMetrics {
        &self.metrics
    }

    /// Returns the exporter of spans.
    pub(super) fn traces(&self) -> &Traces {
        &self.traces
    }
}

/// Formats the line that reports dropped lines.
fn dropped(style: &Style, lines: u64) -> String {
    let lines = Value::from(lines);
    let message = "log lines were dropped: standard error was not read fast enough";
    internal_line(style, Level::WARN, message, vec![("lines", &lines)])
}

/// Exit code of the standard library after a panic.
const PANIC_CODE: i32 = 101;
/// Source file in which the async runtime panics when it cannot wake a worker. Tasks that wait for it would wait
/// forever.
const IO_DRIVER: &str = "/runtime/io/driver.rs";

/// Logs panics through the queue, because the default hook would block on standard error.
fn report_panics(style: Arc<Style>, queue: Queue) {
    std::panic::set_hook(Box::new(move |panic: &PanicHookInfo<'_>| {
        let thread = thread::current();
        let name = Value::from(thread.name().unwrap_or("unnamed"));
        queue.push(internal_line(&style, Level::ERROR, &panic.to_string(), vec![("thread", &name)]));
        queue.flush(PANIC_TIMEOUT);
        let is_fatal =
            thread.name() == Some("main") || panic.location().is_some_and(|place| place.file().ends_with(IO_DRIVER));
        #[expect(clippy::disallowed_methods, reason = "unwinding the main thread may wait forever for the runtime's")]
        if is_fatal {
            std::process::exit(PANIC_CODE);
        }
    }));
}

fn internal_line(style: &Style, level: Level, message: &str, fields: Vec<(&str, &Value)>) -> String {
    style.write(&Line { at: SystemTime::now(), level, target: module_path!(), message, fields, left_out: 0 })
}

/// Returns the resource attributes of spans, without the service name.
fn resource() -> Vec<(String, String)> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    vec![
        ("service.version".to_owned(), cri::RUNTIME_VERSION.to_owned()),
        ("host.name".to_owned(), host),
        ("process.pid".to_owned(), std::process::id().to_string()),
    ]
}

#[cfg(test)]
mod tests;
